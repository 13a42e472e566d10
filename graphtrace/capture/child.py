# SPDX-License-Identifier: Apache-2.0
"""Starts and ends the recorder inside the user's process. Standard library only."""

import atexit
import json
import os
import sys
import time
from typing import Any, Final

from graphtrace.capture import guard, imports, nvtx_ranges
from graphtrace.capture.guard import guarded
from graphtrace.capture.recorder import ACTIVE, Recorder, active
from graphtrace.capture.writer import Writer
from graphtrace.model import records

__all__ = ["finish", "start", "stop"]

_MODULES: Final = "torch.nn.modules.module"

_REGISTERED: Final[list[str]] = []
"""What was registered with the interpreter, which knows no way to take it back."""


def _hello(folder: str, segments: int) -> Writer:
    """Files of a process that has none yet."""
    pid, now = os.getpid(), time.monotonic_ns()
    writer = Writer(folder, f"{pid}-{now}", segments)
    writer.line(
        type="hello",
        layout=records.LAYOUT_VERSION,
        pid=pid,
        parent=os.getppid(),
        python=".".join(str(part) for part in sys.version_info[:3]),
        begin_ns=now,
    )
    return writer


def start(folder: str, stem: str | None = None) -> None:
    """Record this process into a `raw` folder.

    Args:
        folder: absolute path of the folder, with the file `config.json` of the recording.
        stem: what the names of the files of this process begin with, where it said hello already.
    """
    _start(folder, stem)


@guarded("start")
def _start(folder: str, stem: str | None) -> None:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123 - pathlib would be one more import in every process
        config: dict[str, Any] = json.load(file)
    if config["layout"] != records.LAYOUT_VERSION or ACTIVE:
        return
    guard.reset()
    segments = int(config["segments"])
    writer = Writer(folder, stem, segments) if stem else _hello(folder, segments)
    profiler = nvtx_ranges.attached()
    if profiler is not None:
        writer.line(type="profiler", name=profiler)
    recorder = Recorder(writer, config["depth"], tuple(config["stages"]))
    ACTIVE.append(recorder)
    guard.ON_FAILURE[:] = [recorder.failed]
    if not _REGISTERED:
        _REGISTERED.append("exit")
        atexit.register(stop)
        os.register_at_fork(after_in_child=_after_fork)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        # A forked worker ends without the interpreter's exit functions.
        _exit_of_worker(recorder)
    imports.after_import(_MODULES, _hook_modules)


@guarded("modules")
def _hook_modules() -> None:
    if ACTIVE:
        from graphtrace.capture import modules

        modules.install()


@guarded("fork")
def _after_fork() -> None:
    recorder = active()
    if recorder is None:
        return
    recorder.use(_hello(recorder.writer.folder, recorder.writer.limit))
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # multiprocessing drops every exit function of a forked worker, then calls these.
        util.register_after_fork(recorder, _exit_of_worker)


@guarded("fork")
def _exit_of_worker(_: Recorder) -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, stop, exitpriority=-1000)


@guarded("stop")
def stop() -> None:
    """End the recording of this process: hooks off, cost measured, last words written."""
    recorder = active()
    if recorder is None:
        return
    now = time.monotonic_ns()
    modules = sys.modules.get("graphtrace.capture.modules")
    if modules is not None:
        modules.uninstall()
    ACTIVE.clear()
    borders = sum(state.borders for state in recorder.states)
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    recorder.writer.line(
        type="bye",
        end_ns=now,
        borders=borders,
        skipped=sum(state.skipped for state in recorder.states),
        refused=sum(state.refused for state in recorder.states),
        lost=recorder.writer.lost,
        lost_lines=recorder.writer.lost_lines,
        torch=getattr(torch, "__version__", None) and str(torch.__version__),
        cuda=bool(cuda is not None and cuda.is_initialized()),
    )
    if borders:
        _measure(recorder)


@guarded("calibration")
def _measure(recorder: Recorder) -> None:
    from graphtrace.capture.calibrate import border_costs

    border, skipped = border_costs()
    recorder.writer.line(type="cost", border_ns=border, skipped_ns=skipped)


@guarded("finish")
def finish(home: str) -> None:
    """End a recording that the program started itself, and turn it into tables.

    A process of its own does that: it needs packages that this program may not want to load. Where
    it cannot, the recording stays as it is, which every reader understands.

    Args:
        home: the recording.
    """
    stop()
    if not sys.executable:
        return
    import subprocess

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - as above
    environment = {key: value for key, value in os.environ.items() if key != "GRAPHTRACE_BOOT"}
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (package, environment.get("PYTHONPATH")) if part
    )
    subprocess.run(
        [sys.executable, "-P", "-m", "graphtrace.capture.finish", home],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
