# SPDX-License-Identifier: Apache-2.0
"""Run a tool of others: bounded in time and in what it may print, nothing of it left behind."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

__all__ = ["Ran", "run_tool"]

_KEPT: Final = 1 << 16
"""Last bytes kept of what is printed."""
_WAIT_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Ran:
    """How a tool ended.

    Attributes:
        code: exit code, negative for a signal; None where the time limit was hit.
        out, err: the end of what it printed, as text.
    """

    code: int | None
    out: str
    err: str

    def lines(self) -> list[str]:
        """What was printed, without blank lines, errors last."""
        both = f"{self.out}\n{self.err}".replace("\r", "\n").split("\n")
        return [line for line in both if line.strip()]


def run_tool(command: Sequence[str], folder: Path, seconds: float) -> Ran:
    """Run a tool in a process group of its own and wait for it.

    Whatever ends the wait, the time limit, an interrupt or the tool itself: its group is killed,
    and so are the processes below it that left the group.

    Args:
        command: program and arguments.
        folder: where it runs, and where it shall put temporary files.
        seconds: time limit.

    Raises:
        OSError: it cannot be started.
    """
    with _interrupts_noted() as interrupted:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,
        )
        ended, kept = _wait(process, seconds, interrupted)
    if interrupted:
        raise KeyboardInterrupt
    out, err = (part.decode("utf-8", "replace") for part in kept)
    return Ran(process.returncode if ended else None, out, err)


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Note interrupts instead of raising them: one more could come while the first one cleans up.

    Only Python's own handler is stood in for, and only in the thread that handlers run in.
    """
    noted: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _wait(
    process: "subprocess.Popen[bytes]", seconds: float, interrupted: Sequence[int]
) -> tuple[bool, list[bytes]]:
    """Wait for the end, the limit or an interrupt, and kill; whether it ended, and its output."""
    ended = False
    kept = [b"", b""]
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    try:
        for pipe in pipes:
            os.set_blocking(pipe.fileno(), False)
        limit = time.monotonic() + seconds
        while not (ended := _ended(process)) and time.monotonic() < limit and not interrupted:
            if not _drain(pipes, kept):
                time.sleep(_WAIT_S)
    finally:
        _kill(process)
        process.wait()
        _drain(pipes, kept)
        for pipe in pipes:
            pipe.close()
    return ended, kept


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it ended; its id stays taken, so that its group can still be named."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, flags) is not None
    except ChildProcessError:  # Whoever started us lets ended children go at once.
        return True


def _drain(pipes: Sequence[IO[bytes]], kept: list[bytes]) -> bool:
    """Take what was printed; false where that was nothing. A round takes a bounded amount."""
    some = False
    for place, pipe in enumerate(pipes):
        with suppress(BlockingIOError):
            part = os.read(pipe.fileno(), _KEPT)
            kept[place] = (kept[place] + part)[-_KEPT:]
            some = some or bool(part)
    return some


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if not hasattr(os, "killpg"):
        process.kill()
        return
    for pid in _below(process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _below(root: int) -> list[int]:
    """Processes below one, where /proc says it; a child may have left the group."""
    parents: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - names are what is looked at
            if name.isdecimal():
                with suppress(OSError, ValueError, IndexError):
                    # Behind the name in brackets, which may hold anything: state, parent.
                    fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                    parents.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    pending = [root]
    while pending:
        children = parents.pop(pending.pop(), [])
        found += children
        pending += children
    return found
