# SPDX-License-Identifier: Apache-2.0
"""What a program may say about itself: stages, batches, and where to record.

Without a recording all of it does nothing and costs well under a microsecond. Nothing here fails
because of what graphtrace does: only `record` raises, before the program's own work begins.
Standard library only at import; torch is never imported.
"""

import functools
import inspect
import operator
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, SupportsIndex, TypeVar, cast

from graphtrace.capture.guard import guarded
from graphtrace.capture.recorder import ACTIVE, Recorder, active

__all__ = ["batch", "enter_stage", "leave_stage", "record", "stage"]

P = ParamSpec("P")
R = TypeVar("R")


def _compiling() -> bool:
    """Whether torch is compiling the calling code; it must see nothing of ours then."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_compiling()


@guarded("stages")
def enter_stage(recorder: Recorder, owner: int, name: object) -> None:
    """Open a stage that the program marks."""
    recorder.begin(owner, str(name) or "unnamed", "code")


@guarded("stages")
def leave_stage(recorder: Recorder, owner: int, now: int) -> None:
    """Close a stage that the program marks."""
    recorder.end(owner, now, nested=False)


class stage:  # noqa: N801 - reads as a statement: with graphtrace.stage("encoder")
    """A named part of the program, as a context manager or a decorator.

    Write `with graphtrace.stage("attention"):` each time: an object that is kept in an attribute or
    a global cannot be entered in code that torch compiles. As a decorator it makes a new object for
    each call. Stages nest: inside the stage `encoder` this one is `encoder/attention`.

    Args:
        name: what it is called; a `/` makes more than one path element.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        if _compiling():
            return self
        if ACTIVE:
            enter_stage(ACTIVE[-1], id(self), self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _compiling():
            return
        if ACTIVE:
            leave_stage(ACTIVE[-1], id(self), time.monotonic_ns())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Make each call of a function a stage, also where it is `async` or a generator."""
        name = self.name
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def in_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
                with stage(name):
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", in_coroutine)
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def in_generator(*args: P.args, **kwargs: P.kwargs) -> Any:
                with stage(name):
                    return (yield from function(*args, **kwargs))

            return cast("Callable[P, R]", in_generator)

        @functools.wraps(function)
        def in_call(*args: P.args, **kwargs: P.kwargs) -> R:
            with stage(name):
                return function(*args, **kwargs)

        return in_call


def _count(value: object) -> int | None:
    """A count that the program gave, else None. A tensor is never asked: it may wait for a GPU."""
    if isinstance(value, bool) or value is None:
        return None
    if not isinstance(value, int):
        if type(value).__module__.partition(".")[0] != "numpy":
            return None
        value = operator.index(cast("SupportsIndex", value))
    return value if 0 <= value < 1 << 62 else None


@guarded("batches")
def _enter_batch(recorder: Recorder, owner: "batch") -> None:
    sizes = owner.sizes
    counted = None if sizes is None else [_count(size) for size in sizes]
    facts: dict[str, object] = {
        "valid": _count(owner.valid_tokens),
        "captured": _count(owner.captured_tokens),
        "sizes": None if counted is None or None in counted else counted,
        "label": None if owner.label is None else str(owner.label)[:512],
    }
    given = (owner.valid_tokens, owner.captured_tokens, owner.sizes)
    understood = (facts["valid"], facts["captured"], facts["sizes"])
    if any(g is not None and u is None for g, u in zip(given, understood, strict=True)):
        recorder.note("batch-facts")
    owner.open = recorder.open_batch(facts)


@guarded("batches")
def _leave_batch(recorder: Recorder, owner: "batch", now: int) -> None:
    if owner.open:
        recorder.close_batch(owner.open, now)
        owner.open = 0


class batch:  # noqa: N801 - reads as a statement: with graphtrace.batch(valid_tokens=197)
    """One step of the program; it owns every stage and launch inside it.

    Where a program marks none, each call of an outermost module is a batch. What is not given stays
    unknown. A batch inside a batch belongs to the outer one.

    Args:
        valid_tokens: tokens that carry data.
        captured_tokens: tokens computed, padding included.
        sizes: tokens of each sample.
        label: task or shape, in the program's own words.
    """

    __slots__ = ("captured_tokens", "label", "open", "sizes", "valid_tokens")

    def __init__(
        self,
        *,
        valid_tokens: int | None = None,
        captured_tokens: int | None = None,
        sizes: Sequence[int] | None = None,
        label: str | None = None,
    ) -> None:
        self.valid_tokens = valid_tokens
        self.captured_tokens = captured_tokens
        self.sizes = sizes
        self.label = label
        self.open = 0

    def __enter__(self) -> Self:
        if _compiling():
            return self
        if ACTIVE:
            _enter_batch(ACTIVE[-1], self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _compiling():
            return
        if ACTIVE:
            _leave_batch(ACTIVE[-1], self, time.monotonic_ns())


class record:  # noqa: N801 - reads as a statement: with graphtrace.record("run.gtrace")
    """Record the code inside, for programs that `graphtrace capture` cannot start.

    Under `graphtrace capture` it records nothing of its own: the command does already.

    Args:
        output: the recording to write, a folder named `NAME.gtrace`.
        depth: modules to this depth of the model are stages, as `--depth`.
        stages: modules of these names are, too, as `--stage`.
        force: replace a recording that exists.

    Raises:
        UsageError: on entering, a name that is no recording's or a depth below 0.
        OutputError: on entering, an output that exists or cannot be written.
    """

    def __init__(
        self,
        output: str,
        *,
        depth: int = 2,
        stages: Sequence[str] = (),
        force: bool = False,
    ) -> None:
        self._output = output
        self._depth = depth
        self._stages = tuple(stages)
        self._force = force
        self._folder: str | None = None
        self._process = 0

    def __enter__(self) -> Self:
        from graphtrace.capture import child, folder

        if active() is None:
            home = folder.create(self._output, self._depth, self._stages, force=self._force)
            self._folder, self._process = str(home), os.getpid()
            child.start(str(home / folder.RAW))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._folder is None:
            return
        from graphtrace.capture import child

        if os.getpid() == self._process:
            child.finish(self._folder)
        else:
            child.stop()
        self._folder = None
