# SPDX-License-Identifier: Apache-2.0
"""Turns the raw records of a recording into the tables of the model.

Used by the launcher when the program has ended, and by the reader of a recording that was never
finished. Processes share stages by path. A stage is open at most once at a time on one thread,
because its path holds all that it lies in: borders pair up by (process, thread, stage) in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.model import records
from graphtrace.model.arrays import dictionary, encode, lists, make_table, numbers
from graphtrace.model.definitions import Accesses, Refused, Stages, counts_of, whole, word
from graphtrace.model.raw import RawProcess, read_raw
from graphtrace.model.recorded_gaps import missing
from graphtrace.model.trace import RunCost, TableSet
from graphtrace.model.vocabulary import STAGE_DOMAIN

__all__ = ["Assembled", "assemble"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Assembled:
    """Tables, cost, and what must be said about them.

    Attributes:
        processes: as they were read, for who wants to say more.
        missing: sentences on what is not in the tables, and why.
    """

    tables: TableSet
    cost: RunCost
    processes: tuple[RawProcess, ...]
    missing: tuple[str, ...]


def _lookup(pairs: Mapping[int, int], ids: Ints) -> Ints:
    """The value of each id; -1 where there is none."""
    if not pairs:
        return np.full(len(ids), -1, dtype=np.int64)
    known = np.asarray(sorted(pairs), dtype=np.int64)
    values = np.asarray([pairs[key] for key in sorted(pairs)], dtype=np.int64)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[at] == ids, values[at], -1)


def _stage_keys(process: RawProcess, stages: Stages) -> dict[int, int]:
    """Key of each stage id of a process; a definition names its parent, which came before it."""
    keys: dict[int, int] = {}
    for line in process.lines.get("stage", ()):
        ident, parent = whole(line.get("id")), whole(line.get("parent"))
        name, origin = word(line.get("name")), word(line.get("origin"))
        if ident is None or name is None or parent is None or (parent and parent not in keys):
            process.bad_lines += 1
            continue
        origin = origin if origin in ("module", "code") else "code"
        keys[ident] = stages.add(keys[parent] if parent else -1, name, origin)
    return keys


@dataclass(slots=True)
class _Events:
    """Records of all processes as columns, in order within a process."""

    process: Ints
    thread: Ints
    time: Ints
    ident: Ints
    kind: Ints
    flags: Ints
    stage: Ints
    """Stage key; -1 where it is a batch or no definition of it was written."""
    batch_id: Ints
    access: Ints

    def __len__(self) -> int:
        return len(self.time)

    def where(self, keep: Flags) -> "_Events":
        """The rows where `keep` is true."""
        columns = {name: getattr(self, name)[keep] for name in self.__slots__}
        return _Events(**columns)


def _events(
    processes: list[RawProcess], stages: Stages, access: Accesses
) -> tuple[_Events, dict[str, int]]:
    parts: dict[str, list[Ints]] = {name: [] for name in _Events.__slots__}
    counts = {"undefined": 0, "impossible": 0}
    for number, process in enumerate(processes):
        stage_keys = _stage_keys(process, stages)
        access_keys = access.read(process, stage_keys)
        raw = process.events
        good = (raw["time"] < 1 << 62) & (raw["kind"] >= 1) & (raw["kind"] <= 4)
        counts["impossible"] += len(raw) - int(np.count_nonzero(good))
        raw = raw[good]
        is_stage = raw["kind"] <= records.STAGE_END
        stage = np.where(is_stage, _lookup(stage_keys, raw["ident"].astype(np.int64)), -1)
        named = ~is_stage | (stage >= 0)
        counts["undefined"] += len(raw) - int(np.count_nonzero(named))
        raw, stage = raw[named], stage[named]
        columns = {
            "process": np.full(len(raw), number, dtype=np.int64),
            "stage": stage,
            "access": _lookup(access_keys, raw["access"].astype(np.int64)),
            "batch_id": raw["batch"].astype(np.int64),
            **{n: raw[n].astype(np.int64) for n in ("thread", "time", "ident", "kind", "flags")},
        }
        for name, values in columns.items():
            parts[name].append(values)
    empty = np.zeros(0, dtype=np.int64)
    return _Events(**{name: np.concatenate([empty, *p]) for name, p in parts.items()}), counts


def _pairs(events: _Events, group: tuple[Ints, ...], begins: Flags) -> tuple[Ints, Ints, int]:
    """Begins with their ends: the next record of the same group, where that is an end.

    Returns:
        Row of each begin in order, row of its end (-1 while open), ends without a begin.
    """
    order = np.lexsort((np.arange(len(events)), *reversed(group)))
    is_begin = begins[order]
    same = np.ones(len(order), dtype=np.bool_)
    if len(order):
        same[-1] = False
        for column in group:
            ordered = column[order]
            same[:-1] &= ordered[1:] == ordered[:-1]
    closed = np.zeros(len(order), dtype=np.bool_)
    closed[:-1] = is_begin[:-1] & ~is_begin[1:] & same[:-1]
    following = np.append(order[1:], -1)
    ends = np.where(closed, following, -1)[is_begin]
    starts = order[is_begin]
    sort = np.argsort(starts, kind="stable")
    orphans = int(np.count_nonzero(~is_begin)) - int(np.count_nonzero(closed))
    return starts[sort], ends[sort], orphans


def _backwards(events: _Events, begin: Ints, end: Ints) -> Flags:
    return (end >= 0) & (events.time[np.maximum(end, 0)] < events.time[begin])


def _ranges(events: _Events, stages: Stages, refused: Refused) -> pa.Table:
    mine = events.where(events.kind <= records.STAGE_END)
    begins = mine.kind == records.STAGE_BEGIN
    begin, end, orphans = _pairs(mine, (mine.process, mine.thread, mine.stage), begins)
    refused.add("ranges", "an end without a begin", orphans)
    bad = _backwards(mine, begin, end)
    refused.add("ranges", "ends before it begins", int(np.count_nonzero(bad)))
    begin, end = begin[~bad], end[~bad]
    closed = end >= 0
    flags = np.where(closed, mine.flags[np.maximum(end, 0)], 0)
    crossed = (flags & records.FLAG_INTERLEAVED) != 0
    columns = {
        "process": mine.process[begin],
        "thread": mine.thread[begin],
        "domain": dictionary(np.zeros(len(begin), dtype=np.int32), [STAGE_DOMAIN]),
        "text": dictionary(mine.stage[begin], stages.names or [""]),
        "kind": dictionary(crossed.astype(np.int32), ["push_pop", "start_end"]),
        "begin_ns": mine.time[begin],
        "end_ns": numbers(np.where(closed, mine.time[np.maximum(end, 0)], 0), pa.int64(), closed),
        "stage": numbers(mine.stage[begin], pa.int32()),
    }
    return make_table("ranges", len(begin), columns)


def _batches(
    events: _Events, processes: list[RawProcess], refused: Refused
) -> tuple[pa.Table, dict[tuple[int, int], int]]:
    """The batches, and the key of each (process, batch id)."""
    mine = events.where(events.kind >= records.BATCH_BEGIN)
    begins = mine.kind == records.BATCH_BEGIN
    begin, end, orphans = _pairs(mine, (mine.process, mine.ident), begins)
    refused.add("batches", "an end without a begin", orphans)
    refused.add("batches", "still open when its process ended", int(np.count_nonzero(end < 0)))
    bad = _backwards(mine, begin, end)
    refused.add("batches", "ends before it begins", int(np.count_nonzero(bad)))
    ends = mine.flags[np.maximum(end, 0)]
    keep = (end >= 0) & ~bad & ((ends & records.FLAG_SUPERSEDED) == 0)
    begin, end = begin[keep], end[keep]
    order = np.lexsort((mine.ident[begin], mine.process[begin], mine.time[begin]))
    begin, end = begin[order], end[order]
    owners = list(zip(mine.process[begin].tolist(), mine.ident[begin].tolist(), strict=True))
    facts = {
        (number, line["id"]): line
        for number, process in enumerate(processes)
        for line in process.lines.get("batch", ())
        if whole(line.get("id")) is not None
    }
    given = [facts.get(owner, {}) for owner in owners]
    columns = {
        "batch": np.arange(len(begin)),
        "process": mine.process[begin],
        "thread": numbers(mine.thread[begin], pa.int64()),
        "begin_ns": mine.time[begin],
        "end_ns": mine.time[end],
        "valid_tokens": _given(given, "valid"),
        "captured_tokens": _given(given, "captured"),
        "sizes": lists((counts_of(line.get("sizes")) for line in given), pa.int64()),
        "label": encode(word(line.get("label")) for line in given),
    }
    keys = {owner: key for key, owner in enumerate(owners)}
    return make_table("batches", len(begin), columns), keys


def _given(lines: list[dict[str, Any]], name: str) -> pa.Array:
    values = [whole(line.get(name)) for line in lines]
    valid = np.asarray([value is not None for value in values], dtype=np.bool_)
    return numbers([value or 0 for value in values], pa.int64(), valid)


def _marks(events: _Events, batch_keys: Mapping[tuple[int, int], int]) -> pa.Table:
    wide = {(process << 32) | ident: key for (process, ident), key in batch_keys.items()}
    batch = _lookup(wide, (events.process << 32) | events.batch_id)
    at_end = (events.kind == records.STAGE_END) | (events.kind == records.BATCH_END)
    rows = len(events)
    columns = {
        "process": events.process,
        "thread": events.thread,
        "batch": numbers(np.maximum(batch, 0), pa.int32(), batch >= 0),
        "stage": numbers(np.maximum(events.stage, 0), pa.int32(), events.stage >= 0),
        "border": dictionary(at_end.astype(np.int32), ["begin", "end"]),
        "time_ns": events.time,
        "clock": dictionary(np.zeros(rows, dtype=np.int32), ["host"]),
        "access": numbers(np.maximum(events.access, 0), pa.int32(), events.access >= 0),
    }
    return make_table("marks", rows, columns)


def _processes(processes: list[RawProcess]) -> pa.Table:
    pids = [whole(process.hello.get("pid")) or 0 for process in processes]
    rows = len(pids)
    columns = {
        "process": np.arange(rows),
        "source": np.zeros(rows, dtype=np.int64),
        "pid": numbers(np.asarray(pids, dtype=np.int64), pa.int64()),
    }
    return make_table("processes", rows, columns)


def _host(name: str | None, rows: int) -> pa.Table:
    columns = {
        "device": np.zeros(rows, dtype=np.int64),
        "source": np.zeros(rows, dtype=np.int64),
        "kind": encode(["host"] * rows),
        "name": encode([name] * rows),
    }
    return make_table("devices", rows, columns)


def _cost(processes: list[RawProcess], events: int) -> RunCost:
    """Sum of the processes; a figure is None where a process could not measure it."""
    borders = overhead = 0
    measured = True
    for process in processes:
        own = process.number("bye", "borders")
        each, skip = process.number("cost", "border_ns"), process.number("cost", "skipped_ns")
        if own == 0 or (own is None and not len(process.events)):
            continue
        if own is None or each is None:
            measured = False
            continue
        borders += own
        overhead += own * each + (process.number("bye", "skipped") or 0) * (skip or 0)
    ran = measured and borders > 0
    profilers = [word(process.last("profiler").get("name")) for process in processes]
    per_border = [process.number("cost", "border_ns") for process in processes]
    figures = sorted(value for value in per_border if value is not None)
    return RunCost(
        records=events,
        lost=sum(process.lost for process in processes),
        hook_ns_per_border=figures[len(figures) // 2] if figures else None,
        overhead_ns=overhead if ran else None,
        profiler=next((name for name in profilers if name), None),
    )


def assemble(folder: Path, *, host: str | None = None) -> Assembled:
    """Tables of a `raw` folder.

    Args:
        folder: the folder.
        host: name of the processor, for the devices table.

    Raises:
        OSError: the folder cannot be read.
    """
    processes, nameless = read_raw(folder)
    stages, access, refused = Stages(), Accesses(), Refused()
    events, counts = _events(processes, stages, access)
    ranges = _ranges(events, stages, refused)
    batches, batch_keys = _batches(events, processes, refused)
    refused.add("marks", "names a stage whose definition was not written", counts["undefined"])
    refused.add("marks", "damaged", counts["impossible"])
    tables = {
        "processes": _processes(processes),
        "devices": _host(host, 1 if processes else 0),
        "stages": stages.table(),
        "access": access.table(),
        "batches": batches,
        "marks": _marks(events, batch_keys),
        "ranges": ranges,
        "quarantine": refused.table(),
    }
    return Assembled(
        TableSet(tables),
        _cost(processes, len(events)),
        tuple(processes),
        tuple(missing(processes, nameless, counts)),
    )
