# SPDX-License-Identifier: Apache-2.0
"""Time of each stage in each batch of a recording without a device, from the host's clock.

A thread works for its innermost open stage; the rest of a batch is idle. Batches nested in batches
own their own time, so that nothing counts twice. Work of other threads is not in a batch's time.
Where there are stages and no batch the unit is the outermost stage as it was entered.
"""

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Bools, Ints, Lanes, pack, sum_by
from graphtrace.attribute.launches import Steps
from graphtrace.attribute.open_stages import FOREVER, OpenStages
from graphtrace.attribute.units import UnitTimes
from graphtrace.attribute.work import ints
from graphtrace.model.arrays import as_numpy, valid_of

__all__ = ["host_times"]


def host_times(opened: OpenStages, batches: pa.Table) -> UnitTimes | None:
    """Share the time of batches (else of outermost stages) among the stages inside.

    Args:
        opened: the stages that the host ran.
        batches: table `batches`.

    Returns:
        None where there is neither a batch nor a stage.
    """
    process, thread, begin, end = _stretches(opened, batches)
    if not len(begin):
        return None
    now = opened.at(process, thread, begin)
    if batches.num_rows:
        unit = Steps(batches).at(process, thread, begin)
    else:
        unit = opened.ordinals(now.root)
    rows = np.flatnonzero(unit >= 0)
    rows = rows[np.lexsort((begin[rows], unit[rows]))]
    unit, length = unit[rows], (end - begin)[rows]
    busy = (now.stage[rows] >= 0) | now.refused[rows]
    stage = _ended_by(unit, busy, now.stage[rows])
    head, (worked, idle) = sum_by(
        pack(unit, stage), np.where(busy, length, 0), np.where(busy, 0, length)
    )
    nothing = np.zeros(len(head), dtype=np.int64)
    return UnitTimes(
        scope="batch" if batches.num_rows else "range",
        unit=unit[head],
        device=nothing - 1,
        stage=stage[head],
        busy_ns=worked,
        alone_ns=worked,
        idle_ns=idle,
        kernels=nothing,
        launch_ns=nothing,
        wall_device=np.full(1, -1, dtype=np.int64),
        wall_ns=np.asarray([length.sum()], dtype=np.int64),
        units=batches.num_rows or len(np.unique(unit)),
        overlapping=_nested(batches),
    )


def _stretches(opened: OpenStages, batches: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
    """(process, thread, begin, end) of the stretches between neighbouring borders of a thread."""
    thread = batches.column("thread")
    # A batch that names no thread runs on the only thread of its process that has stages.
    owner = np.where(valid_of(thread), as_numpy(thread), _only_thread(opened, batches))
    closed = np.minimum(opened.end, _last_time(opened, batches))
    process = np.r_[opened.process, opened.process, np.tile(ints(batches, "process"), 2)]
    where = np.r_[opened.thread, opened.thread, owner, owner]
    time = np.r_[opened.begin, closed, ints(batches, "begin_ns"), ints(batches, "end_ns")]
    if not len(time):
        return process, where, time, time
    lanes, lane = np.unique(pack(process, where), return_inverse=True)
    place = Lanes.of(lane.astype(np.int64), time, time, len(lanes)).place(lane, time)
    _, first = np.unique(place, return_index=True)
    same = lane[first][1:] == lane[first][:-1]
    left, right = first[:-1][same], first[1:][same]
    return process[left], where[left], time[left], time[right]


def _last_time(opened: OpenStages, batches: pa.Table) -> int:
    """Last time of the recording: where a stage that was never left ends."""
    ends = opened.end[opened.end < FOREVER]
    times = (opened.begin, ends, ints(batches, "end_ns"))
    return max((int(t.max()) for t in times if len(t)), default=0)


def _only_thread(opened: OpenStages, batches: pa.Table) -> Ints:
    """The thread of each batch's process that has stages; -1 where there are several or none."""
    pairs = np.unique(np.stack([opened.process, opened.thread]), axis=1)
    process, counts = np.unique(pairs[0], return_counts=True)
    lone = {int(p): int(pairs[1][pairs[0] == p][0]) for p in process[counts == 1].tolist()}
    return np.asarray([lone.get(p, -1) for p in ints(batches, "process").tolist()], dtype=np.int64)


def _ended_by(unit: Ints, busy: Bools, stage: Ints) -> Ints:
    """Stage of each stretch: its own, and for an idle one that of the work that ends it."""
    count = len(unit)
    at = np.where(busy, np.arange(count), count)
    following = np.minimum.accumulate(at[::-1])[::-1]
    inside = np.minimum(following, count - 1)
    ends = (following < count) & (unit[inside] == unit)
    return np.where(ends, stage[inside], -1)


def _nested(batches: pa.Table) -> int:
    """How many batches lie in, or overlap, another one of their thread."""
    if not batches.num_rows:
        return 0
    thread = batches.column("thread")
    lane = pack(ints(batches, "process"), np.where(valid_of(thread), as_numpy(thread), -1))
    lanes, lane = np.unique(lane, return_inverse=True)
    begin, end = ints(batches, "begin_ns"), ints(batches, "end_ns")
    axis = Lanes.of(lane.astype(np.int64), begin, end, len(lanes))
    start, stop = axis.place(lane, begin), axis.place(lane, end)
    order = np.argsort(start, kind="stable")
    until = np.maximum.accumulate(stop[order])
    return int(np.count_nonzero(start[order][1:] < until[:-1]))
