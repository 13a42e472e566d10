# SPDX-License-Identifier: Apache-2.0
"""Exact shares of time: who works at each instant, and who ends each gap. Integers throughout.

At an instant at which k activities of a lane work, each gets 1/k of it. In integers: a stretch of
L ns with the same k activities gives each L // k, and the L % k that remain go 1 ns each to the
first of them in the order (begin, stream, ordinal). So the shares of a lane sum to the length of
the union of its activities, whatever the order of the rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphtrace.attribute.keys import Ints

__all__ = ["Block", "Shares", "blocks", "part_of"]

_BLOCK: Final = 1 << 17
"""Activities looked at together: their columns stay in a processor's cache."""
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


@dataclass(frozen=True, slots=True)
class Block:
    """Shares of the activities from one place in the order to another."""

    begin: int
    end: int
    shares: Shares


def part_of(rows: Ints | slice, begin: int, end: int) -> Ints | slice:
    """The rows from one place to another; a slice stands for all rows."""
    if isinstance(rows, slice):
        return slice(begin, end)
    part: Ints = rows[begin:end]
    return part


def blocks(
    rows: Ints | slice,
    begin: Ints,
    end: Ints,
    unit_end: Callable[[int, int], Ints],
    size: int = _BLOCK,
) -> Iterator[Block]:
    """Share the time of one lane among its activities, some of them at a time.

    A block ends where nothing works across its end, so that blocks know nothing of each other but
    when work and units ended before.

    Args:
        rows: the activities of the lane, in their fixed order.
        begin: ns, of all activities.
        end: ns, not before `begin`.
        unit_end: gives, from one place in `rows` to another, the end of the unit (replay, batch or
            range) of each, not before its `end`. A gap counts where a unit that began earlier ends
            after it.
        size: activities to look at together, at first.
    """
    count = len(begin) if isinstance(rows, slice) else len(rows)
    at, worked, until = 0, None, None
    while at < count:
        cut, start, stop = _cut(rows, begin, end, at, count, size)
        latest = np.maximum.accumulate(stop)
        before = np.r_[start[0] if worked is None else worked, latest[:-1]]
        units = np.maximum.accumulate(unit_end(at, cut))
        if until is not None:
            np.maximum(units, until, out=units)
        open_ = np.r_[start[0] - 1 if until is None else until, units[:-1]] >= start
        idle = np.where(open_, np.maximum(start - before, 0), 0)
        head = start >= before
        lone = head & np.r_[head[1:], True]
        busy = np.where(lone, stop - start, 0)
        alone = busy.copy()
        together = np.flatnonzero(~lone)
        if len(together):
            busy[together], alone[together] = _concurrent(start[together], stop[together])
        yield Block(at, cut, Shares(busy, alone, idle))
        worked = latest[-1] if worked is None else max(worked, latest[-1])
        until = units[-1]
        at = cut


def _cut(
    rows: Ints | slice, begin: Ints, end: Ints, at: int, count: int, size: int
) -> tuple[int, Ints, Ints]:
    """Where a block that starts at a place ends, and the times of its activities."""
    while True:
        stop = min(at + size, count)
        here = part_of(rows, at, stop)
        start, finish = begin[here], end[here]
        if stop == count:
            return stop, start, finish
        following = begin[part_of(rows, stop, stop + 1)]
        free = np.flatnonzero(np.r_[start[1:], following] >= np.maximum.accumulate(finish))
        if len(free):
            cut = int(free[-1]) + 1
            return at + cut, start[:cut], finish[:cut]
        size *= 2


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
