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
    codes_in,
    order_of,
    pack,
    renumbered,
    rows_of,
    sum_by,
)
from graphtrace.attribute.sharing import share
from graphtrace.attribute.work import Work
from graphtrace.model.arrays import dictionary, make_table, numbers
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


def _lanes(work: Work, rows: Ints | slice) -> tuple[Ints, int]:
    keys, lane = codes_in(pack(work.process[rows], work.device[rows]))
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
    rows = rows_of(unit >= 0)
    lane, lanes = _lanes(work, rows)
    begin, end = work.begin[rows], work.end[rows]
    span, (first, last, span_lane) = _spans(lane, unit[rows], begin, end)
    shares = share(lane, begin, end, work.stream[rows], work.key[rows], last[span], lanes)
    wall, overlaps = _union(span_lane, first, last, lanes)
    device = np.zeros(lanes, dtype=np.int64)
    device[lane] = work.device[rows]
    short = shares.idle <= (launch_gap_ns if scope == "replay" else -1)
    key = pack(unit[rows], work.device[rows], stage[rows])
    head, (busy, alone, idle, kernels, launch) = sum_by(
        key,
        shares.busy,
        shares.alone,
        shares.idle,
        work.kernel[rows],
        np.where(short, shares.idle, 0),
    )
    if not isinstance(rows, slice):
        head = rows[head]
    own = np.zeros(len(first), dtype=np.int64)
    own[span] = unit[rows]
    return UnitTimes(
        scope=scope,
        unit=unit[head],
        device=work.device[head],
        stage=stage[head],
        busy_ns=busy,
        alone_ns=alone,
        idle_ns=idle,
        kernels=kernels,
        launch_ns=launch,
        wall_device=device,
        wall_ns=wall,
        units=len(np.unique(own)),
        overlapping=len(np.unique(own[overlaps])),
    )


def _spans(lane: Ints, unit: Ints, begin: Ints, end: Ints) -> tuple[Codes, tuple[Ints, Ints, Ints]]:
    """Span of each row, and (begin, end, lane) of the spans: the work of one unit in one lane."""
    if not len(lane):
        return lane, (lane, lane, lane)
    key = pack(lane, unit)
    order = order_of(key)
    ordered = key[order]
    new = np.r_[True, ordered[1:] != ordered[:-1]]
    heads = np.flatnonzero(new)
    span = np.empty(len(lane), dtype=np.int32)
    span[order] = np.cumsum(new, dtype=np.int32) - 1
    first = np.minimum.reduceat(begin[order], heads)
    last = np.maximum.reduceat(end[order], heads)
    return span, (first, last, lane[order[heads]])


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
