# SPDX-License-Identifier: Apache-2.0
"""The recorder of one process: open stages by thread, definitions, batches. Standard library only.

It knows nothing of torch. Times are taken outside our own work: the last thing at a begin, the
first thing at an end, so that a stage's time does not hold what recording it cost.
"""

import threading
import time
from _thread import get_native_id
from typing import Any, Final

from graphtrace.capture import nvtx_ranges
from graphtrace.capture.guard import guarded
from graphtrace.capture.writer import Writer
from graphtrace.model import records

__all__ = ["ACTIVE", "Entry", "Recorder", "ThreadState", "active"]

MAX_STAGES: Final = 10_000
MAX_NAME: Final = 512

ACTIVE: "Final[list[Recorder]]" = []
"""The recorder of this process, or nothing: there is at most one."""


def active() -> "Recorder | None":
    """The recorder of this process."""
    return ACTIVE[-1] if ACTIVE else None


# Plain classes: `dataclasses` imports `inspect`, half of what starting in a small process costs.
class Entry:
    """An open stage, or an open outermost module, on one thread.

    Attributes:
        owner: identity of what will close it.
        stage: id of the innermost stage from here on; 0 for none.
        own: whether it is a stage; an outermost module is not.
        plan: names of the modules under the outermost one, where a module is active.
        qualname: qualified name of the enclosing module that is a stage; empty at the outermost.
        batch: id of the implicit batch that it opened; 0 for none.
        module: whether it is the call of a module.
        access: id of the access that was measured; 0 for none.
    """

    __slots__ = ("access", "batch", "module", "own", "owner", "plan", "qualname", "stage")

    def __init__(
        self, owner: int, stage: int, plan: Any, qualname: str, *, own: bool, module: bool
    ) -> None:
        self.owner = owner
        self.stage = stage
        self.plan = plan
        self.qualname = qualname
        self.own = own
        self.module = module
        self.batch = self.access = 0


class ThreadState:
    """What is open on one thread, and counts of what it did.

    Attributes:
        native: id of the thread, as the system and profilers know it.
        stack: open stages and modules, outermost first.
        batch: id of the open batch; 0 for none.
        implicit: whether that batch is a call of an outermost module.
        superseded: whether the program marked batches of its own inside the implicit one.
        borders: stage borders recorded.
        skipped: calls of modules that are no stage.
        refused: stages beyond the most that are kept.
    """

    __slots__ = (
        "batch",
        "borders",
        "implicit",
        "native",
        "refused",
        "skipped",
        "stack",
        "superseded",
    )

    def __init__(self, native: int) -> None:
        self.native = native
        self.stack: list[Entry] = []
        self.batch = self.borders = self.skipped = self.refused = 0
        self.implicit = self.superseded = False


class Recorder:
    """Records one process.

    Args:
        writer: where records go.
        depth: modules to this depth below the outermost become stages.
        patterns: so do modules whose qualified name matches one of these.
    """

    def __init__(self, writer: Writer, depth: int, patterns: tuple[str, ...]) -> None:
        self.depth = depth
        self.patterns = patterns
        self.accesses: dict[object, int] = {}
        self.states: list[ThreadState] = []
        self.explicit_open = 0
        self._emitter: nvtx_ranges.Emitter | None = None
        self._emitter_known = False
        self._lock = threading.RLock()
        self._noted: set[str] = set()
        self.use(writer)

    def use(self, writer: Writer) -> None:
        """Forget everything that is open and write to new files, as after a fork."""
        self.writer = writer
        self._lock = threading.RLock()
        self._local = threading.local()
        self._stages: dict[tuple[int, str], int] = {}
        self._last_stage = 0
        self._last_batch = 0
        self.accesses.clear()
        self.states.clear()
        self.explicit_open = 0
        self._noted.clear()

    def state(self) -> ThreadState:
        """What is open on the calling thread."""
        try:
            state: ThreadState = self._local.state
        except AttributeError:
            state = self._local.state = ThreadState(get_native_id())
            self.states.append(state)
        return state

    def note(self, topic: str, **fields: object) -> None:
        """Write a note once for each topic."""
        with self._lock:
            if topic in self._noted:
                return
            self._noted.add(topic)
        self.writer.line(type="note", topic=topic, **fields)

    def failed(self, family: str, why: str) -> None:
        """Note that a family of hooks was switched off, and let nothing half open stay behind."""
        self.writer.line(type="off", family=family, why=why)
        if family in ("NVTX ranges", "access patterns"):
            return
        for state in tuple(self.states):
            state.stack.clear()
            if state.implicit:
                state.batch, state.implicit = 0, False

    def mute(self) -> None:
        """Emit no NVTX range."""
        self._emitter, self._emitter_known = None, True

    def _stage(self, parent: int, name: str, origin: str) -> int:
        """Id of a stage; 0 once there are too many."""
        known = self._stages.get((parent, name))
        if known is not None:
            return known
        with self._lock:
            if self._last_stage >= MAX_STAGES:
                self.note("too-many-stages", limit=MAX_STAGES)
                return 0
            ident = self._stages.get((parent, name))
            if ident is None:
                self._last_stage = ident = self._last_stage + 1
                self.writer.line(
                    type="stage", id=ident, parent=parent, name=name[:MAX_NAME], origin=origin
                )
                self._stages[parent, name] = ident
            return ident

    @guarded("NVTX ranges")
    def _push_range(self, name: str) -> None:
        if not self._emitter_known:
            self._emitter_known = True
            self._emitter = nvtx_ranges.emitter()
            if self._emitter is not None:
                self.note("nvtx", via=self._emitter.via)
        if self._emitter is not None:
            self._emitter.push(name)

    def begin(
        self, owner: int, name: str, origin: str, plan: Any = None, qualname: str | None = None
    ) -> None:
        """Open a stage inside whatever is open on this thread."""
        state = self.state()
        top = state.stack[-1] if state.stack else None
        ident = self._stage(top.stage if top else 0, name, origin)
        if top is not None:
            plan = top.plan if plan is None else plan
            qualname = top.qualname if qualname is None else qualname
        module = origin == "module"
        entry = Entry(owner, ident, plan, qualname or "", own=True, module=module)
        if ident == 0:
            state.refused += 1
            entry.stage, entry.own = top.stage if top else 0, False
            state.stack.append(entry)
            return
        self._push_range(name)
        state.stack.append(entry)
        state.borders += 1
        self.writer.put(
            time.monotonic_ns(), state.native, ident, 0, records.STAGE_BEGIN, 0, state.batch
        )

    def end(self, owner: int, now: int, *, nested: bool) -> Entry | None:
        """Close what `owner` opened on this thread.

        Args:
            owner: as given when it was opened.
            now: when it ended.
            nested: whether whatever was opened later ends with it; if not, stages of the program
                stay open, as with tasks that take turns on one thread.

        Returns:
            What was closed; None where nothing was open.
        """
        state = self.state()
        stack = state.stack
        at = len(stack) - 1
        while at >= 0 and stack[at].owner != owner:
            at -= 1
        if at < 0:
            return None
        flags = 0
        if at < len(stack) - 1:
            # A module's call cannot outlive the block that made it: an interrupt left it open.
            if nested or all(entry.module for entry in stack[at + 1 :]):
                self._abandon(state, at + 1, now)
            else:
                flags = records.FLAG_INTERLEAVED
                self.note("interleaved")
        entry = stack.pop(at)
        if entry.own:
            self._close(state, entry, now, flags)
        return entry

    def _close(self, state: ThreadState, entry: Entry, now: int, flags: int) -> None:
        state.borders += 1
        self.writer.put(
            now, state.native, entry.stage, entry.access, records.STAGE_END, flags, state.batch
        )
        if self._emitter is not None:
            self._pop_range()

    @guarded("NVTX ranges")
    def _pop_range(self) -> None:
        if self._emitter is not None:
            self._emitter.pop()

    def _abandon(self, state: ThreadState, keep: int, now: int) -> None:
        """Close everything above the first `keep` entries: their own end was never seen."""
        while len(state.stack) > keep:
            entry = state.stack.pop()
            if entry.own:
                self._close(state, entry, now, records.FLAG_ABANDONED)
            if entry.batch:
                self.close_implicit(state, entry.batch, now)

    def abandon(self, keep: int, now: int) -> None:
        """Close all but the first `keep` entries of this thread."""
        self._abandon(self.state(), keep, now)

    def _next_batch(self) -> int:
        with self._lock:
            self._last_batch += 1
            return self._last_batch

    def open_implicit(self, state: ThreadState) -> int:
        """Open the batch that a call of an outermost module is; 0 where there is one already."""
        if state.batch or self.explicit_open:
            return 0
        ident = self._next_batch()
        state.batch, state.implicit, state.superseded = ident, True, False
        self.writer.put(
            time.monotonic_ns(),
            state.native,
            ident,
            0,
            records.BATCH_BEGIN,
            records.FLAG_IMPLICIT,
            ident,
        )
        return ident

    def close_implicit(self, state: ThreadState, ident: int, now: int) -> None:
        """Close an implicit batch."""
        flags = records.FLAG_IMPLICIT | (records.FLAG_SUPERSEDED if state.superseded else 0)
        self.writer.put(now, state.native, ident, 0, records.BATCH_END, flags, ident)
        state.batch, state.implicit, state.superseded = 0, False, False

    def open_batch(self, facts: dict[str, object]) -> int:
        """Open a batch that the program marks; 0 inside another one, which owns it then."""
        state = self.state()
        if state.batch and not state.implicit:
            self.note("nested-batch")
            return 0
        ident = self._next_batch()
        if any(value is not None for value in facts.values()):
            self.writer.line(type="batch", id=ident, **facts)
        if state.implicit:
            state.superseded = True
        state.batch, state.implicit = ident, False
        with self._lock:
            self.explicit_open += 1
        self.writer.put(time.monotonic_ns(), state.native, ident, 0, records.BATCH_BEGIN, 0, ident)
        return ident

    def close_batch(self, ident: int, now: int) -> None:
        """Close a batch that the program marked."""
        state = self.state()
        self.writer.put(now, state.native, ident, 0, records.BATCH_END, 0, ident)
        if state.batch == ident:
            state.batch = 0
        with self._lock:
            self.explicit_open = max(0, self.explicit_open - 1)
