# SPDX-License-Identifier: Apache-2.0
"""First module that a Python started under `graphtrace capture` runs; Python 3.6 syntax.

It takes its folder off the path again, says hello in the recording, and waits: only when the
program imports torch's modules or graphtrace itself is the recorder loaded. Then it runs the
`sitecustomize` that it stood in front of. What fails of ours is swallowed; what that other module
does is its own. Nothing is imported here that a bare Python has not loaded already.
"""

# pathlib would be an import more in every process:
# ruff: noqa: PTH100, PTH118, PTH120

import atexit
import os
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
_WAKE = ("torch.nn.modules.module", "graphtrace.capture.api")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _safely(action: "Any", *args: "Any") -> "Any":
    """Run something of ours; what fails is no concern of the program's."""
    try:
        return action(*args)
    except Exception:  # noqa: BLE001 - border of the user's program: never fail it
        return None


class _Process:
    """What this process wrote so far, until the recorder takes over."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.stem = ""
        self.awake = False
        self.hello()

    def write(self, name: str, text: str) -> None:
        """Append to a file of the recording; no descriptor stays open."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self.folder, name), flags, 0o644)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)

    def hello(self) -> None:
        """Say that this process is here; again in a forked one."""
        version = ".".join(str(part) for part in sys.version_info[:3])
        pid = os.getpid()
        if sys.version_info < (3, 11):  # noqa: UP036 - this file runs under the user's Python
            self.write("refused-%d" % pid, version)  # noqa: UP031 - as above
            return
        now = time.monotonic_ns()
        self.stem = f"{pid}-{now}"
        self.write(
            self.stem + ".jsonl",
            f'{{"type":"hello","layout":1,"pid":{pid},"parent":{os.getppid()},'
            f'"python":"{version}","begin_ns":{now}}}\n',
        )

    def bye(self) -> None:
        """Say that this process ends, where there was nothing to record."""
        if self.stem and not self.awake:
            now = time.monotonic_ns()
            self.write(self.stem + ".jsonl", f'{{"type":"bye","end_ns":{now},"borders":0}}\n')

    def wake(self) -> None:
        """Load the recorder."""
        if self.stem and not self.awake:
            self.awake = True
            from graphtrace.capture import child

            child.start(self.folder, self.stem)

    def forked(self) -> None:
        """Begin anew in a forked process; where the recorder is loaded it does so itself."""
        if not self.awake:
            self.hello()


class _Finder:
    """Finds `graphtrace` in the copy that records, and notices what wakes the recorder."""

    def __init__(self, process: "_Process") -> None:
        self._process = process

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Answer as the finders behind this one do, except for graphtrace."""
        if name == "graphtrace":
            return _safely(self._find_ours, name)
        if name not in _WAKE or self._process.awake:
            return None
        _safely(self._process.wake)
        # The recorder put a finder in front that this search has passed already.
        for finder in tuple(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _find_ours(self, name: str) -> "Any":
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [os.path.dirname(_PACKAGE)])


def _start(folder: str) -> None:
    process = _Process(folder)
    if process.stem:
        sys.meta_path.insert(0, _Finder(process))
        atexit.register(_safely, process.bye)
        os.register_at_fork(after_in_child=lambda: _safely(process.forked))


def _chain() -> None:
    """Import the `sitecustomize` that this one stood in front of, as `site` would have."""
    own = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - there may be one; imported to run it
    except ImportError as error:
        if own is not None:
            sys.modules[__name__] = own
        if error.name != "sitecustomize":
            raise


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
sys.path_importer_cache.pop(_HERE, None)
if os.environ.get("GRAPHTRACE_BOOT"):
    _safely(_start, os.environ["GRAPHTRACE_BOOT"])
_chain()
