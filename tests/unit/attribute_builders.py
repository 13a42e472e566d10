# SPDX-License-Identifier: Apache-2.0
"""Traces made by hand: rows as keyword arguments, times in ns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtrace.model.arrays import encode, lists, make_table, numbers, strings
from graphtrace.model.schema import TABLES
from graphtrace.model.trace import InputInfo, TableSet, Trace

Row = Mapping[str, Any]


def table(name: str, rows: Sequence[Row]) -> pa.Table:
    """A table of the schema from rows; what a row does not name is null."""
    columns: dict[str, Any] = {}
    for column in TABLES[name].columns:
        values = [row.get(column.name) for row in rows]
        if pa.types.is_dictionary(column.type):
            columns[column.name] = encode(values)
        elif pa.types.is_string(column.type):
            columns[column.name] = strings(values)
        elif pa.types.is_list(column.type):
            columns[column.name] = lists(values, column.type.value_type)
        else:
            valid = np.asarray([value is not None for value in values], dtype=np.bool_)
            columns[column.name] = numbers([v or 0 for v in values], column.type, valid)
    return make_table(name, len(rows), columns)


def trace(**tables: Sequence[Row]) -> Trace:
    """A trace of these tables."""
    built = {name: table(name, rows) for name, rows in tables.items()}
    return Trace((InputInfo("made by hand", "nsys_sqlite"),), TableSet(built))


def push(
    begin: int, end: int | None, text: str, *, domain: str = "", thread: int = 1, process: int = 0
) -> Row:
    """A push/pop range."""
    return {
        "process": process,
        "thread": thread,
        "domain": domain,
        "text": text,
        "kind": "push_pop",
        "begin_ns": begin,
        "end_ns": end,
    }


def kernel(key: int, begin: int, end: int, **more: Any) -> Row:
    """A kernel; its correlation id is its key unless told otherwise."""
    return {
        "activity": key,
        "process": 0,
        "device": 0,
        "stream": 7,
        "kind": "kernel",
        "name": "k",
        "begin_ns": begin,
        "end_ns": end,
        "correlation": key,
        **more,
    }


def call(correlation: int, begin: int, *, thread: int = 1, process: int = 0) -> Row:
    """A call that launches something."""
    return {
        "process": process,
        "thread": thread,
        "name": "cudaLaunchKernel",
        "correlation": correlation,
        "begin_ns": begin,
        "end_ns": begin + 5,
    }


def event(node: int, origin: int | None, time: int, *, thread: int = 1, process: int = 0) -> Row:
    """Creation of a node, or its cloning from `origin`."""
    return {
        "process": process,
        "thread": thread,
        "time_ns": time,
        "node_native_id": node,
        "origin_native_id": origin,
    }


def shuffled(made: Trace, seed: int) -> Trace:
    """The same trace with the rows of every table in another order."""
    order = np.random.default_rng(seed)
    tables = {
        name: one.take(numbers(order.permutation(one.num_rows), pa.int64()))
        for name, one in made.tables.tables.items()
    }
    return Trace(made.inputs, TableSet(tables), made.warnings)


def stage_paths(attributed: Trace, name: str = "activities") -> list[str | None]:
    """Stage path of each row."""
    path = dict(
        zip(
            attributed.stages.column("stage").to_pylist(),
            attributed.stages.column("path").to_pylist(),
            strict=True,
        )
    )
    return [path.get(key) for key in attributed.table(name).column("stage").to_pylist()]


def times_by_path(attributed: Trace) -> dict[tuple[int, int | None, str | None], tuple[int, ...]]:
    """Busy, alone, idle and kernels by (unit, device, path)."""
    paths = stage_paths(attributed, "stage_times")
    rows = attributed.stage_times.to_pylist()
    return {
        (row["unit"], row["device"], path): (
            row["busy_ns"],
            row["alone_ns"],
            row["idle_ns"],
            row["kernels"],
        )
        for row, path in zip(rows, paths, strict=True)
    }
