# SPDX-License-Identifier: Apache-2.0
"""Which ranges are open at an instant: push/pop ranges of one lane as a stack.

A lane is a (process, thread, domain). Intervals are half open, and at one instant pops come first,
then pushes, then queries. Of ranges that begin together the longer one is the outer one.

The sweep sorts the borders of all lanes once. The depth behind each border is a running sum, and
the range at depth d of a stack is the last one that was pushed to depth d: a binary search. A
range that starts inside an earlier one and outlives it *crosses* it. Which of the two a stack would
hold is not known then, so nothing is looked up while a crossing range is open; everywhere else
the answer is exact, because no range that is open there began inside one that ended before it did.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from graphtrace.attribute.keys import Bools, Ints, Lanes

__all__ = ["Nest", "crossing"]


def crossing(begin: Ints, end: Ints) -> Bools:
    """Whether an earlier range ends inside each range, having begun before it.

    Args:
        begin: begin of each range on an axis where lanes do not meet.
        end: end of each, after its begin.
    """
    by_end = np.argsort(end, kind="stable")
    ends, smallest = end[by_end], begin[by_end]
    first = np.searchsorted(ends, begin, side="right")
    last = np.searchsorted(ends, end, side="left")
    length = last - first
    found = np.zeros(len(begin), dtype=np.bool_)
    # Minimum of `begin` over the ranges that end inside: a sparse table, one level at a time.
    level = 0
    while (1 << level) <= int(length.max(initial=0)):
        step = 1 << level
        now = np.flatnonzero((length >= step) & (length < 2 * step))
        low = np.minimum(smallest[first[now]], smallest[last[now] - step])
        found[now] = low < begin[now]
        smallest = np.minimum(smallest[:-step], smallest[step:])
        level += 1
    return found


@dataclass(frozen=True, slots=True)
class Nest:
    """Stacks of all lanes. Rows are the ranges as given.

    Attributes:
        parent: row of the range that encloses each, -1 for none; decides nothing where `refused`.
        depth: how many ranges are open from its push on, itself included; 0 for an empty range,
            which is never open.
        crosses: whether it crosses an earlier range of its lane.
        refused: whether it crosses, or was pushed while a crossing range was open.
    """

    parent: Ints
    depth: Ints
    crosses: Bools
    refused: Bools
    _lanes: Lanes
    _borders: Ints
    _depths: Ints
    _crossing: Ints
    _pushes: Ints
    _pushed: Ints

    @classmethod
    def of(cls, lane: Ints, begin: Ints, end: Ints, order: Ints, lanes: int) -> Self:
        """Build the stacks.

        Args:
            lane: lane of each range, 0 to `lanes` - 1.
            begin: ns.
            end: ns, not before `begin`; the largest int64 where the range never ends.
            order: outer before inner among ranges with equal begin: a rank, unique in a lane.
            lanes: how many lanes there are.
        """
        rows = len(lane)
        forever = end == np.iinfo(np.int64).max
        axis = Lanes.of(lane, begin, np.where(forever, begin, end), lanes)
        start = axis.place(lane, begin)
        # Beyond every place that a query of the lane can have.
        stop = np.where(forever, axis.base[lane] + axis.high[lane] - axis.low[lane] + 4, 0)
        stop = np.where(forever, stop, axis.place(lane, end))
        live = np.flatnonzero(stop > start)
        live = live[np.lexsort((order[live], start[live]))]
        start, stop, count = start[live], stop[live], len(live)
        crosses = crossing(start, stop)

        times = np.concatenate([np.sort(stop), start])
        ends = np.argsort(stop, kind="stable")
        sorting = np.argsort(times, kind="stable")  # pops lie first, and stay first at a tie
        push = sorting >= count
        depths = np.cumsum(np.where(push, 1, -1))
        flags = np.concatenate([-crosses[ends].astype(np.int64), crosses.astype(np.int64)])
        open_crossing = np.cumsum(flags[sorting])
        at = np.flatnonzero(push)  # the i-th push is the i-th of `live`

        key = depths[at] * (2 * count + 1) + at
        by_depth = np.argsort(key, kind="stable")
        parent = np.full(rows, -1, dtype=np.int64)
        depth = np.zeros(rows, dtype=np.int64)
        refused = np.zeros(rows, dtype=np.bool_)
        all_crosses = np.zeros(rows, dtype=np.bool_)
        nest = cls(
            parent,
            depth,
            all_crosses,
            refused,
            axis,
            times[sorting],
            depths,
            open_crossing,
            key[by_depth],
            live[by_depth],
        )
        depth[live] = depths[at]
        all_crosses[live] = crosses
        refused[live] = open_crossing[at] > 0
        parent[live] = nest._at_depth(depths[at] - 1, at)
        return nest

    def _at_depth(self, depth: Ints, position: Ints) -> Ints:
        """Row that was last pushed to a depth before a position of the border list, or -1."""
        if not len(self._pushes):
            return np.full(len(depth), -1, dtype=np.int64)
        wide = len(self._borders) + 1
        at = np.maximum(np.searchsorted(self._pushes, depth * wide + position) - 1, 0)
        hit = (depth > 0) & (self._pushes[at] // wide == depth)
        return np.where(hit, self._pushed[at], -1)

    def query(self, lane: Ints, time: Ints) -> tuple[Ints, Bools]:
        """Innermost open range of each query, -1 for none, and whether the answer is refused.

        Args:
            lane: lane of each query; -1 is a lane without ranges.
            time: ns.
        """
        known = lane >= 0
        if not len(self._borders):
            return np.full(len(lane), -1, dtype=np.int64), np.zeros(len(lane), dtype=np.bool_)
        place = self._lanes.place(np.maximum(lane, 0), time)
        at = np.searchsorted(self._borders, place, side="right")
        before = np.maximum(at - 1, 0)
        some = known & (at > 0)
        depth = np.where(some, self._depths[before], 0)
        refused = some & (self._crossing[before] > 0)
        inner = self._at_depth(depth, at)
        inner[refused] = -1
        return inner, refused
