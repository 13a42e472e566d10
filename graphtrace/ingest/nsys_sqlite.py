# SPDX-License-Identifier: Apache-2.0
"""Reader of nsys SQLite exports, and the tables of every kind of export."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_columns import Frame, lookup
from graphtrace.ingest.nsys_export import Export
from graphtrace.ingest.nsys_host import (
    Calls,
    api_table,
    collect_calls,
    event_table,
    range_table,
)
from graphtrace.ingest.nsys_keys import (
    Keys,
    device_keys,
    device_table,
    index_processes,
    process_table,
)
from graphtrace.ingest.nsys_metrics import Samples, counter_table, read_samples
from graphtrace.ingest.nsys_open import open_export
from graphtrace.ingest.nsys_replays import (
    Graphs,
    Replayed,
    collect_graphs,
    collect_replays,
    unseen_launches,
)
from graphtrace.ingest.nsys_sentences import no_work, warnings_of
from graphtrace.ingest.nsys_tables import DIMENSIONS, Raw, read_raw
from graphtrace.ingest.nsys_work import KINDS, Work, collect_work
from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.server_steps import server_steps
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import column_of, few, make_table, numbers, words_of
from graphtrace.model.trace import InputInfo, TableSet
from graphtrace.model.vocabulary import InputKind

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

__all__ = ["SYNTHETIC_MARK", "Gathered", "exporter", "gather", "read", "source_of"]

SYNTHETIC_MARK: Final = "GRAPHTRACE_SYNTHETIC"
"""Name of the meta data record that `graphtrace.testing` leaves in the files it builds."""
_VERSION: Final = "EXPORT_PRODUCT_VERSION"


def read(path: Path, *, pages: bool = True) -> Source:
    """Read an export that `nsys export --type sqlite` wrote.

    The file is opened for reading only and nothing is written beside it. Of its meta data only the
    exporter's version is read, never the host, the user or the environment; strings are looked up
    by the ids that work and ranges name.

    Args:
        path: the SQLite file.
        pages: whether large tables may be decoded from the pages of the file. Without, SQL reads
            all; that is slower and gives the same.

    Returns:
        Processes, devices, api_calls, activities, replays, graphs, execs, graph_events, ranges and
        counters, as far as the export has them, and the quarantine. `stage`, `node` and the way
        they were found are left null.

    Raises:
        InputMissing, InputEmpty, InputTruncated, InputCorrupt, InputUnsupported: see
            `graphtrace.ingest.nsys_open.open_export`.
    """
    with open_export(path, pages=pages) as database:
        gathered = gather(database)
    return source_of(gathered, path, "nsys_sqlite")


def gather(export: Export) -> "Gathered":
    """Read from an open export all that is needed of it.

    Raises:
        InputUnsupported: a table lacks a column that its rows mean nothing without.
        sqlite3.DatabaseError, InputCorrupt: the export is damaged.
    """
    quarantine = Quarantine()
    version, synthetic = exporter(export)
    raw = read_raw(export, quarantine)
    samples = read_samples(export, quarantine)
    names = _names(export, raw, quarantine)
    return Gathered(version, synthetic, raw, samples, names, quarantine, export.leftovers)


def source_of(gathered: "Gathered", path: Path, kind: InputKind) -> Source:
    """The model's tables of what was gathered from an export, whatever it was stored as."""
    version, raw, names, quarantine = (
        gathered.version,
        gathered.raw,
        gathered.names,
        gathered.quarantine,
    )
    leftovers = gathered.leftovers
    info = InputInfo(str(path), kind, "nsys", version, gathered.synthetic)
    processes = index_processes(raw)
    if not _has_work(raw):
        keys = Keys(processes)
        calls = None if raw.api is None else collect_calls(raw.api, keys, names.calls)
        tables = _host_tables(raw, keys, calls, names, quarantine)
        nothing = no_work(path, version, raw, calls, quarantine)
        return Source(info, TableSet(tables), leftovers, nothing=nothing)
    keys = device_keys(raw, processes)
    calls = None if raw.api is None else collect_calls(raw.api, keys, names.calls)
    work = collect_work(raw, keys, names.kernels, quarantine, calls)
    replayed = collect_replays(work, calls)
    graphs = collect_graphs(replayed, raw.node_events, raw.graph_events, keys)
    of_replay = _replay_graphs(replayed, graphs)
    said = warnings_of(raw, work, replayed, unseen_launches(calls, work))
    sampled = _counters(gathered.samples, keys, raw, quarantine)
    tables = _host_tables(raw, keys, calls, names, quarantine)
    tables |= {
        "devices": device_table(keys.devices, raw.gpus),
        "replays": _replay_table(replayed, of_replay, calls),
        "graphs": graphs.graph_table(),
        "execs": graphs.exec_table(),
        "activities": _activity_table(work, replayed, of_replay[1]),
        **sampled,
    }
    steps = server_steps(tables["ranges"]) if "ranges" in tables else None
    if steps is not None:
        tables["batches"] = steps
    return Source(info, TableSet(tables), (*leftovers, *keys.warnings, *said))


def exporter(export: Export) -> tuple[str | None, bool]:
    """Version of the nsys that wrote the export, and whether we built it ourselves."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        low = export.find(table)
        if low is None or not export.has(table, "name", "value"):
            continue
        found = export.records(low, (_VERSION, SYNTHETIC_MARK))
        return found.get(_VERSION), SYNTHETIC_MARK in found
    return None, False


def _ids(frame: Frame | None, *columns: str) -> set[int]:
    if frame is None:
        return set()
    return {number for column in columns for number in _known_values(frame, column)}


def _known_values(frame: Frame, column: str) -> list[int]:
    known = frame.known(column)
    every = known.all()
    values = frame.distinct(column) if every else np.unique(frame.get(column)[known])
    return [int(value) for value in values]


@dataclass(frozen=True, slots=True)
class _Names:
    """Strings by id, of kernels, of API calls and of ranges with their domains."""

    kernels: dict[int, str]
    calls: dict[int, str]
    ranges: dict[int, str]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was read of an export.

    Attributes:
        version: version of the nsys that wrote it.
        synthetic: whether `graphtrace.testing` wrote it.
        raw: rows of its tables.
        samples: GPU metrics; None where it has none.
        names: the strings that they name.
        quarantine: rows refused so far.
        leftovers: sentences on what the export lost before it came here.
    """

    version: str | None
    synthetic: bool
    raw: Raw
    samples: Samples | None
    names: _Names
    quarantine: Quarantine
    leftovers: tuple[str, ...]


def _names(export: Export, raw: Raw, quarantine: Quarantine) -> _Names:
    wanted = _ids(raw.kernels, "demangledName")
    kernels = lookup(export, wanted, quarantine, meant_for="activities")
    if len(kernels) < len(wanted) or (raw.kernels is not None and not wanted):
        short = _ids(raw.kernels, "shortName")
        kernels |= lookup(export, short - wanted, quarantine, meant_for="activities")
    calls = lookup(export, _ids(raw.api, "nameId"), quarantine, meant_for="api_calls")
    texts = _ids(raw.nvtx, "textId") | _ids(raw.domains, "textId")
    return _Names(kernels, calls, lookup(export, texts, quarantine, meant_for="ranges"))


def _has_work(raw: Raw) -> bool:
    """Whether there is a kernel, a copy or an opaque replay; memsets alone are no work."""
    frames = (raw.kernels, raw.copies, raw.opaque)
    return any(frame is not None and frame.rows for frame in frames)


def _host_tables(
    raw: Raw, keys: Keys, calls: Calls | None, names: _Names, quarantine: Quarantine
) -> dict[str, pa.Table]:
    tables = {"processes": process_table(keys.processes), "quarantine": quarantine.table()}
    if calls is not None:
        tables["api_calls"] = api_table(calls)
    if raw.nvtx is not None:
        tables["ranges"] = range_table(raw.nvtx, raw.domains, keys, names.ranges)
    if raw.node_events is not None:
        tables["graph_events"] = event_table(raw.node_events, keys)
    return tables


def _counters(
    samples: Samples | None, keys: Keys, raw: Raw, quarantine: Quarantine
) -> dict[str, pa.Table]:
    if samples is None:
        return {}
    return {"counters": counter_table(samples, keys, raw.gpus, quarantine)}


def _rows(pairs: Ints, process: Ints, number: Ints, known: Flags) -> Ints:
    """Row of each (process, number) in sorted pairs; -1 where it is not known."""
    if not len(pairs) or not len(process):
        return np.full(len(process), -1, dtype=np.int64)
    place = {pair: row for row, pair in enumerate(map(tuple, pairs.tolist()))}
    words, code = few(number)
    wanted, inverse = few(process * len(words) + code)
    owners, numbers_ = wanted // len(words), words[wanted % len(words)]
    found = [place.get(pair, -1) for pair in zip(owners.tolist(), numbers_.tolist(), strict=True)]
    return np.where(known, np.asarray(found, dtype=np.int64)[inverse], -1)


def _replay_graphs(replayed: Replayed, graphs: Graphs) -> tuple[Ints, Ints]:
    """Exec and graph row of each replay, -1 where it is not known."""
    execs = _rows(graphs.execs, replayed.process, replayed.exec_id, replayed.exec_known)
    own = _rows(graphs.graphs, replayed.process, replayed.graph_id, replayed.graph_known)
    if len(graphs.exec_graph):
        own = np.where(own >= 0, own, np.where(execs >= 0, graphs.exec_graph[execs], -1))
    return execs, own


def _replay_table(
    replayed: Replayed, of_replay: tuple[Ints, Ints], calls: Calls | None
) -> pa.Table:
    execs, own = of_replay
    launched = replayed.call >= 0
    columns: dict[str, Any] = {
        "replay": np.arange(len(replayed.begin)),
        "exec": numbers(execs, pa.int32(), execs >= 0),
        "graph": numbers(own, pa.int32(), own >= 0),
        "process": replayed.process,
        "device": replayed.device,
        "stream": numbers(replayed.stream, pa.int64(), replayed.stream >= 0),
        "correlation": numbers(replayed.correlation, pa.int64(), replayed.correlated),
        "begin_ns": replayed.begin,
        "end_ns": replayed.end,
    }
    if calls is not None and len(calls.begin):
        call = np.where(launched, replayed.call, 0)
        columns["launch_begin_ns"] = numbers(calls.begin[call], pa.int64(), launched)
        columns["launch_end_ns"] = numbers(calls.end[call], pa.int64(), launched)
    return make_table("replays", len(replayed.begin), columns)


def _activity_table(work: Work, replayed: Replayed, own: Ints) -> pa.Table:
    in_replay = replayed.of_activity >= 0

    def column(name: str, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        return column_of(work.values.pop(name), kind, work.valid.pop(name, None))

    kinds, names = work.values.pop("kind"), work.values.pop("name")
    columns: dict[str, Any] = {
        "activity": np.arange(work.rows, dtype=np.int32),
        "process": column("process", pa.int32()),
        "device": column("device", pa.int32()),
        "context": column("context", pa.int32()),
        "stream": column("stream", pa.int64()),
        "kind": words_of(kinds, KINDS),
        "name": words_of(names, work.words, work.valid.pop("name", None)),
        "begin_ns": column("begin", pa.int64()),
        "end_ns": column("end", pa.int64()),
        "correlation": column("correlation", pa.int64()),
        "registers": column("registers", pa.int32()),
        "shared_bytes": column("shared", pa.int64()),
        "bytes": column("bytes", pa.int64()),
        "node_native_id": column("node", pa.int64()),
        "replay": numbers(replayed.of_activity, pa.int32(), in_replay),
    }
    if (own >= 0).any():
        # -1 reaches the last entry.
        graph = np.append(own, -1).astype(np.int32)[replayed.of_activity]
        columns["graph"] = numbers(graph, pa.int32(), graph >= 0)
    for name in DIMENSIONS:
        columns[f"{name[:-1]}_{name[-1].lower()}"] = column(name, pa.int64())
    return make_table("activities", work.rows, columns)
