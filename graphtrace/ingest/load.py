# SPDX-License-Identifier: Apache-2.0
"""Load one or several inputs into one trace."""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.sniff import sniff
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import as_numpy, codes_of, make_table, numbers, strings, valid_of
from graphtrace.model.errors import UsageError
from graphtrace.model.schema import TABLES, KeySpace
from graphtrace.model.trace import TableSet, Trace
from graphtrace.model.vocabulary import InputKind

__all__ = ["load", "merge", "read_source"]

READERS: Final[dict[InputKind, str]] = {
    "gtrace": "graphtrace.ingest.gtrace",
    "kineto": "graphtrace.ingest.kineto",
    "ncu_csv": "graphtrace.ingest.ncu_csv",
    "ncu_rep": "graphtrace.ingest.ncu_rep",
    "nsys_parquetdir": "graphtrace.ingest.nsys_parquet",
    "nsys_rep": "graphtrace.ingest.nsys_rep",
    "nsys_sqlite": "graphtrace.ingest.nsys_sqlite",
}
"""Module of the reader of each kind; it is imported when the first such file is read."""


def load(*paths: str | os.PathLike[str]) -> Trace:
    """Read files that profilers or `graphtrace capture` wrote, and join them into one trace.

    Args:
        paths: one or more files or recordings; what they are is decided by their content.

    Raises:
        UsageError: no path, or the same file twice.
        InputError: a file cannot be read; the error says which and why.
    """
    if not paths:
        raise UsageError(
            "No input was given.",
            "There is nothing to read.",
            "Give a report, an export or a recording: graphtrace analyze report.ncu-rep",
        )
    places = [Path(path) for path in paths]
    _refuse_twins(places)
    return merge([read_source(place) for place in places])


def read_source(path: Path) -> Source:
    """Read one input by the reader of its kind; raises as `load`."""
    reader: Callable[[Path], Source] = import_module(READERS[sniff(path)]).read
    return reader(path)


def _refuse_twins(places: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for place in places:
        first = seen.setdefault(os.path.realpath(place), place)
        if first is not place:
            raise UsageError(
                f"{place} was given twice.",
                "Its work would be counted twice.",
                "Give every input once.",
            )


def merge(sources: Sequence[Source]) -> Trace:
    """Join sources into a trace: shift their keys apart, then make stages of one path one stage.

    Args:
        sources: in the order that the user gave.

    Returns:
        A trace with every table that any source carries. Row order within a source is kept.
    """
    offsets: dict[KeySpace, int] = {}
    parts: dict[str, list[pa.Table]] = {}
    for number, source in enumerate(sources):
        sizes = _key_counts(source.tables)
        for name, table in source.tables.tables.items():
            shift = {**offsets, "source": number}
            parts.setdefault(name, []).append(_shifted(name, table, shift))
        for space, count in sizes.items():
            offsets[space] = offsets.get(space, 0) + count
    tables = {
        name: tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        for name, tables in parts.items()
    }
    costs = [source.cost for source in sources if source.cost is not None]
    return Trace(
        inputs=tuple(source.info for source in sources),
        tables=TableSet(_one_stage_a_path(tables)),
        warnings=tuple(dict.fromkeys(w for source in sources for w in source.warnings)),
        cost=costs[0] if len(costs) == 1 else None,
        nothing=tuple(source.nothing for source in sources if source.nothing is not None),
    )


def _key_counts(tables: TableSet) -> dict[KeySpace, int]:
    """One more than the largest key used in each key space."""
    counts: dict[KeySpace, int] = {}
    for name, table in tables.tables.items():
        for column in TABLES[name].columns:
            if column.key is None or column.key == "source":
                continue
            keys = as_numpy(table.column(column.name))[valid_of(table.column(column.name))]
            if len(keys):
                counts[column.key] = max(counts.get(column.key, 0), int(keys.max()) + 1)
    return counts


def _shifted(name: str, table: pa.Table, offsets: dict[KeySpace, int]) -> pa.Table:
    for index, column in enumerate(TABLES[name].columns):
        offset = 0 if column.key is None else offsets.get(column.key, 0)
        if offset:
            old = table.column(index)
            new = numbers(as_numpy(old) + offset, column.type, valid_of(old))
            table = table.set_column(index, table.schema.field(index), new)
    return table


def _one_stage_a_path(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Map the stages of all sources to one row a path, and every reference to them."""
    stages = tables.get("stages")
    if stages is None or stages.num_rows == 0:
        return tables
    keys = as_numpy(stages.column("stage"))
    paths = stages.column("path").to_pylist()
    first: dict[str, int] = {}
    target = np.arange(int(keys.max()) + 1, dtype=np.int32)
    keep = np.zeros(len(paths), dtype=np.bool_)
    for row, path in enumerate(paths):
        if path not in first:
            first[path] = len(first)
            keep[row] = True
        target[keys[row]] = first[path]
    renamed = {
        name: _remapped(name, table, target) for name, table in tables.items() if name != "stages"
    }
    renamed["stages"] = _kept(_remapped("stages", stages, target), keep)
    return {name: renamed[name] for name in tables}


def _remapped(name: str, table: pa.Table, target: npt.NDArray[np.int32]) -> pa.Table:
    for index, column in enumerate(TABLES[name].columns):
        if column.key != "stage" or table.num_rows == 0:
            continue
        old = table.column(index)
        valid = valid_of(old)
        new = numbers(target[np.where(valid, as_numpy(old), 0)], column.type, valid)
        table = table.set_column(index, table.schema.field(index), new)
    return table


def _kept(stages: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    rows = np.flatnonzero(keep)
    codes, words = codes_of(stages.column("origin"))
    parent = stages.column("parent")
    path, name = stages.column("path").to_pylist(), stages.column("name").to_pylist()
    return make_table(
        "stages",
        len(rows),
        {
            "stage": as_numpy(stages.column("stage"))[rows],
            "parent": numbers(as_numpy(parent)[rows], pa.int32(), valid_of(parent)[rows]),
            "path": strings([path[row] for row in rows]),
            "name": strings([name[row] for row in rows]),
            "origin": pa.DictionaryArray.from_arrays(
                numbers(codes[rows], pa.int32()), strings(words)
            ),
        },
    )
