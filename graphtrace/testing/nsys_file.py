# SPDX-License-Identifier: Apache-2.0
"""Rows of a synthetic export, kept as columns and written in bulk."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.model.errors import OutputError
from graphtrace.testing.nsys_schema import Declared, Dialect

__all__ = ["Cells", "Rows", "Strings", "write_database"]

_CHUNK_ROWS: Final = 65_536
Cells = npt.NDArray[Any] | int | float | str | None
"""A column of a block of rows: an array, or one value that all rows share."""


@dataclass(slots=True)
class Strings:
    """Texts by id, numbered in the order in which they are first used."""

    ids: dict[str, int] = field(default_factory=dict)

    def id(self, text: str) -> int:
        """Id of a text."""
        return self.ids.setdefault(text, len(self.ids) + 1)


@dataclass(slots=True)
class Rows:
    """Blocks of rows by table."""

    blocks: dict[str, list[tuple[int, dict[str, Cells]]]] = field(default_factory=dict)

    def add(self, table: str, count: int, columns: Mapping[str, Cells]) -> None:
        """Add rows to a table; columns that are not given are null.

        Args:
            table: name of the table.
            count: number of rows.
            columns: an array of `count` values, or one value for all rows, by column name.
        """
        self.blocks.setdefault(table, []).append((count, dict(columns)))

    def count(self, table: str) -> int:
        """Number of rows of a table."""
        return sum(count for count, _ in self.blocks.get(table, ()))

    def ordered(self, column: str) -> "Rows":
        """The same rows, those of each table that has the column in its order.

        Profilers write in order of time. Rows of one time stay as they were added.
        """
        return Rows({table: _ordered(blocks, column) for table, blocks in self.blocks.items()})

    def tuples(self, table: str, declared: Declared) -> Iterator[tuple[Any, ...]]:
        """Rows of a table in the order of its declared columns."""
        for count, columns in self.blocks.get(table, ()):
            unknown = set(columns) - {name for name, _ in declared}
            if unknown:
                raise TypeError(f"table {table} has no column {', '.join(sorted(unknown))}")
            for start in range(0, count, _CHUNK_ROWS):
                stop = min(start + _CHUNK_ROWS, count)
                parts = [_part(columns.get(name), start, stop) for name, _ in declared]
                yield from zip(*parts, strict=True)


_Block = tuple[int, dict[str, Cells]]


def _ordered(blocks: list[_Block], column: str) -> list[_Block]:
    if not any(column in columns for _, columns in blocks):
        return blocks
    times = _joined(blocks, column)
    if not isinstance(times, np.ndarray) or times.dtype != np.int64:
        return blocks
    total = sum(count for count, _ in blocks)
    names = dict.fromkeys(name for _, columns in blocks for name in columns)
    order = np.argsort(times, kind="stable")
    merged: dict[str, Cells] = {}
    for name in names:
        cells = _joined(blocks, name)
        merged[name] = cells[order] if isinstance(cells, np.ndarray) and len(cells) else cells
    return [(total, merged)]


def _joined(blocks: list[_Block], name: str) -> Cells:
    """A column of all blocks: an array, or the one value that all of them share."""
    cells = [(count, columns.get(name)) for count, columns in blocks]
    plain = [cell for _, cell in cells if not isinstance(cell, np.ndarray)]
    if len(plain) == len(cells) and all(
        type(cell) is type(plain[0]) and cell == plain[0] for cell in plain
    ):
        return plain[0]
    whole = all(isinstance(cell, int) for cell in plain) and all(
        cell.dtype == np.int64 for _, cell in cells if isinstance(cell, np.ndarray)
    )
    kind = np.int64 if whole else np.object_
    parts = [
        cell.astype(kind) if isinstance(cell, np.ndarray) else _repeated(cell, count, kind)
        for count, cell in cells
    ]
    return np.concatenate(parts)


def _repeated(cell: Any, count: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    array = np.empty(count, dtype=kind)
    array[:] = cell
    return array


def _part(cells: Cells, start: int, stop: int) -> Any:
    if isinstance(cells, np.ndarray):
        return cells[start:stop].tolist()
    return repeat(cells, stop - start)


def write_database(
    path: Path, dialect: Dialect, rows: Rows, tables: list[str], *, force: bool = False
) -> None:
    """Write an export; it appears whole or not at all.

    Args:
        path: file to write.
        dialect: what its tables look like.
        rows: their rows.
        tables: tables to create, in order; others are absent, as in an export of nsys.
        force: replace a file that exists.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    if path.exists() and not force:
        raise OutputError(
            f"{path} exists already.",
            "It would be replaced.",
            "Choose another name, or say --force.",
        )
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(part)) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA synchronous=OFF")
            for table in tables:
                _write_table(connection, table, dialect.tables[table], rows)
            connection.commit()
        part.replace(path)
    except (OSError, sqlite3.OperationalError) as error:
        part.unlink(missing_ok=True)
        raise OutputError(
            f"{path} cannot be written.",
            f"The system says: {error}.",
            "Check that the folder exists, may be written to, and has space.",
        ) from error


def _write_table(
    connection: sqlite3.Connection, table: str, declared: Declared, rows: Rows
) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in declared)
    connection.execute(f'CREATE TABLE "{table}" ({columns})')
    marks = ", ".join("?" * len(declared))
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows.tuples(table, declared))
