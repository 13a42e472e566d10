# SPDX-License-Identifier: Apache-2.0
"""Stages by module name, with no line changed in the program. Standard library only at import.

Two global hooks of torch see each module call. The outermost module on a thread is the root and
gives no path element; a module below it is a stage if it is called at most `depth` calls below the
root, or if its qualified name matches a pattern. `ModuleList` and `ModuleDict` are never called and
count for nothing: `blocks.0` is one element, one call below the root. In a pattern `*` stands for
anything but a dot, `**` for anything.
"""

import functools
import re
import sys
import time
import weakref
from types import FrameType
from typing import Any, Final

from graphtrace.capture.access import access_of
from graphtrace.capture.guard import guarded
from graphtrace.capture.recorder import ACTIVE, Entry, Recorder

__all__ = ["Plan", "enter", "install", "leave", "matcher", "uninstall"]

torch: Any = None
"""The program's torch: set by `install`, so that hooks name it as the program itself would."""

_HANDLES: Final[list[Any]] = []
_PLANS: Final[dict[int, "Plan"]] = {}
_MAX_RESCANS: Final = 8


def matcher(pattern: str) -> re.Pattern[str]:
    """A pattern of module names as a regular expression."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    words = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts))


def _forget(key: int, _: object) -> None:
    _PLANS.pop(key, None)


class Plan:
    """Names of the modules below one outermost module; holds no module alive.

    Args:
        root: the outermost module.
        depth: modules at most that many calls below it are stages.
        patterns: so are modules whose qualified name matches one of these in full.
    """

    def __init__(self, root: Any, depth: int, patterns: tuple[str, ...]) -> None:
        self.root = weakref.ref(root, functools.partial(_forget, id(root)))
        self._depth = depth
        self._patterns = {pattern: matcher(pattern) for pattern in patterns}
        self.matched: set[str] = set()
        self._rescans = 0
        self.names: dict[int, tuple[weakref.ref[Any], str, bool]] = {}
        self._scan(root)

    def _scan(self, root: Any) -> None:
        never_called = sys.modules["torch.nn.modules.module"]._forward_unimplemented
        calls: dict[str, int] = {}
        self.names.clear()
        for path, module in root.named_modules():
            above = calls.get(path.rpartition(".")[0], 0)
            # On the instance: torch.compile's wrapper has its `forward` there alone.
            called = getattr(module.forward, "__func__", None) is not never_called
            # torch.compile wraps a module and never calls it as one.
            called = called and not path.endswith("_orig_mod")
            calls[path] = 0 if not path else above + called
            name = ".".join(part for part in path.split(".") if part != "_orig_mod")
            matched = {p for p, regex in self._patterns.items() if called and regex.fullmatch(name)}
            self.matched |= matched
            wanted = calls[path] <= self._depth or bool(matched)
            stage = bool(name) and called and wanted
            self.names[id(module)] = (weakref.ref(module), name, stage)

    def find(self, module: Any) -> tuple[str, bool] | None:
        """Qualified name of a module and whether it is a stage; None where it is not below."""
        known = self.names.get(id(module))
        if known is not None and known[0]() is module:
            return known[1], known[2]
        root = self.root()
        if root is None or self._rescans >= _MAX_RESCANS:
            return None
        self._rescans += 1
        self._scan(root)
        known = self.names.get(id(module))
        return (known[1], known[2]) if known is not None else None


def _plan_of(recorder: Recorder, root: Any) -> Plan:
    plan = _PLANS.get(id(root))
    if plan is None or plan.root() is not root:
        plan = _PLANS[id(root)] = Plan(root, recorder.depth, recorder.patterns)
        for pattern in sorted(plan.matched):
            recorder.note(f"matched {pattern}")
    return plan


def _relative(name: str, enclosing: str) -> str:
    return name[len(enclosing) + 1 :] if enclosing and name.startswith(enclosing + ".") else name


def _open_calls(module: Any) -> int:
    """How many calls of a module are on this thread's stack, by torch's own frames."""
    count = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_call_impl" and frame.f_locals.get("self") is module:
            count += 1
        frame = frame.f_back
    return count


def _enter_root(recorder: Recorder, module: Any) -> None:
    state = recorder.state()
    outermost = all(entry.plan is None for entry in state.stack)
    stage = state.stack[-1].stage if state.stack else 0
    entry = Entry(id(module), stage, _plan_of(recorder, module), "", own=False, module=True)
    state.stack.append(entry)
    if outermost and not getattr(module, "_is_replica", False):
        entry.batch = recorder.open_implicit(state)


def _drop_stale(recorder: Recorder, module: Any, stack: list[Entry]) -> None:
    """Forget what an interrupt left open: torch calls no hook for one, unlike for an error."""
    at = next((i for i, e in enumerate(stack) if e.owner == id(module) and not e.own), None)
    if at is not None and _open_calls(module) <= 1:
        recorder.abandon(at, time.monotonic_ns())


@guarded("modules")
def enter(recorder: Recorder, module: Any) -> None:
    """A module is about to run."""
    state = recorder.state()
    stack = state.stack
    plan = stack[-1].plan if stack else None
    if plan is None:
        _enter_root(recorder, module)
        return
    found = plan.find(module)
    if found is None:
        _enter_root(recorder, module)
        return
    name, stage = found
    if stage:
        recorder.begin(id(module), _relative(name, stack[-1].qualname), "module", plan, name)
    elif not name:
        _drop_stale(recorder, module, stack)
        _enter_root(recorder, module)
    else:
        state.skipped += 1


@guarded("access patterns")
def _measure(recorder: Recorder, entry: Entry, args: Any, kwargs: Any, output: Any) -> None:
    entry.access = access_of(recorder, entry.stage, args, kwargs, output)


@guarded("modules")
def leave(recorder: Recorder, module: Any, args: Any, kwargs: Any, output: Any, now: int) -> None:
    """A module ran or raised, at `now`."""
    state = recorder.state()
    owner = id(module)
    entry = next((e for e in reversed(state.stack) if e.owner == owner), None)
    if entry is None:
        return
    if entry.own:
        _measure(recorder, entry, args, kwargs, output)
    recorder.end(owner, now, nested=True)
    if entry.batch:
        recorder.close_implicit(state, entry.batch, now)


def _pre_hook(module: Any, args: Any) -> None:
    if torch.compiler.is_compiling():
        return
    if ACTIVE:
        enter(ACTIVE[-1], module)


def _post_hook(module: Any, args: Any, *rest: Any) -> None:
    if torch.compiler.is_compiling():
        return
    if ACTIVE:
        # Where forward raised, torch leaves out the keyword arguments that it was asked for.
        kwargs, output = rest if len(rest) == 2 else ({}, None)
        leave(ACTIVE[-1], module, args, kwargs, output, time.monotonic_ns())


def install() -> None:
    """Register the two global hooks; torch's module of modules must have been imported."""
    global torch  # noqa: PLW0603 - Dynamo guards on names it can look up, as in the program's code
    if _HANDLES:
        return
    torch = sys.modules["torch"]
    home = sys.modules["torch.nn.modules.module"]
    _HANDLES.append(home.register_module_forward_pre_hook(_pre_hook))
    _HANDLES.append(
        home.register_module_forward_hook(_post_hook, with_kwargs=True, always_call=True)
    )


def uninstall() -> None:
    """Remove the hooks and forget every name."""
    while _HANDLES:
        _HANDLES.pop().remove()
    _PLANS.clear()
