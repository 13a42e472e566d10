# SPDX-License-Identifier: Apache-2.0
"""The timeline of the slowest unit: device work by stream, or host stages by depth.

A page draws at most `LIMIT` bars. Where a unit has more, each lane is cut into equal slices and a
slice shows the stage that was busy in it longest, with the time it was; the view says so.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.model.arrays import as_numpy, codes_of, valid_of
from graphtrace.model.trace import Trace
from graphtrace.views.budget import UNATTRIBUTED
from graphtrace.views.names import visible
from graphtrace.views.numbers import duration, plural

__all__ = ["LIMIT", "Bar", "TimelineView", "timeline_view"]

LIMIT: Final = 1500
"""Bars that a page draws: more make plotly's SVG slow (DESIGN 7)."""
_LANES: Final = 40

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: times in ns from the start of the unit.

    `busy_ns` is the length of one activity, or in a binned view the busy time of `stage` within
    the slice. `name` is the kernel, or the number of activities behind the slice.
    """

    lane: int
    begin_ns: int
    end_ns: int
    stage: str
    name: str
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TimelineView:
    """Bars of one unit. `stages` are in order of busy time, the longest first."""

    title: str
    wall_ns: int
    lanes: tuple[str, ...]
    stages: tuple[str, ...]
    bars: tuple[Bar, ...]
    binned: bool
    note: str


@dataclass(frozen=True, slots=True)
class _Events:
    """Work of one unit as columns: lane ordinal, begin, end, stage ordinal and name ordinal."""

    lane: Ints
    begin: Ints
    end: Ints
    stage: Ints
    name: Ints
    lanes: list[str]
    stages: list[str]
    names: list[str]

    def take(self, rows: npt.NDArray[Any]) -> "_Events":
        return _Events(
            self.lane[rows],
            self.begin[rows],
            self.end[rows],
            self.stage[rows],
            self.name[rows],
            self.lanes,
            self.stages,
            self.names,
        )


def _stage_paths(trace: Trace) -> tuple[Ints, list[str]]:
    table = trace.tables.get("stages")
    paths = [visible(path) for path in table.column("path").to_pylist()]
    return as_numpy(table.column("stage")).astype(np.int64), paths


def _stage_ordinals(trace: Trace, column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Stage of each row as an ordinal into the names that come with it; the last is no stage."""
    keys, paths = _stage_paths(trace)
    order = np.argsort(keys, kind="stable")
    values = as_numpy(column).astype(np.int64)
    ordinal = np.full(len(values), len(paths), dtype=np.int64)
    if len(keys):
        place = np.minimum(np.searchsorted(keys[order], values), len(keys) - 1)
        found = valid_of(column) & (keys[order][place] == values)
        ordinal[found] = order[place[found]]
    return ordinal, [*paths, UNATTRIBUTED]


def _slowest(table: pa.Table) -> int | None:
    """Row with the longest wall, the first of equals; None in an empty table."""
    if not table.num_rows:
        return None
    walls = as_numpy(table.column("end_ns")) - as_numpy(table.column("begin_ns"))
    return int(np.argmax(walls))


def _cell(table: pa.Table, column: str, row: int) -> int:
    return int(as_numpy(table.column(column))[row])


def _device_events(trace: Trace, rows: npt.NDArray[np.bool_]) -> _Events:
    """Device work of the chosen activities: a lane a device and stream."""
    picked = np.flatnonzero(rows)
    table = trace.tables.get("activities")
    column = {
        name: as_numpy(table.column(name))[picked].astype(np.int64)
        for name in ("device", "stream", "begin_ns", "end_ns")
    }
    pairs = np.stack([column["device"], column["stream"]], axis=1)
    unique, lane = np.unique(pairs, axis=0, return_inverse=True)
    several = len(np.unique(unique[:, 0])) > 1
    lanes = [f"device {d}, stream {s}" if several else f"stream {s}" for d, s in unique.tolist()]
    stage, stages = _stage_ordinals(trace, table.column("stage"))
    codes, words = codes_of(table.column("name"))
    kind_codes, kinds = codes_of(table.column("kind"))
    # An activity without a name is called by its kind.
    name = np.where(codes[picked] >= 0, codes[picked], len(words) + kind_codes[picked])
    names = [visible(word) for word in (*words, *kinds)]
    return _Events(
        lane.reshape(-1).astype(np.int64),
        column["begin_ns"],
        column["end_ns"],
        stage[picked],
        name.astype(np.int64),
        lanes,
        stages,
        names,
    )


def _depths(begin: Ints, end: Ints) -> Ints:
    """Nesting depth of ranges of one thread: how many are open where each begins."""
    order = np.lexsort((-end, begin))
    closed = np.searchsorted(np.sort(end), begin[order], side="right")
    depth = np.empty(len(begin), dtype=np.int64)
    depth[order] = np.maximum(np.arange(len(begin)) - closed, 0)
    return depth


def _host_events(trace: Trace, process: int | None, begin: int, end: int) -> _Events:
    """Stages that the host ran within the window: a lane a thread and depth."""
    table = trace.tables.get("ranges")
    starts = as_numpy(table.column("begin_ns"))
    ends = as_numpy(table.column("end_ns"))
    rows = valid_of(table.column("stage")) & valid_of(table.column("end_ns"))
    rows &= (starts >= begin) & (ends <= end)
    if process is not None:
        rows &= as_numpy(table.column("process")) == process
    picked = np.flatnonzero(rows)
    thread = as_numpy(table.column("thread"))[picked].astype(np.int64)
    starts, ends = starts[picked].astype(np.int64), ends[picked].astype(np.int64)
    depth = np.zeros(len(picked), dtype=np.int64)
    threads = np.unique(thread)
    for one in threads:
        mine = thread == one
        depth[mine] = _depths(starts[mine], ends[mine])
    unique, lane = np.unique(np.stack([thread, depth], axis=1), axis=0, return_inverse=True)
    many = len(threads) > 1
    lanes = [f"thread {t}, depth {d + 1}" if many else f"depth {d + 1}" for t, d in unique.tolist()]
    stage, stages = _stage_ordinals(trace, table.column("stage"))
    return _Events(
        lane.reshape(-1).astype(np.int64),
        starts,
        ends,
        stage[picked],
        stage[picked],
        lanes,
        stages,
        stages,
    )


def _covered(begin: Ints, end: Ints, edges: Ints) -> Ints:
    """Busy ns before each edge, summed over the intervals, by prefix sums over sorted ends."""
    total = np.zeros(len(edges), dtype=np.int64)
    for times, sign in ((np.sort(begin), 1), (np.sort(end), -1)):
        sums = np.concatenate([[0], np.cumsum(times)])
        before = np.searchsorted(times, edges, side="left")
        total += sign * (edges * before - sums[before])
    return total


def _binned_lane(events: _Events, lane: int, edges: Ints) -> list[Bar]:
    mine = events.take(np.flatnonzero(events.lane == lane))
    stages = np.unique(mine.stage)
    busy = np.stack(
        [
            np.diff(_covered(mine.begin[mine.stage == s], mine.end[mine.stage == s], edges))
            for s in stages
        ]
    )
    top = np.argmax(busy, axis=0)
    begun = np.searchsorted(edges, mine.begin, side="right") - 1
    starts = np.bincount(np.clip(begun, 0, len(edges) - 2), minlength=len(edges) - 1)
    return [
        Bar(
            lane,
            int(edges[i]),
            int(edges[i + 1]),
            events.stages[stages[top[i]]],
            f"{plural(int(starts[i]), 'activity begins', 'activities begin')} here",
            int(busy[top[i], i]),
        )
        for i in np.flatnonzero(busy.max(axis=0) > 0).tolist()
    ]


def _exact_bars(events: _Events) -> list[Bar]:
    order = np.lexsort((events.begin, events.lane))
    columns = zip(
        events.lane[order].tolist(),
        events.begin[order].tolist(),
        events.end[order].tolist(),
        events.stage[order].tolist(),
        events.name[order].tolist(),
        strict=True,
    )
    # At most LIMIT rows reach this loop.
    return [
        Bar(lane, b, e, events.stages[stage], events.names[name], e - b)
        for lane, b, e, stage, name in columns
    ]


def _busiest_lanes(events: _Events) -> tuple[_Events, int]:
    """The busiest lanes, renumbered in their order, and how many were left out."""
    left = len(events.lanes) - _LANES
    if left <= 0:
        return events, 0
    busy = np.zeros(len(events.lanes), dtype=np.int64)
    np.add.at(busy, events.lane, events.end - events.begin)
    kept = np.sort(np.argsort(-busy, kind="stable")[:_LANES])
    number = np.full(len(events.lanes), -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    chosen = events.take(np.flatnonzero(number[events.lane] >= 0))
    lanes = [events.lanes[i] for i in kept.tolist()]
    return (
        _Events(
            number[chosen.lane],
            chosen.begin,
            chosen.end,
            chosen.stage,
            chosen.name,
            lanes,
            chosen.stages,
            chosen.names,
        ),
        left,
    )


def _view(title: str, events: _Events, begin: int, end: int, limit: int) -> TimelineView | None:
    if not len(events.begin):
        return None
    events, left = _busiest_lanes(events)
    events = _Events(
        events.lane,
        events.begin - begin,
        events.end - begin,
        events.stage,
        events.name,
        events.lanes,
        events.stages,
        events.names,
    )
    wall = max(end - begin, int(events.end.max()))
    busy = np.zeros(len(events.stages), dtype=np.int64)
    np.add.at(busy, events.stage, events.end - events.begin)
    ranked = [events.stages[i] for i in np.argsort(-busy, kind="stable").tolist() if busy[i] > 0]
    binned = len(events.begin) > limit
    notes = [] if not left else [f"{plural(left, 'less busy lane')} left out."]
    if binned:
        slices = max(1, limit // len(events.lanes))
        edges = np.linspace(0, wall, slices + 1).astype(np.int64)
        bars = [b for lane in range(len(events.lanes)) for b in _binned_lane(events, lane, edges)]
        notes.append(
            f"{plural(len(events.begin), 'activity', 'activities')} in slices of "
            f"{duration(wall / slices)}; each shows the stage that was busy in it longest."
        )
    else:
        bars = _exact_bars(events)
    stages = tuple(dict.fromkeys(ranked))
    return TimelineView(
        title, wall, tuple(events.lanes), stages, tuple(bars), binned, " ".join(notes)
    )


def _replay_view(trace: Trace, limit: int) -> TimelineView | None:
    replays = trace.tables.get("replays")
    row = _slowest(replays)
    if row is None:
        return None
    column = trace.tables.get("activities").column("replay")
    rows = valid_of(column) & (as_numpy(column) == _cell(replays, "replay", row))
    begin, end = _cell(replays, "begin_ns", row), _cell(replays, "end_ns", row)
    of = plural(replays.num_rows, "graph replay")
    title = f"Slowest of {of}: {duration(end - begin)}"
    return _view(title, _device_events(trace, rows), begin, end, limit)


def _window_view(
    trace: Trace, title: str, process: int | None, begin: int, end: int, limit: int
) -> TimelineView | None:
    """Device work that begins in the window, else the stages that the host ran in it."""
    table = trace.tables.get("activities")
    starts = as_numpy(table.column("begin_ns"))
    rows = (starts >= begin) & (starts < end)
    if process is not None:
        rows &= as_numpy(table.column("process")) == process
    if rows.any():
        return _view(title, _device_events(trace, rows), begin, end, limit)
    return _view(title, _host_events(trace, process, begin, end), begin, end, limit)


def _batch_view(trace: Trace, limit: int) -> TimelineView | None:
    batches = trace.tables.get("batches")
    row = _slowest(batches)
    if row is None:
        return None
    begin, end = _cell(batches, "begin_ns", row), _cell(batches, "end_ns", row)
    codes, words = codes_of(batches.column("label"))
    label = f" ({visible(words[codes[row]])})" if codes[row] >= 0 else ""
    of = plural(batches.num_rows, "batch", "batches")
    title = f"Slowest of {of}{label}: {duration(end - begin)}"
    return _window_view(trace, title, _cell(batches, "process", row), begin, end, limit)


def _range_view(trace: Trace, limit: int) -> TimelineView | None:
    table = trace.tables.get("ranges")
    rows = valid_of(table.column("stage")) & valid_of(table.column("end_ns"))
    if not rows.any():
        return None
    begin, end = as_numpy(table.column("begin_ns")), as_numpy(table.column("end_ns"))
    row = int(np.argmax(np.where(rows, end - begin, -1)))
    first, last = int(begin[row]), int(end[row])
    process = _cell(table, "process", row)
    title = f"Longest stage range: {duration(last - first)}"
    return _window_view(trace, title, process, first, last, limit)


def _device_view(trace: Trace, limit: int) -> TimelineView | None:
    table = trace.tables.get("activities")
    if not table.num_rows:
        return None
    begin = int(as_numpy(table.column("begin_ns")).min())
    end = int(as_numpy(table.column("end_ns")).max())
    rows = np.ones(table.num_rows, dtype=np.bool_)
    title = f"All device work: {duration(end - begin)}"
    return _view(title, _device_events(trace, rows), begin, end, limit)


def timeline_view(trace: Trace, *, limit: int = LIMIT) -> TimelineView | None:
    """The slowest replay, else the slowest batch, else the longest stage range, else all work.

    Args:
        trace: an attributed trace.
        limit: bars at most; more are binned.

    Returns:
        None where no unit has work to draw.
    """
    for make in (_replay_view, _batch_view, _range_view, _device_view):
        view = make(trace, limit)
        if view is not None:
            return view
    return None
