# SPDX-License-Identifier: Apache-2.0
"""Lineage of graph nodes: from the id that a replay shows to the event that created the node.

An instantiated graph has new node ids; the profiler records what each was made from, in one or
several steps, back to a creation at capture. Ids are used again after a graph is destroyed, so an
id is read as of the time it is used: a launch or a cloning, and never an event after it. Anything
that does not lead to one creation is refused: a chain that leaves the recording, an id that was
made from two different nodes, and a cycle. Ids mean something within their process only.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from graphtrace.attribute import reasons
from graphtrace.attribute.keys import Bools, Codes, Ints, Lookup, pack, where_valid
from graphtrace.model.arrays import as_numpy, few, valid_of

__all__ = ["Lineage", "Roots"]


@dataclass(frozen=True, slots=True)
class Roots:
    """Where uses of node ids lead. Uses are many and answers few, so answers are held once.

    Attributes:
        event: of each answer the row of `graph_events` that created the node, -1 where none did.
        reason: of each answer the code of `reasons` where `event` is -1.
        answer: of each use its answer; -1, the last answer, where there is no node id.
        number: of each use the number of its id within its process, -1 where there is none.
        ids: how many ids there are.
    """

    event: Ints
    reason: Ints
    answer: Codes
    number: Codes
    ids: int


@dataclass(frozen=True, slots=True)
class _Found:
    """Position of the event that an id stands for at a time.

    Where none may be used, `reason` says why; `position` then still leads on, so that a cycle is
    told from a chain that leaves the recording. It is -1 where the id is in no event at all.
    """

    position: Ints
    reason: Ints


@dataclass(frozen=True, slots=True)
class Lineage:
    """Events sorted by process, node and time."""

    process: Ints
    node: Ints
    origin: Ints
    time: Ints
    thread: Ints
    rows: Ints
    two: Bools
    heads: Ints

    @classmethod
    def of(cls, events: pa.Table) -> Self:
        """Index the table `graph_events`."""
        process = as_numpy(events.column("process")).astype(np.int64)
        node = as_numpy(events.column("node_native_id"))
        origin = where_valid(
            as_numpy(events.column("origin_native_id")), valid_of(events.column("origin_native_id"))
        )
        time, thread = as_numpy(events.column("time_ns")), as_numpy(events.column("thread"))
        rows = np.lexsort((thread, origin, time, node, process))
        process, node, origin = process[rows], node[rows], origin[rows]
        time, thread = time[rows], thread[rows]
        new = np.ones(len(rows), dtype=np.bool_)
        new[1:] = (process[1:] != process[:-1]) | (node[1:] != node[:-1])
        heads = np.flatnonzero(new)
        differs = np.zeros(len(rows), dtype=np.bool_)
        # An id created twice is one that was used again; created twice at once it is unclear.
        together = (time[1:] == time[:-1]) & (thread[1:] != thread[:-1])
        differs[1:] = ~new[1:] & ((origin[1:] != origin[:-1]) | together)
        seen = np.cumsum(differs)
        sizes = np.diff(np.r_[heads, len(rows)])
        two = seen > np.repeat(seen[heads], sizes) if len(rows) else differs
        return cls(process, node, origin, time, thread, rows, two, np.repeat(heads, sizes))

    def _find(self, process: Ints, node: Ints, time: Ints) -> _Found:
        count = len(self.rows)
        if not count:
            nothing = np.full(len(node), -1, dtype=np.int64)
            return _Found(nothing, nothing)
        key = pack(np.r_[self.process, process], np.r_[self.node, node])
        head = Lookup.of(key[:count]).first(key[count:])
        # Rank of each time among those of the events, so that (id, time) is one integer.
        times = np.unique(self.time)
        wide = len(times) + 1
        _, dense = np.unique(self.heads, return_inverse=True)
        own = dense * wide + np.searchsorted(times, self.time, side="right")
        known = head >= 0
        wanted = np.where(known, dense[np.maximum(head, 0)], 0) * wide
        wanted += np.searchsorted(times, time, side="right")
        last = np.searchsorted(own, wanted, side="right") - 1
        early = known & (last < head)
        position = np.where(known, np.maximum(last, head), -1)
        missing = ~known | early
        two = known & ~early & self.two[np.maximum(position, 0)]
        reason = np.where(missing, reasons.CREATION_MISSING, np.where(two, reasons.TWO_PARENTS, -1))
        return _Found(position, reason.astype(np.int64))

    def _roots(self) -> tuple[Ints, Ints]:
        """Position of the creation of each event, and the reason where there is none."""
        count = len(self.rows)
        creation = self.origin < 0
        clone = np.flatnonzero(~creation)
        above = self._find(self.process[clone], self.origin[clone], self.time[clone])
        pointer = np.arange(count + 1)  # the last one stands for "left the recording"
        pointer[clone] = np.where(above.position >= 0, above.position, count)
        reason = np.full(count + 1, -1, dtype=np.int64)
        reason[clone] = above.reason
        # Each pass doubles the distance that has been followed; the first reason on the way stays.
        for _ in range(count.bit_length() + 1):
            reason = np.where(reason >= 0, reason, reason[pointer])
            pointer = pointer[pointer]
        ended = np.r_[creation, True][pointer]
        return pointer[:count], np.where(ended, reason, reasons.CYCLE)[:count]

    def roots(self, process: Ints, node: Ints, time: Ints, known: Bools) -> Roots:
        """The creation of each node as of a time.

        Of the many uses of one id the first and the last are looked up. Where both stand for one
        event so do those between: with time, an id only ever moves on to a later event.

        Args:
            process: process key of each use.
            node: node id of each.
            time: when the id was used, ns.
            known: whether there is an id at all.
        """
        rows = None if bool(known.all()) else np.flatnonzero(known)
        if rows is not None:
            process, node, time = process[rows], node[rows], time[rows]
        nothing = np.full(1, -1, dtype=np.int64)
        if not len(node):
            nobody = np.broadcast_to(np.int32(-1), len(known))
            return Roots(nothing, nothing, nobody, nobody, 0)
        words, number = few(pack(process, node))
        found, moved = self._span(process, node, time, number, len(words))
        event, reason = self._led(found)
        answer = number
        if moved.any():
            again = np.flatnonzero(moved[number])
            each = self._led(self._find(process[again], node[again], time[again]))
            answer = number.copy()
            answer[again] = len(words) + np.arange(len(again), dtype=np.int32)
            event, reason = np.r_[event, each[0]], np.r_[reason, each[1]]
        return Roots(
            np.r_[event, nothing],
            np.r_[reason, nothing],
            _spread(answer, rows, len(known)),
            _spread(number, rows, len(known)),
            len(words),
        )

    def _span(
        self, process: Ints, node: Ints, time: Ints, number: Codes, ids: int
    ) -> tuple[_Found, Bools]:
        """What each id stands for at its first use, and whether that is another at its last."""
        at = number.astype(np.intp)  # the only index that `ufunc.at` is quick with
        some = np.zeros(ids, dtype=np.int64)
        some[at] = np.arange(len(node))
        first = np.full(ids, np.iinfo(np.int64).max)
        last = np.full(ids, np.iinfo(np.int64).min)
        np.minimum.at(first, at, time)
        np.maximum.at(last, at, time)
        early = self._find(process[some], node[some], first)
        late = self._find(process[some], node[some], last)
        return early, (early.position != late.position) | (early.reason != late.reason)

    def _led(self, found: _Found) -> tuple[Ints, Ints]:
        """Event and reason that what was found leads to."""
        if not len(self.rows):
            missing = np.full(len(found.position), reasons.CREATION_MISSING, dtype=np.int64)
            return np.full(len(missing), -1, dtype=np.int64), missing
        pointer, ends = self._roots()
        at = np.maximum(found.position, 0)
        chain = ends[at]
        reason = np.where((found.reason >= 0) & (chain != reasons.CYCLE), found.reason, chain)
        reason = np.where(found.position < 0, reasons.CREATION_MISSING, reason)
        event = np.where(reason < 0, self.rows[np.minimum(pointer[at], len(self.rows) - 1)], -1)
        return event, reason


def _spread(codes: Codes, rows: Ints | None, count: int) -> Codes:
    """The codes of some rows as those of all, -1 for the others."""
    if rows is None:
        return codes
    spread = np.full(count, -1, dtype=np.int32)
    spread[rows] = codes
    return spread
