# SPDX-License-Identifier: Apache-2.0
"""The model's tables of a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.kineto_values import NULL
from graphtrace.ingest.kineto_work import KINDS, Frame, Parts
from graphtrace.model.arrays import dictionary, encode, make_table, numbers, strings

__all__ = ["Replayed", "collect_replays", "device_tables", "host_tables"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_GRAPH_SHIFT: Final = 32
"""The upper 32 bits of the id of a replayed node are its instantiated graph."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Replays in order of begin.

    Attributes:
        of_work: replay of each row of device work, -1 for none.
        first: row of device work that begins first, of each replay.
        end: when the last node ends, ns.
        call: row of the launching call of each, -1 where it was not recorded.
        exec_id: instantiated graph, where one is known of all its nodes, else `NULL`.
        unseen: launches of graphs from which no work was recorded.
        unnamed: replays of which no node has an id.
    """

    of_work: Ints
    first: Ints
    end: Ints
    call: Ints
    exec_id: Ints
    unseen: int
    unnamed: int


def collect_replays(parts: Parts) -> Replayed:
    """Group the device work of each launch of a graph: equal process and correlation id."""
    work, calls = parts.work, parts.calls
    launch = np.flatnonzero((calls.get("launch") == 1) & calls.known("correlation"))
    keys, rows = _keyed(work, calls, launch)
    inside = np.isin(rows, keys) & work.known("correlation")
    inside |= work.known("node") & work.known("correlation")
    members = np.flatnonzero(inside)
    members = members[np.argsort(rows[members], kind="stable")]
    new = np.r_[True, rows[members][1:] != rows[members][:-1]] if len(members) else inside[:0]
    heads = np.flatnonzero(new)
    # Work is in order of begin and the sort is stable: the first member starts first.
    first = members[heads]
    rank = np.argsort(first, kind="stable")
    place = np.empty(len(first), dtype=np.int64)
    place[rank] = np.arange(len(first))
    of_work = np.full(work.rows, -1, dtype=np.int64)
    of_work[members] = place[np.cumsum(new) - 1]
    order = np.argsort(keys, kind="stable")
    key = rows[first[rank]]
    at = np.searchsorted(keys[order], key) if len(keys) else np.zeros(len(key), dtype=np.int64)
    hit = (
        (at < len(keys)) & (keys[order][np.minimum(at, len(keys) - 1)] == key)
        if len(keys)
        else (np.zeros(len(key), dtype=np.bool_))
    )
    call = np.full(len(key), -1, dtype=np.int64)
    call[hit] = launch[order[at[hit]]]
    named = _reduce(np.logical_or, work.known("node")[members], heads)
    return Replayed(
        of_work=of_work,
        first=first[rank],
        end=_reduce(np.maximum, work.get("end")[members], heads)[rank],
        call=call,
        exec_id=_same(_execs(work)[members], heads)[rank],
        unseen=int(np.count_nonzero(~np.isin(keys, rows))),
        unnamed=int(np.count_nonzero(~named)),
    )


def _keyed(work: Frame, calls: Frame, launch: Ints) -> tuple[Ints, Ints]:
    """One number for (process, correlation), of launches and of device work; equal means equal."""
    pairs = np.concatenate(
        [
            np.column_stack((calls.get("process"), calls.get("correlation")))[launch],
            np.column_stack((work.get("process"), work.get("correlation"))),
        ]
    )
    ids, inverse = np.unique(pairs[:, 1], return_inverse=True)
    number = pairs[:, 0] * max(len(ids), 1) + inverse.reshape(-1)
    return number[: len(launch)], number[len(launch) :]


def _reduce(how: np.ufunc, values: npt.NDArray[Any], heads: Ints) -> npt.NDArray[Any]:
    return how.reduceat(values, heads) if len(heads) else values[:0]


def _execs(work: Frame) -> Ints:
    """Instantiated graph of each row: of its node id, else as the trace says."""
    upper = np.where(work.known("node"), work.get("node") >> _GRAPH_SHIFT, 0)
    return np.where(upper > 0, upper, work.get("graph_id"))


def _same(values: Ints, heads: Ints) -> Ints:
    """The value that all of a group share, else `NULL`."""
    low, high = _reduce(np.minimum, values, heads), _reduce(np.maximum, values, heads)
    return np.where(low == high, low, NULL)


def host_tables(parts: Parts, base: int, rank: int | None) -> dict[str, pa.Table]:
    """Processes, calls, ranges, and the steps of the profiler's schedule as batches.

    Args:
        parts: the rows.
        base: what is added to all times, ns.
        rank: rank in a distributed run, which only a trace of one process can say of it.
    """
    pids, count = parts.pids, len(parts.pids)
    valid = np.asarray([pid is not None for pid in pids], dtype=np.bool_)
    ranked = rank is not None and count == 1
    processes = {
        "process": np.arange(count),
        "source": np.zeros(count),
        "pid": numbers([pid or 0 for pid in pids], pa.int64(), valid),
        "rank": numbers([rank or 0] * count, pa.int32(), np.full(count, ranked)),
    }
    tables = {"processes": make_table("processes", count, processes)}
    if parts.calls.rows:
        tables["api_calls"] = _call_table(parts, base)
    return tables | {"ranges": _range_table(parts, base)}


def _call_table(parts: Parts, base: int) -> pa.Table:
    calls = parts.calls
    columns = {
        "process": calls.get("process"),
        "thread": calls.get("tid"),
        "name": _named(calls.get("name"), parts.words),
        "correlation": _maybe(calls, "correlation", pa.int64()),
        "begin_ns": calls.get("begin") + base,
        "end_ns": calls.get("end") + base,
    }
    return make_table("api_calls", calls.rows, columns)


def _range_table(parts: Parts, base: int) -> pa.Table:
    ranges = parts.ranges
    mine = np.flatnonzero(ranges.get("step") == 0)
    columns = {
        "process": ranges.get("process")[mine],
        "thread": ranges.get("tid")[mine],
        "domain": dictionary(np.zeros(len(mine)), [""]),
        "text": _named(ranges.get("name")[mine], parts.words),
        "kind": dictionary(np.zeros(len(mine)), ["push_pop"]),
        "begin_ns": ranges.get("begin")[mine] + base,
        "end_ns": numbers(ranges.get("end")[mine] + base, pa.int64()),
    }
    return make_table("ranges", len(mine), columns)


def _step_table(parts: Parts, base: int) -> pa.Table:
    ranges = parts.ranges
    mine = np.flatnonzero(ranges.get("step") == 1)
    columns = {
        "batch": np.arange(len(mine)),
        "process": ranges.get("process")[mine],
        "thread": ranges.get("tid")[mine],
        "begin_ns": ranges.get("begin")[mine] + base,
        "end_ns": ranges.get("end")[mine] + base,
        "label": _named(ranges.get("name")[mine], parts.words),
    }
    return make_table("batches", len(mine), columns)


def _named(codes: Ints, words: Sequence[str]) -> pa.Array:
    """A dictionary of the words that are used, in order."""
    valid = codes >= 0
    used = np.unique(codes[valid])
    place = np.searchsorted(used, codes)
    return dictionary(place, [words[code] for code in used.tolist()] or [""], valid)


def _maybe(frame: Frame, name: str, kind: pa.DataType) -> pa.Array:
    known = frame.known(name)
    return numbers(np.where(known, frame.get(name), 0), kind, known)


def device_tables(
    parts: Parts, replayed: Replayed, facts: Mapping[int, Mapping[str, Any]], base: int
) -> dict[str, pa.Table]:
    """Devices, activities, replays, instantiated graphs and batches.

    Args:
        parts: the rows.
        replayed: the replays of the work.
        facts: what is known of a device, by ordinal, in names of table `devices`.
        base: what is added to all times, ns.
    """
    ordinals, device = np.unique(parts.work.get("device"), return_inverse=True)
    device = device.reshape(-1)
    execs, exec_of = _exec_rows(parts, replayed)
    tables = {
        "devices": _device_table(ordinals, facts),
        "activities": _activity_table(parts, replayed, device, base),
        "replays": _replay_table(parts, replayed, device, exec_of, base),
        "execs": execs,
    }
    steps = _step_table(parts, base)
    return tables | {"batches": steps} if steps.num_rows else tables


def _device_table(ordinals: Ints, facts: Mapping[int, Mapping[str, Any]]) -> pa.Table:
    count = len(ordinals)
    rows = [facts.get(ordinal, {}) for ordinal in ordinals.tolist()]

    def number(name: str, kind: pa.DataType) -> pa.Array:
        values = [row.get(name) for row in rows]
        valid = np.asarray([value is not None for value in values], dtype=np.bool_)
        return numbers([value or 0 for value in values], kind, valid)

    columns = {
        "device": np.arange(count),
        "source": np.zeros(count),
        "kind": encode("gpu" for _ in rows),
        "ordinal": numbers(ordinals, pa.int32()),
        "name": encode(row.get("name") for row in rows),
        "uuid": strings(None for _ in rows),
        "sm_count": number("sm_count", pa.int32()),
        "l2_bytes": number("l2_bytes", pa.int64()),
        "cc_major": number("cc_major", pa.int16()),
        "cc_minor": number("cc_minor", pa.int16()),
        "max_warps_per_sm": number("max_warps_per_sm", pa.int32()),
    }
    return make_table("devices", count, columns)


def _activity_table(parts: Parts, replayed: Replayed, device: Ints, base: int) -> pa.Table:
    work = parts.work
    columns: dict[str, Any] = {
        "activity": np.arange(work.rows, dtype=np.int32),
        "process": work.get("process"),
        "device": device,
        "context": _maybe(work, "context", pa.int32()),
        "stream": work.get("stream"),
        "kind": dictionary(work.get("kind"), KINDS),
        "name": _named(work.get("name"), parts.words),
        "begin_ns": work.get("begin") + base,
        "end_ns": work.get("end") + base,
        "correlation": _maybe(work, "correlation", pa.int64()),
        "registers": _maybe(work, "registers", pa.int32()),
        "shared_bytes": _maybe(work, "shared", pa.int64()),
        "bytes": _maybe(work, "bytes", pa.int64()),
        "node_native_id": _maybe(work, "node", pa.int64()),
        "replay": numbers(replayed.of_work, pa.int32(), replayed.of_work >= 0),
    }
    for size in ("grid", "block"):
        for axis in "xyz":
            columns[f"{size}_{axis}"] = _maybe(work, f"{size}_{axis}", pa.int64())
    return make_table("activities", work.rows, columns)


def _exec_rows(parts: Parts, replayed: Replayed) -> tuple[pa.Table, Ints]:
    """The table of instantiated graphs, and the row of each replay's, -1 for none."""
    process = parts.work.get("process")[replayed.first]
    known = replayed.exec_id != NULL
    pairs = np.column_stack((process, replayed.exec_id))[known]
    rows, inverse = np.unique(pairs, axis=0, return_inverse=True)
    of_replay = np.full(len(known), -1, dtype=np.int64)
    of_replay[known] = inverse.reshape(-1)
    columns = {
        "exec": np.arange(len(rows)),
        "process": rows[:, 0],
        "native_id": numbers(rows[:, 1], pa.int64()),
    }
    return make_table("execs", len(rows), columns), of_replay


def _replay_table(
    parts: Parts, replayed: Replayed, device: Ints, exec_of: Ints, base: int
) -> pa.Table:
    work, calls, first = parts.work, parts.calls, replayed.first
    count = len(first)
    members = np.flatnonzero(replayed.of_work >= 0)
    members = members[np.argsort(replayed.of_work[members], kind="stable")]
    heads = np.searchsorted(replayed.of_work[members], np.arange(count))
    # Which of several streams the launch was on is not recorded.
    stream = _same(work.get("stream")[members], heads)
    launched = replayed.call >= 0
    columns: dict[str, Any] = {
        "replay": np.arange(count),
        "exec": numbers(exec_of, pa.int32(), exec_of >= 0),
        "process": work.get("process")[first],
        "device": device[first],
        "stream": numbers(np.where(stream == NULL, 0, stream), pa.int64(), stream != NULL),
        "correlation": numbers(work.get("correlation")[first], pa.int64()),
        "begin_ns": work.get("begin")[first] + base,
        "end_ns": replayed.end + base,
    }
    if calls.rows:
        call = np.maximum(replayed.call, 0)
        for side in ("begin", "end"):
            times = calls.get(side)[call] + base
            columns[f"launch_{side}_ns"] = numbers(times, pa.int64(), launched)
    return make_table("replays", count, columns)
