# SPDX-License-Identifier: Apache-2.0
"""Time of each stage in each unit (a replay, else a batch, else a top-level range) on a device.

The wall of a unit runs from the first begin to the last end of its work. On one device and of one
process units may overlap (replays on two streams): an instant is then shared among the work of all
of them and counted once, so that busy and idle sum to the length of the union of the units and not
to the sum of their walls. Two processes on one device are two budgets: each sees its own wall.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import (
    Bools,
    Codes,
    Ints,
    Lanes,
    order_of,
    pack,
    renumbered,
    rows_of,
    sum_by,
)
from graphtrace.attribute.sharing import blocks, part_of
from graphtrace.attribute.work import Work
from graphtrace.model.arrays import dictionary, few, make_table, numbers
from graphtrace.model.vocabulary import BudgetScope

__all__ = ["LAUNCH_GAP_NS", "UnitTimes", "device_times", "eager_busy", "times_table"]

LAUNCH_GAP_NS: Final = 1_000
"""Longest gap inside a replay that the scheduling of a node explains by itself, ns.

Source: CAPTURE 4, occupancy_launch: the latency of a node inside a graph is a scheduling gap of
about 1 µs.
"""


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """Rows of `stage_times` as columns, and what the budget needs beside them.

    Attributes:
        unit: key of the replay or batch, or ordinal of the range.
        device: device key, -1 for the host.
        stage: stage key, -1 for the unattributed rest.
        launch_ns: the part of `idle_ns` that launch latency explains; the rest is unexplained.
        wall_device: device of each entry of `wall_ns`.
        wall_ns: length of the union of the units, an entry a device.
        units: how many units there are.
        overlapping: how many of them overlap another one on their device.
    """

    scope: BudgetScope
    unit: Ints
    device: Ints
    stage: Ints
    busy_ns: Ints
    alone_ns: Ints
    idle_ns: Ints
    kernels: Ints
    launch_ns: Ints
    wall_device: Ints
    wall_ns: Ints
    units: int
    overlapping: int


def _lanes(work: Work, rows: Ints | slice = slice(None)) -> tuple[Codes, int]:
    """Lane of each row, of one device and one process each, and how many lanes there are."""
    process, device = work.process[rows], work.device[rows]
    if process.strides == device.strides == (0,) and len(process):
        return np.broadcast_to(np.int32(0), len(process)), 1
    keys, lane = few(pack(process, device))
    return lane, len(keys)


def device_times(
    scope: BudgetScope, work: Work, stage: Ints, unit: Ints, launch_gap_ns: int = LAUNCH_GAP_NS
) -> UnitTimes:
    """Share the time of all units among their stages.

    Idle time by kind: a gap inside a replay of at most `launch_gap_ns` is launch latency. A longer
    one waits for something that a list of activities does not show (edges, host nodes and work of
    other processes are not in it), so it is unexplained; so is any gap outside of replays, which
    the host may have caused.

    Args:
        scope: what a unit is.
        work: the activities.
        stage: stage of each, -1 for none.
        unit: unit of each, -1 for none.
        launch_gap_ns: longest gap that counts as launch latency, ns.
    """
    lane, _ = _lanes(work)
    spans = _Spans.of(lane, unit, work.begin, work.end)
    used = np.unique(spans.lane)
    place = np.searchsorted(used, spans.lane)
    wall, overlaps = _union(place, spans.begin, spans.end, len(used))
    limit = launch_gap_ns if scope == "replay" else -1
    total = _all_parts(work, stage, unit, lane, spans, limit)
    device = np.zeros(len(used), dtype=np.int64)
    device[place] = work.device[spans.first]
    head = total.row
    key = pack(unit[head], work.device[head], stage[head])
    first, (busy, alone, idle, kernels, launch) = sum_by(key, *_columns(total)[1:])
    head = head[first]
    return UnitTimes(
        scope=scope,
        unit=unit[head].astype(np.int64),
        device=work.device[head].astype(np.int64),
        stage=stage[head].astype(np.int64),
        busy_ns=busy,
        alone_ns=alone,
        idle_ns=idle,
        kernels=kernels,
        launch_ns=launch,
        wall_device=device,
        wall_ns=wall,
        units=len(np.unique(spans.unit)),
        overlapping=len(np.unique(spans.unit[overlaps])),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Times by unit and stage of some of the work; `row` is one activity of each."""

    row: Ints
    busy: Ints
    alone: Ints
    idle: Ints
    kernels: Ints
    launch: Ints

    @classmethod
    def none(cls) -> "_Part":
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, nothing)


def _columns(part: _Part) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    return part.row, part.busy, part.alone, part.idle, part.kernels, part.launch


def _all_parts(
    work: Work, stage: Codes, unit: Ints, lane: Codes, spans: "_Spans", limit: int
) -> _Part:
    """Sums of the work of all lanes; what lies in two blocks has two rows."""
    in_order = bool((work.begin[1:] > work.begin[:-1]).all())
    parts = [_Part.none()]
    for number in np.unique(spans.lane).tolist():
        has = unit >= 0
        mine = rows_of(has if lane.strides == (0,) else has & (lane == number))
        if not in_order:
            mine = _ordered(work, np.arange(work.count)[mine])
        parts += _lane_parts(work, stage, unit, mine, spans, limit)
    return _Part(*(np.concatenate(columns) for columns in zip(*map(_columns, parts), strict=True)))


def _ordered(work: Work, rows: Ints) -> Ints:
    """Rows of one lane in the order (begin, stream, ordinal)."""
    ordered: Ints = rows[np.lexsort((work.key[rows], work.stream[rows], work.begin[rows]))]
    return ordered


def _lane_parts(
    work: Work, stage: Codes, unit: Ints, rows: Ints | slice, spans: "_Spans", limit: int
) -> list[_Part]:
    """Sums of the work of one lane, a block at a time.

    Args:
        work: the activities.
        stage: of each activity.
        unit: of each activity.
        rows: the activities of the lane that have a unit, in their fixed order.
        spans: those of the activities.
        limit: longest gap that is launch latency, ns.
    """

    def unit_end(at: int, cut: int) -> Ints:
        return spans.end[spans.of_row[part_of(rows, at, cut)]]

    parts = []
    for block in blocks(rows, work.begin, work.end, unit_end):
        here, shares = part_of(rows, block.begin, block.end), block.shares
        launch = np.where(shares.idle <= limit, shares.idle, 0)
        first, sums = sum_by(
            pack(unit[here], stage[here]),
            shares.busy,
            shares.alone,
            shares.idle,
            work.kernel[here],
            launch,
        )
        at = first + block.begin
        parts.append(_Part(at if isinstance(rows, slice) else rows[at], *sums))
    return parts


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans: the work of one unit in one lane.

    Attributes:
        of_row: span of each activity, -1 where it has no unit.
        first: an activity of each span.
        begin, end: of each span, ns.
        lane, unit: of each span.
    """

    of_row: Codes
    first: Ints
    begin: Ints
    end: Ints
    lane: Ints
    unit: Ints

    @classmethod
    def of(cls, lane: Ints, unit: Ints, begin: Ints, end: Ints) -> "_Spans":
        """Spans of the work. Neighbours of one span are one stretch, of which there are few."""
        nothing = np.zeros(0, dtype=np.int64)
        if not len(lane):
            return cls(np.zeros(0, dtype=np.int32), nothing, nothing, nothing, nothing, nothing)
        new = np.ones(len(lane), dtype=np.bool_)
        new[1:] = unit[1:] != unit[:-1]
        if lane.strides != (0,):
            new[1:] |= lane[1:] != lane[:-1]
        heads = np.flatnonzero(new)
        first, last = np.minimum.reduceat(begin, heads), np.maximum.reduceat(end, heads)
        number = np.full(len(heads), -1, dtype=np.int32)
        mine = np.flatnonzero(unit[heads] >= 0)
        key = pack(lane[heads[mine]], unit[heads[mine]])
        order = order_of(key)
        ordered = key[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(mine) else nothing
        sizes = np.diff(np.r_[starts, len(order)])
        order = mine[order]
        number[order] = np.repeat(np.arange(len(starts), dtype=np.int32), sizes)
        row = heads[order[starts]]
        return cls(
            of_row=np.repeat(number, np.diff(np.r_[heads, len(lane)])),
            first=row,
            begin=np.minimum.reduceat(first[order], starts) if len(starts) else nothing,
            end=np.maximum.reduceat(last[order], starts) if len(starts) else nothing,
            lane=lane[row].astype(np.int64),
            unit=unit[row].astype(np.int64),
        )


def _union(lane: Ints, begin: Ints, end: Ints, lanes: int) -> tuple[Ints, Bools]:
    """Length of the union of the spans of each lane, and which spans overlap another one."""
    length = np.zeros(lanes, dtype=np.int64)
    overlaps = np.zeros(len(lane), dtype=np.bool_)
    if not len(lane):
        return length, overlaps
    axis = Lanes.of(lane, begin, end, lanes)
    start = axis.place_inside(lane, begin)
    order = np.argsort(start, kind="stable")
    start, stop, where = start[order], axis.place_inside(lane, end)[order], lane[order]
    until = np.maximum.accumulate(stop)
    before = np.r_[start[0], until[:-1]]
    np.add.at(length, where, np.maximum(stop - np.maximum(start, before), 0))
    late = np.r_[False, start[1:] < until[:-1]]
    # The one that is overlapped: its end lies behind the begin of the next one.
    early = np.r_[start[1:] < stop[:-1], False]
    overlaps[order] = late | early
    return length, overlaps


def eager_busy(work: Work, unit: Ints) -> tuple[int, int]:
    """Kernels outside of all units, and the time in which such work kept a device busy, ns."""
    rows = np.flatnonzero((unit < 0) & ~work.mark)
    lane, lanes = _lanes(work, rows)
    length, _ = _union(lane, work.begin[rows], work.end[rows], lanes)
    return int(np.count_nonzero(work.kernel[rows])), int(length.sum())


def times_table(times: UnitTimes, final: Ints) -> pa.Table:
    """The table `stage_times`, ordered by unit, device and path.

    Args:
        times: the rows.
        final: final stage key by the key in `times`.
    """
    stage = renumbered(times.stage, final)
    order = np.lexsort((stage, times.device, times.unit))
    stage, device = stage[order], times.device[order]
    return make_table(
        "stage_times",
        len(order),
        {
            "scope": dictionary(np.zeros(len(order)), [times.scope]),
            "unit": times.unit[order],
            "device": numbers(device, pa.int32(), device >= 0),
            "stage": numbers(stage, pa.int32(), stage >= 0),
            "busy_ns": times.busy_ns[order],
            "alone_ns": times.alone_ns[order],
            "idle_ns": times.idle_ns[order],
            "kernels": times.kernels[order],
        },
    )
