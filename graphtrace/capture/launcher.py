# SPDX-License-Identifier: Apache-2.0
"""Runs a program unchanged and records it.

The program inherits everything: input, output, open files, signals that were ignored. It sees two
variables more, PYTHONPATH and GRAPHTRACE_BOOT, by which each Python that it starts finds the
recorder. A Ctrl-C reaches it from the terminal, as it would without us.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from graphtrace.capture import finish, folder
from graphtrace.model.assembly import Assembled
from graphtrace.model.errors import UsageError
from graphtrace.model.recorded_gaps import many
from graphtrace.model.recording import RAW, Manifest

__all__ = ["LaunchOptions", "LaunchResult", "launch"]

_BOOT: Final = Path(__file__).resolve().parent / "boot"
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What to record and where.

    Attributes:
        output: the recording; None names it after the program and the time, in this folder.
        depth: modules at most this many calls below the outermost one are stages.
        stages: patterns; modules whose qualified name matches one are stages, too.
        force: replace a recording that exists.
    """

    output: Path | None = None
    depth: int = 2
    stages: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How it went.

    Attributes:
        exit_code: the program's own; 128 + signal where one ended it; 126 and 127 as `env`.
        recording: the recording; None where the program never started.
        sentences: what to tell the person, in order.
        signal: number of the signal that ended the program, for the caller to die by as well.
    """

    exit_code: int
    recording: Path | None
    sentences: tuple[str, ...] = ()
    signal: int | None = None


def _environment(raw: Path) -> dict[str, str]:
    environment = dict(os.environ)
    boot = str(_BOOT)
    old = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p != boot]
    environment["PYTHONPATH"] = os.pathsep.join([boot, *old])
    environment["GRAPHTRACE_BOOT"] = str(raw)
    return environment


def _make_folder(command: Sequence[str], options: LaunchOptions) -> Path:
    if not command:
        raise UsageError(
            "There is no program to run.",
            "Nothing follows the options.",
            "Write: graphtrace capture -- python infer.py",
        )
    if options.output is not None:
        return folder.create(options.output, options.depth, options.stages, force=options.force)
    name = folder.default_name(command, time.localtime())
    count = 2
    free = name
    while os.path.lexists(free):
        free = f"{name.removesuffix('.gtrace')}-{count}.gtrace"
        count += 1
    return folder.create(free, options.depth, options.stages, force=False)


@dataclass(slots=True)
class _Forwarder:
    """Hands signals to the program; those that arrive before it runs wait for it."""

    child: "subprocess.Popen[bytes] | None" = None
    waiting: list[int] = field(default_factory=list)

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self.child is None:
            self.waiting.append(number)
        else:
            self.child.send_signal(number)

    def attach(self, child: "subprocess.Popen[bytes]") -> None:
        """The program runs."""
        self.child = child
        while self.waiting:
            child.send_signal(self.waiting.pop(0))


def _let_the_child_decide(_: int, __: FrameType | None) -> None:
    """The terminal sends this to the program, too; only what the program does with it counts."""


@contextmanager
def _signals(forwarder: _Forwarder) -> Iterator[None]:
    """Handle signals while the program runs; one that is ignored stays ignored, here and there."""
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        **dict.fromkeys(_FORWARDED, forwarder),
        **dict.fromkeys(_FROM_TERMINAL, _let_the_child_decide),
    }
    before = {}
    try:
        for number, handler in handlers.items():
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _spawn(command: Sequence[str], raw: Path) -> "subprocess.Popen[bytes]":
    """Start the program with all that we inherited.

    Raises:
        OSError: it cannot be started.
    """
    environment = _environment(raw)
    try:
        return subprocess.Popen(list(command), env=environment, close_fds=False)
    except OSError as error:
        if error.errno != 8:  # ENOEXEC: a script without #!, which execvp hands to the shell
            raise
        path = shutil.which(command[0]) or command[0]
        words = ["/bin/sh", path, *command[1:]]
        return subprocess.Popen(words, env=environment, close_fds=False)


def _not_started(command: Sequence[str], home: Path, error: OSError | ValueError) -> LaunchResult:
    shutil.rmtree(home, ignore_errors=True)
    missing = isinstance(error, FileNotFoundError)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return LaunchResult(
        _NOT_FOUND if missing else _NOT_EXECUTABLE,
        None,
        (f"{command[0]}: {why or error}; nothing was recorded.",),
    )


def launch(command: Sequence[str], options: LaunchOptions) -> LaunchResult:
    """Run a program and record it; call from the main thread.

    Args:
        command: the program and its arguments.
        options: what to record and where.

    Raises:
        UsageError: no program, or options that make no sense; nothing was started.
        OutputError: the recording exists or cannot be written; nothing was started.
    """
    home = _make_folder(command, options)
    forwarder = _Forwarder()
    with _signals(forwarder):
        try:
            child = _spawn(command, home / RAW)
        except (OSError, ValueError) as error:
            return _not_started(command, home, error)
        forwarder.attach(child)
        status = child.wait()
    killed = -status if status < 0 else None
    code = status if killed is None else 128 + killed
    ending = finish.Ending(Path(command[0]).name, child.pid, code, killed)
    return LaunchResult(code, home, _finish(command, home, ending), killed)


def _finish(command: Sequence[str], home: Path, ending: finish.Ending) -> tuple[str, ...]:
    """Turn what was recorded into tables; the program's own result is never spoilt by it."""
    shown = os.path.relpath(home)
    try:
        manifest, assembled = finish.finish(home, ending)
    except OSError as error:
        return (
            f"The recording could not be finished: {error.strerror or error}.",
            f"What was recorded is in {shown}; free some space and run: graphtrace analyze {shown}",
        )
    return (*_summary(shown, manifest, assembled), *_next(command, shown, manifest, assembled))


def _summary(shown: str, manifest: Manifest, assembled: Assembled) -> list[str]:
    tables = assembled.tables
    said = [
        f"Recorded {shown}: {many(tables.rows('stages'), 'stage', 'stages')}, "
        f"{many(tables.rows('batches'), 'batch', 'batches')}, "
        f"{many(len(assembled.processes), 'process', 'processes')}.",
        *manifest.missing,
    ]
    cost = manifest.cost
    if cost.hook_ns_per_border is not None and cost.overhead_ns is not None:
        said.append(
            f"Cost: {cost.records:,} records, about {cost.hook_ns_per_border / 1000:.1f} us each, "
            f"{cost.overhead_ns / 1e6:.1f} ms in all."
        )
    if not tables.rows("stages") and not tables.rows("batches") and assembled.processes:
        said.append(
            "No stage and no batch was seen: the program called no torch module; "
            "name stages with graphtrace.stage."
        )
    return said


def _next(
    command: Sequence[str], shown: str, manifest: Manifest, assembled: Assembled
) -> Iterator[str]:
    if finish.NO_REPLAYS in manifest.missing:
        run = shlex.join(["graphtrace", "capture", "--", *command])
        yield (
            "For the GPU, run: nsys profile --cuda-graph-trace=node -t cuda,nvtx -o run "
            f"{run} && nsys export --type sqlite -o run.sqlite run.nsys-rep "
            "&& graphtrace analyze run.sqlite"
        )
    if assembled.tables.rows("stages") or assembled.tables.rows("batches"):
        yield f"Next: graphtrace analyze {shlex.quote(shown)}"
