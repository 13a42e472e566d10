# SPDX-License-Identifier: Apache-2.0
"""Exact shares of time: who works at each instant, and who ends each gap. Integers throughout.

At an instant at which k activities of a lane work, each gets 1/k of it. In integers: a stretch of
L ns with the same k activities gives each L // k, and the L % k that remain go 1 ns each to the
first of them in the order (begin, stream, ordinal). So the shares of a lane sum to the length of
the union of its activities, whatever the order of the rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphtrace.attribute.keys import Ints, Lanes

__all__ = ["Shares", "share"]

_CELLS: Final = 1 << 22
"""Pairs of activity and stretch looked at together, which bounds the memory that is used."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What each activity gets, ns.

    Attributes:
        busy: its share of the time in which it works.
        alone: time in which it works and nothing else does.
        idle: time before it in which nothing works, inside a unit that has begun; it ends that gap.
    """

    busy: Ints
    alone: Ints
    idle: Ints


def share(
    lane: Ints, begin: Ints, end: Ints, stream: Ints, ordinal: Ints, unit_end: Ints, lanes: int
) -> Shares:
    """Share the time of each lane among its activities.

    Args:
        lane: 0 to `lanes` - 1; activities of different lanes do not meet.
        begin: ns.
        end: ns, not before `begin`.
        stream: stream of each, for the fixed order.
        ordinal: unique in its lane.
        unit_end: end of the unit (replay, batch or range) of each, not before its `end`. A gap
            counts where a unit that began earlier ends after it.
        lanes: how many lanes there are.
    """
    count = len(lane)
    if not count:
        nothing = np.zeros(0, dtype=np.int64)
        return Shares(nothing, nothing, nothing)
    axis = Lanes.of(lane, begin, unit_end, lanes)
    start = axis.place_inside(lane, begin)
    stop, until = axis.place_inside(lane, end), axis.place_inside(lane, unit_end)
    rows = None
    if not (start[1:] > start[:-1]).all():
        rows = np.lexsort((ordinal, stream, start))
        start, stop, until = start[rows], stop[rows], until[rows]
    # Lanes lie one after the other, so that running maxima do not reach into the next one.
    worked = np.maximum.accumulate(stop)
    until = np.maximum.accumulate(until)
    gap = np.zeros(count, dtype=np.int64)
    inside = until[:-1] >= start[1:]
    gap[1:] = np.where(inside, np.maximum(start[1:] - worked[:-1], 0), 0)

    head = np.r_[True, start[1:] >= worked[:-1]]
    lone = head & np.r_[head[1:], True]
    busy = np.where(lone, stop - start, 0)
    alone = busy.copy()
    together = np.flatnonzero(~lone)
    if len(together):
        busy[together], alone[together] = _concurrent(start[together], stop[together])
    if rows is None:
        return Shares(busy, alone, gap)
    result = Shares(np.empty_like(busy), np.empty_like(busy), np.empty_like(busy))
    result.busy[rows], result.alone[rows], result.idle[rows] = busy, alone, gap
    return result


def _concurrent(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Busy and alone time of activities in their fixed order, on an axis of disjoint lanes."""
    count = len(start)
    times = np.concatenate([start, stop])
    order = np.argsort(times, kind="stable")
    position = np.empty(2 * count, dtype=np.int64)
    position[order] = np.arange(2 * count)
    # An activity works in the stretches first..last-1 between two neighbouring borders.
    first, last = position[:count], np.maximum(position[count:], position[:count])
    working = np.cumsum(np.where(order < count, 1, -1))[:-1]
    length = np.diff(times[order])
    length[working <= 0] = 0
    k = np.maximum(working, 1)
    whole = np.r_[0, np.cumsum(length // k)]
    single = np.r_[0, np.cumsum(np.where(k == 1, length, 0))]
    rest = np.where(length > 0, length % k, 0)
    busy = whole[last] - whole[first] + _remainders(first, last, rest, k)
    return busy, single[last] - single[first]


def _remainders(first: Ints, last: Ints, rest: Ints, k: Ints) -> Ints:
    """How many remainders of 1 ns each activity gets."""
    got = np.zeros(len(first), dtype=np.int64)
    places = np.flatnonzero(rest)
    if not len(places):
        return got
    # Stretches without a remainder are left out from here on.
    low, high = np.searchsorted(places, first), np.searchsorted(places, last)
    rest = rest[places]
    cells = np.cumsum(k[places])
    cuts = np.searchsorted(cells, np.arange(_CELLS, int(cells[-1]) + _CELLS, _CELLS)) + 1
    cuts = np.unique(np.r_[0, np.minimum(cuts, len(places))])
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        a, b = np.maximum(low, begin), np.minimum(high, end)
        here = np.flatnonzero(b > a)
        sizes = (b - a)[here]
        offsets = np.cumsum(sizes) - sizes
        who = np.repeat(here, sizes)
        cell = np.arange(len(who)) - np.repeat(offsets - a[here], sizes)
        by_cell = np.argsort(cell, kind="stable")  # inside a stretch the fixed order stays
        who, cell = who[by_cell], cell[by_cell]
        heads = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
        rank = np.arange(len(cell)) - np.repeat(heads, np.diff(np.r_[heads, len(cell)]))
        got += np.bincount(who[rank < rest[cell]], minlength=len(got))
    return got
