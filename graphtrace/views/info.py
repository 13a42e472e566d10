# SPDX-License-Identifier: Apache-2.0
"""Describes one input from its tables as they were read: nothing is attributed or judged."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.analysis.rows import device_rows, quarantine_rows
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import as_numpy, codes_of, valid_of
from graphtrace.model.description import (
    Description,
    Domain,
    GraphCounts,
    NcuCounts,
    NcuMode,
    ProcessInfo,
    Span,
    StageInfo,
)
from graphtrace.model.schema import TABLES
from graphtrace.model.trace import TableSet
from graphtrace.views.gaps import gaps_of

__all__ = ["describe"]

_DERIVED: Final = frozenset({"stage_times"})
_KERNELS: Final = frozenset({"kernel", "collective"})


def describe(source: Source, size: int | None = None) -> Description:
    """Describe an input.

    Args:
        source: what its reader gave, be it without GPU work.
        size: bytes that it takes on the disk.
    """
    tables = source.tables
    graphs = _graphs(tables)
    warnings, missing = gaps_of(source, graphs)
    return Description(
        info=source.info,
        size=size,
        origin=None if source.manifest is None else source.manifest.origin,
        devices=device_rows(tables),
        processes=_processes(tables.get("processes")),
        span=_span(tables),
        tables={
            name: tables.rows(name) if tables.has(name) else None
            for name in TABLES
            if name not in _DERIVED
        },
        activities=_words(tables, "activities", "kind"),
        graphs=graphs,
        nvtx=_domains(tables.get("ranges")) if tables.has("ranges") else None,
        ncu=_ncu(tables) if tables.has("ncu_results") else None,
        stages=_stages(tables.get("stages")) if tables.has("stages") else None,
        quarantine=quarantine_rows(tables),
        warnings=warnings,
        missing=missing,
    )


def _optional(column: pa.ChunkedArray) -> list[int | None]:
    pairs = zip(as_numpy(column).tolist(), valid_of(column).tolist(), strict=True)
    return [value if known else None for value, known in pairs]


def _processes(table: pa.Table) -> tuple[ProcessInfo, ...]:
    pairs = zip(_optional(table.column("pid")), _optional(table.column("rank")), strict=True)
    return tuple(ProcessInfo(pid, rank) for pid, rank in pairs)


def _span(tables: TableSet) -> Span | None:
    """From the first to the last time in any table that was recorded."""
    first: list[int] = []
    last: list[int] = []
    for name, table in tables.tables.items():
        # Durations are in ns, too; only these are instants.
        times = [c for c in TABLES[name].names if c in ("begin_ns", "end_ns", "time_ns")]
        for column in times:
            values = as_numpy(table.column(column))[valid_of(table.column(column))]
            if len(values):
                first.append(int(values.min()))
                last.append(int(values.max()))
    return Span(min(first), max(last)) if first else None


def _words(tables: TableSet, table: str, column: str) -> dict[str, int] | None:
    """Rows by word of a column, the most first; None where the table is absent."""
    if not tables.has(table):
        return None
    codes, words = codes_of(tables.get(table).column(column))
    counts: dict[str, int] = {}
    for word, count in zip(
        words, np.bincount(codes[codes >= 0], minlength=len(words)), strict=True
    ):
        counts[word] = counts.get(word, 0) + int(count)
    found = [(word, count) for word, count in counts.items() if count]
    return dict(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _graphs(tables: TableSet) -> GraphCounts | None:
    if not tables.has("replays"):
        return None
    replays = tables.rows("replays")
    kernels, opaque = _per_replay(tables.get("activities"), tables.get("replays"))
    told = kernels[~opaque]
    return GraphCounts(
        graphs=_known(tables, "graphs", replays),
        instantiated=_known(tables, "execs", replays),
        replays=replays,
        opaque=int(np.count_nonzero(opaque)),
        kernels=(int(told.min()), int(told.max())) if len(told) else None,
    )


def _known(tables: TableSet, name: str, replays: int) -> int | None:
    """Rows of a table; None where it has none and there are replays, which must be of something."""
    rows = tables.rows(name)
    return None if replays and not rows else rows


def _per_replay(
    activities: pa.Table, replays: pa.Table
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Kernels of each replay, and whether it was recorded as a whole, without them."""
    place = np.full(int(as_numpy(replays.column("replay")).max(initial=-1)) + 1, -1)
    place[as_numpy(replays.column("replay"))] = np.arange(replays.num_rows)
    codes, words = codes_of(activities.column("kind"))
    inside = np.flatnonzero(valid_of(activities.column("replay")))
    replay = place[as_numpy(activities.column("replay"))[inside]]
    kind = codes[inside]

    def counted(names: frozenset[str]) -> npt.NDArray[Any]:
        wanted = [code for code, word in enumerate(words) if word in names]
        return np.bincount(replay[np.isin(kind, wanted)], minlength=replays.num_rows)

    return counted(_KERNELS), counted(frozenset({"opaque_replay"})) > 0


def _domains(ranges: pa.Table) -> tuple[Domain, ...]:
    codes, words = codes_of(ranges.column("domain"))
    kinds, kind_words = codes_of(ranges.column("kind"))
    marks = np.isin(kinds, [code for code, word in enumerate(kind_words) if word == "mark"])
    size = len(words)
    counts = zip(
        words,
        np.bincount(codes[~marks], minlength=size).tolist(),
        np.bincount(codes[marks], minlength=size).tolist(),
        strict=True,
    )
    found = [Domain(name, spans, points) for name, spans, points in counts if spans or points]
    return tuple(sorted(found, key=lambda domain: (-domain.ranges - domain.marks, domain.name)))


def _ncu(tables: TableSet) -> NcuCounts:
    results = tables.get("ncu_results")
    columns = [codes_of(results.column(name)) for name in ("cache", "clock", "replay_mode")]
    passes, known = as_numpy(results.column("passes")), valid_of(results.column("passes"))
    codes = np.stack([codes for codes, _ in columns], axis=1)
    ways, group = np.unique(codes, axis=0, return_inverse=True)
    group = group.reshape(-1)
    modes = []
    for number, way in enumerate(ways.tolist()):
        cache, clock, replay = (words[code] for code, (_, words) in zip(way, columns, strict=True))
        rows = group == number
        told = passes[rows & known]
        both = (int(told.min()), int(told.max())) if len(told) else None
        modes.append(NcuMode(cache, clock, replay, int(np.count_nonzero(rows)), both))
    modes.sort(key=lambda mode: (-mode.results, mode.cache, mode.clock, mode.replay_mode))
    names, _ = codes_of(tables.get("metrics").column("name"))
    return NcuCounts(results.num_rows, len(np.unique(names)), tuple(modes))


def _stages(stages: pa.Table) -> tuple[StageInfo, ...]:
    pairs = zip(stages.column("path").to_pylist(), stages.column("origin").to_pylist(), strict=True)
    return tuple(StageInfo(path, origin) for path, origin in pairs)
