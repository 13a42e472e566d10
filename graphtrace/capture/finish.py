# SPDX-License-Identifier: Apache-2.0
"""Turns the raw records of a recording into its final form: tables, manifest, `done`.

Run as a module it finishes one recording: `python -m graphtrace.capture.finish RUN.gtrace`.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphtrace import __version__
from graphtrace.model.assembly import Assembled, assemble
from graphtrace.model.raw import RawProcess
from graphtrace.model.recording import MANIFEST, RAW, Manifest, write_recording

__all__ = ["Ending", "finish", "has_gpu"]

_NSYS_SECONDS: Final = 20
_FIRST_UNSEEN: Final = 12
_LAST_BLIND_YEAR: Final = 2023

NO_GPU: Final = "No GPU here: times are the host clock's, there is no graph and no GPU metric."
NO_REPLAYS: Final = (
    "Work on the GPU, inside graph replays too, is not recorded by this version: "
    "these are the host's times."
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program ended, as far as it is known."""

    command: str | None = None
    pid: int | None = None
    code: int | None = None
    signal: int | None = None


def has_gpu() -> bool:
    """Whether an NVIDIA driver is there; nothing is loaded to find out."""
    # The control device alone says nothing: containers get it on machines without a GPU.
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine() or None
    name = next((line for line in lines if line.startswith("model name")), "")
    return name.partition(":")[2].strip() or platform.machine() or None


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _unclosed(processes: tuple[RawProcess, ...], ending: Ending) -> list[str]:
    """Sentences on processes that said no last word."""
    said: list[str] = []
    alive: list[int] = []
    sudden: list[int] = []
    for process in processes:
        pid = process.hello["pid"]
        if process.lines.get("bye"):
            continue
        if pid == ending.pid and ending.signal is not None:
            said.append(f"Process {pid} was ended by signal {ending.signal}: recorded until then.")
        elif pid != ending.pid and _alive(pid):
            alive.append(pid)
        elif len(process.events):
            sudden.append(pid)
    if alive:
        was = "was" if len(alive) == 1 else "were"
        said.append(f"{_named(alive)} {was} still running: recorded until the command ended.")
    if sudden:
        its = "its record" if len(sudden) == 1 else "their records"
        said.append(f"{_named(sudden)} left without closing {its}: recorded until then.")
    return said


def _named(pids: list[int]) -> str:
    """Who a sentence is about; many are counted, with the first few named."""
    if len(pids) == 1:
        return f"Process {pids[0]}"
    few = ", ".join(str(pid) for pid in pids[:3])
    return f"{len(pids):,} processes ({few}{', …' if len(pids) > 3 else ''})"


def _refused(raw: Path) -> list[str]:
    versions = {path.read_text(errors="replace")[:20] for path in raw.glob("refused-*")}
    return [
        f"Python {version} ran too; only Python 3.11 and newer can be recorded."
        for version in sorted(versions)
    ]


def _started(folder: Path) -> dict[str, Any]:
    """The manifest that stood there from the start; empty where it cannot be read."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _tools(processes: tuple[RawProcess, ...]) -> dict[str, str]:
    tools = {"graphtrace": __version__}
    for process in processes:
        for tool, kind in (("python", "hello"), ("torch", "bye")):
            version = process.last(kind).get(tool)
            if isinstance(version, str):
                tools.setdefault(tool, version[:64])
    return tools


def _nsys_version() -> str | None:
    """Release of the nsys on the path, as in 2022.4; None where there is none or it hangs."""
    path = shutil.which("nsys")
    if path is None:
        return None
    # Without the profiler's own variables, or it would be profiled as well.
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    try:
        done = subprocess.run(
            [path, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_NSYS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb"(20\d\d\.\d+)", done.stdout)
    return found[1].decode() if found else None


def _lost_ranges(assembled: Assembled) -> list[str]:
    """Of nsys: 2022.4 and 2023.4 record no range of nvtx 0.2.12 to 0.2.17, and do not say so."""
    if assembled.cost.profiler != "nsys":
        return []
    vias = {
        str(line.get("via"))
        for process in assembled.processes
        for line in process.lines.get("note", ())
        if line.get("topic") == "nvtx"
    }
    found = [re.fullmatch(r"nvtx 0\.2\.(\d+)", via) for via in sorted(vias)]
    new = next((match[0] for match in found if match and int(match[1]) >= _FIRST_UNSEEN), None)
    if new is None:
        return [] if vias else ["No stage reached nsys: the program's Python has no nvtx package."]
    release = _nsys_version()
    if release is None or int(release[:4]) > _LAST_BLIND_YEAR:
        return []
    return [f"nsys {release} records no range of {new}; in the program: pip install nvtx==0.2.11"]


def _unmatched(assembled: Assembled, patterns: object) -> list[str]:
    """Patterns that match no module, where modules ran at all."""
    if not isinstance(patterns, list) or not assembled.tables.rows("batches"):
        return []
    seen = {
        line.get("topic")
        for process in assembled.processes
        for line in process.lines.get("note", ())
    }
    missed = [str(pattern) for pattern in patterns if f"matched {pattern}" not in seen]
    return [f"No module has a name like {pattern!r}." for pattern in missed]


def _sentences(raw: Path, assembled: Assembled, ending: Ending) -> tuple[str, ...]:
    said = list(assembled.missing)
    if not assembled.processes and not any(raw.glob("refused-*")):
        said.append(
            "No Python process said hello: it was started with -I, -E or -S, or is not Python."
        )
    said += _refused(raw) + _unclosed(assembled.processes, ending)
    said += _lost_ranges(assembled)
    used_cuda = any(process.last("bye").get("cuda") is True for process in assembled.processes)
    said.append(NO_REPLAYS if used_cuda or has_gpu() else NO_GPU)
    return tuple(said)


def finish(folder: Path, ending: Ending) -> tuple[Manifest, Assembled]:
    """Write the tables of a recording whose program has ended, and remove its raw records.

    Raises:
        OSError: it cannot be written; the raw records stay, and the recording is readable by them.
    """
    raw = folder / RAW
    processor = _processor()
    assembled = assemble(raw, host=processor)
    started = _started(folder)
    given = started.get("how")
    how: dict[str, Any] = given if isinstance(given, dict) else {}
    manifest = Manifest(
        tools=_tools(assembled.processes),
        created_ns=started.get("created_ns"),
        command=ending.command,
        exit_code=ending.code,
        exit_signal=ending.signal,
        devices=({"kind": "host", "name": processor},),
        how={**how, "clock": "CLOCK_MONOTONIC"},
        cost=assembled.cost,
        missing=(*_unmatched(assembled, how.get("stages")), *_sentences(raw, assembled, ending)),
    )
    write_recording(folder, manifest, assembled.tables)
    shutil.rmtree(raw, ignore_errors=True)
    return manifest, assembled


if __name__ == "__main__":
    # The program that recorded itself is still alive and has closed its record.
    finish(Path(sys.argv[1]), Ending(pid=os.getppid()))
