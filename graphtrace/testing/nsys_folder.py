# SPDX-License-Identifier: Apache-2.0
"""The rows of a synthetic export, written as `nsys export --type parquetdir` does."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphtrace.model.arrays import numbers, strings
from graphtrace.model.errors import OutputError
from graphtrace.testing.nsys_file import Rows
from graphtrace.testing.nsys_schema import Declared, Dialect

__all__ = ["write_folder"]


def write_folder(
    path: Path, dialect: Dialect, rows: Rows, tables: list[str], *, force: bool = False
) -> None:
    """Write an export as a folder with a file a table; it appears whole or not at all.

    Args:
        path: folder to write.
        dialect: what its tables look like.
        rows: their rows.
        tables: tables to write; others are absent, as in an export of nsys.
        force: replace a folder that exists, if it holds tables and nothing else.

    Raises:
        OutputError: the folder exists, or cannot be written.
    """
    if os.path.lexists(path):
        _check_replaceable(path, force=force)
    part = path.with_name(path.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for table in tables:
            pq.write_table(_table(dialect.tables[table], rows, table), part / f"{table}.parquet")
        if path.is_dir():
            shutil.rmtree(path)
        part.replace(path)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise OutputError(
            f"{path} cannot be written.",
            f"The system says: {error}.",
            "Check that the folder exists, may be written to, and has space.",
        ) from error


def _check_replaceable(path: Path, *, force: bool) -> None:
    if not force:
        raise OutputError(
            f"{path} exists already.",
            "It would be replaced.",
            "Choose another name, or say --force.",
        )
    ours = path.is_dir() and not path.is_symlink()
    if not ours or any(entry.suffix != ".parquet" for entry in path.iterdir()):
        raise OutputError(
            f"{path} is not a folder of Parquet files alone.",
            "What else is there would be lost.",
            "Choose another name.",
        )


def _table(declared: Declared, rows: Rows, table: str) -> pa.Table:
    cells = list(zip(*rows.tuples(table, declared), strict=True))
    names = [name for name, _ in declared]
    arrays = [_array(kind, column) for (_, kind), column in zip(declared, cells, strict=True)]
    return pa.Table.from_arrays(arrays, names=names)


def _array(kind: str, cells: Sequence[Any]) -> pa.Array:
    if kind.startswith("TEXT"):
        return strings(cells)
    known = np.asarray([cell is not None for cell in cells], dtype=np.bool_)
    stored = pa.float64() if kind.startswith("REAL") else pa.int64()
    return numbers([0 if cell is None else cell for cell in cells], stored, known)
