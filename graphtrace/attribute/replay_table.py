# SPDX-License-Identifier: Apache-2.0
"""Replays: which launch each node of a graph ran in, and how long a launch took on the device."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Bools, Ints, Lookup, join_keys, pack
from graphtrace.attribute.launches import Calls, Steps
from graphtrace.attribute.work import Work, ints
from graphtrace.model.analysis import Replays
from graphtrace.model.arrays import make_table, numbers, valid_of

__all__ = ["ReplayRows", "find_replays", "nearest_rank", "summary"]


@dataclass(frozen=True, slots=True)
class ReplayRows:
    """Replays by row; -1 is null, `launch_known` says whether the launching call was recorded."""

    key: Ints
    exec: Ints
    graph: Ints
    batch: Ints
    process: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    launch_begin: Ints
    launch_end: Ints
    launch_known: Bools
    begin: Ints
    end: Ints

    def row_of(self, key: Ints) -> Ints:
        """Row of each replay key, -1 where there is none."""
        count = len(self.key)
        if bool((self.key == np.arange(count)).all()) and int(key.max(initial=-1)) < count:
            return key
        return Lookup.of(self.key).first(key)

    def table(self) -> pa.Table:
        """The table `replays`."""
        nullable = {
            "exec": (self.exec, pa.int32()),
            "graph": (self.graph, pa.int32()),
            "batch": (self.batch, pa.int32()),
            "stream": (self.stream, pa.int64()),
            "correlation": (self.correlation, pa.int64()),
        }
        columns: dict[str, Any] = {
            name: numbers(values, kind, values >= 0) for name, (values, kind) in nullable.items()
        }
        columns["launch_begin_ns"] = numbers(self.launch_begin, pa.int64(), self.launch_known)
        columns["launch_end_ns"] = numbers(self.launch_end, pa.int64(), self.launch_known)
        columns |= {
            "replay": self.key,
            "process": self.process,
            "device": self.device,
            "begin_ns": self.begin,
            "end_ns": self.end,
        }
        return make_table("replays", len(self.key), columns)


def find_replays(
    replays: pa.Table, api: pa.Table, batches: pa.Table, work: Work
) -> tuple[ReplayRows, Ints]:
    """Complete the replays that the reader saw, and give every node its replay.

    Nodes of one launch share process and correlation id. A launch that no row stands for gets one.
    Begin and end are those of the work that was recorded, where there is any.

    Returns:
        The replays, and the replay key of each activity (-1 for none).
    """
    replay = _by_correlation(replays, work)
    fresh = np.flatnonzero(work.in_graph & (replay < 0) & _launchable(work))
    key = ints(replays, "replay")
    first, slot = _new_launches(work, fresh)
    base = int(max(key.max(initial=-1), work.replay.max(initial=-1))) + 1
    if len(fresh):
        replay = replay.copy()
        replay[fresh] = base + slot
    key = np.r_[key, base + np.arange(len(first))]
    empty = np.full(len(first), -1, dtype=np.int64)
    process = np.r_[ints(replays, "process"), work.process[first]]
    correlation = np.r_[ints(replays, "correlation"), work.correlation[first]]
    begin = np.r_[ints(replays, "begin_ns"), work.begin[first]]
    end = np.r_[ints(replays, "end_ns"), work.end[first]]
    _stretch(key, replay, work, begin, end)
    calls = Calls.of(api, process, correlation, correlation >= 0)
    given = np.r_[_known(replays, "launch_begin_ns"), empty >= 0]
    launch_begin = np.r_[ints(replays, "launch_begin_ns"), empty]
    launch_end = np.r_[ints(replays, "launch_end_ns"), empty]
    batch = np.r_[ints(replays, "batch"), empty]
    when = np.where(given, launch_begin, calls.begin)
    known = given | calls.found
    owner = Steps(batches).at(process, np.where(calls.found, calls.thread, -1), when)
    rows = ReplayRows(
        key=key,
        exec=np.r_[ints(replays, "exec"), empty],
        graph=np.r_[ints(replays, "graph"), empty],
        batch=np.where((batch < 0) & known, owner, batch),
        process=process,
        device=np.r_[ints(replays, "device"), work.device[first]],
        stream=np.r_[ints(replays, "stream"), _only_stream(work, fresh, slot, len(first))],
        correlation=correlation,
        launch_begin=when,
        launch_end=np.where(given, launch_end, calls.end),
        launch_known=known,
        begin=begin,
        end=end,
    )
    return rows, replay


def _known(table: pa.Table, column: str) -> Bools:
    return valid_of(table.column(column))


def _launchable(work: Work) -> Bools:
    """An opaque replay is a launch of its own even where its correlation id is missing."""
    return work.has_correlation | work.opaque


def _by_correlation(replays: pa.Table, work: Work) -> Ints:
    """Replay of each activity: the reader's, else the row with its correlation id (and device)."""
    rows = np.flatnonzero(_known(replays, "correlation"))
    open_ = np.flatnonzero(work.in_graph & (work.replay < 0) & work.has_correlation)
    if not len(rows) or not len(open_):
        return work.replay
    replay = work.replay.copy()
    names = ("process", "correlation", "device")
    columns = [ints(replays, name)[rows] for name in names]
    wanted = [column[open_] for column in (work.process, work.correlation, work.device)]
    found = np.full(len(open_), -1, dtype=np.int64)
    for width in (3, 2):
        known, asked = join_keys(columns[:width], wanted[:width])
        hit = Lookup.of(known).first(asked)
        found = np.where(found < 0, hit, found)
    keys = ints(replays, "replay")[rows]
    replay[open_] = np.where(found >= 0, keys[np.maximum(found, 0)], -1)
    return replay


def _new_launches(work: Work, fresh: Ints) -> tuple[Ints, Ints]:
    """First activity of each launch without a row, in order of time, and the launch of each."""
    if not len(fresh):
        return fresh, fresh
    lonely = (~work.has_correlation | work.opaque)[fresh]
    key = pack(
        work.process[fresh], work.correlation[fresh], np.where(lonely, work.key[fresh] + 1, 0)
    )
    order = np.lexsort((work.key[fresh], work.stream[fresh], work.begin[fresh]))
    _, first, inverse = np.unique(key[order], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    slot = np.empty(len(fresh), dtype=np.int64)
    slot[order] = rank[inverse]
    return fresh[order[np.sort(first)]], slot


def _only_stream(work: Work, rows: Ints, slot: Ints, launches: int) -> Ints:
    """Stream of each launch whose work ran on one stream, else -1."""
    low = np.full(launches, np.iinfo(np.int64).max, dtype=np.int64)
    high = np.full(launches, -1, dtype=np.int64)
    np.minimum.at(low, slot, work.stream[rows])
    np.maximum.at(high, slot, work.stream[rows])
    return np.where(low == high, low, -1)


def _stretch(key: Ints, replay: Ints, work: Work, begin: Ints, end: Ints) -> None:
    """Set begin and end of each replay to those of its work, in place."""
    if not len(replay):
        return
    # Neighbours of one replay are one stretch, of which there are few.
    heads = np.flatnonzero(np.r_[True, replay[1:] != replay[:-1]])
    row = Lookup.of(key).first(replay[heads])
    first, last = np.minimum.reduceat(work.begin, heads), np.maximum.reduceat(work.end, heads)
    known = np.flatnonzero(row >= 0)
    row = row[known]
    begin[row], end[row] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    np.minimum.at(begin, row, first[known])
    np.maximum.at(end, row, last[known])


def nearest_rank(values: Ints, percent: int) -> int | None:
    """Nearest-rank percentile: the smallest value that at least `percent` % do not exceed.

    Args:
        values: any order.
        percent: 1 to 100; 50 is the (lower) median.

    Returns:
        One of the values, or None where there is none.
    """
    if not len(values):
        return None
    at = -(-percent * len(values) // 100) - 1
    return int(np.partition(values, at)[at])


def summary(rows: ReplayRows) -> Replays:
    """Count and wall times of the replays, each on its own, whether they overlap or not."""
    wall = rows.end - rows.begin
    return Replays(
        count=len(wall),
        wall_total_ns=int(wall.sum()),
        wall_median_ns=nearest_rank(wall, 50),
        wall_p99_ns=nearest_rank(wall, 99),
    )
