# SPDX-License-Identifier: Apache-2.0
"""Rows of an SQLite export.

Two ways give rows in chunks: one decodes the pages of the file, the other asks SQL. The first is
fast, and gives up where anything is out of the ordinary; the second is simple, reads all that
SQLite reads, and is what the first one is tested against. Which of them read a table changes
nothing.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_cells import Column
from graphtrace.ingest.nsys_export import Only
from graphtrace.ingest.sqlite_pages import (
    Cells,
    Chunk,
    NotPlain,
    Numbers,
    PageFile,
    Want,
    table_chunks,
)

__all__ = ["page_chunks", "records", "sql_chunks", "strings"]

_CHUNK_ROWS: Final = 8_192
_IDS_PER_QUERY: Final = 500
"""Bound values of one query; SQLite promises at least 999."""

Flags = npt.NDArray[np.bool_]


def page_chunks(
    connection: sqlite3.Connection,
    pages: PageFile,
    table: str,
    have: Mapping[str, str],
    columns: Sequence[Column],
    only: Only | None,
) -> Iterator[Chunk]:
    """Rows decoded from pages.

    Args:
        connection: SQL access to the same file.
        pages: its pages.
        table: real name of the table.
        have: real name of each of its columns by lower-case name.
        columns: columns wanted.
        only: which rows.

    Raises:
        NotPlain: now or later, that SQL must be asked; what came before is then void.
        sqlite3.DatabaseError: the file is damaged.
    """
    wants = [Want(have[column.name.lower()], column.text, column.real) for column in columns]
    if only is not None:
        wants.append(Want(have[only.column.lower()]))
    for chunk in table_chunks(pages, connection, table, wants):
        yield chunk if only is None else _filtered(chunk, only)


def _filtered(chunk: Chunk, only: Only) -> Chunk:
    """The rows that the condition, whose column is the last one, lets through."""
    *columns, tested = chunk.columns
    if not isinstance(tested, Numbers):
        raise NotPlain("SQL compares values of different types by its own rules")
    keep = np.isin(tested.values, only.values)
    if tested.valid is not None:
        keep = keep & tested.valid | ~tested.valid if only.odd else keep & tested.valid
    if keep.all():
        return Chunk(chunk.rows, columns)
    return Chunk(int(np.count_nonzero(keep)), [_kept(cells, keep) for cells in columns])


def _kept(cells: Numbers | Cells, keep: Flags) -> Numbers | Cells:
    if not isinstance(cells, Numbers):
        return tuple(compress(cells, keep.tolist()))
    return Numbers(cells.values[keep], None if cells.valid is None else cells.valid[keep])


def sql_chunks(
    connection: sqlite3.Connection,
    table: str,
    have: Mapping[str, str],
    columns: Sequence[Column],
    only: Only | None,
) -> Iterator[Chunk]:
    """Rows as SQL gives them; see `page_chunks` for the arguments.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    cells = ", ".join(_cell(column, have[column.name.lower()]) for column in columns)
    where = ""
    if only is not None:
        name = _quoted(have[only.column.lower()])
        where = f"WHERE {name} IN ({', '.join(map(str, only.values))})"
        where += f" OR typeof({name}) <> 'integer'" if only.odd else ""
    # An index of a stranger could say something else than the table.
    statement = f"SELECT {cells} FROM {_quoted(table)} NOT INDEXED {where}"
    cursor = connection.execute(statement)
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        yield Chunk(len(rows), list(zip(*rows, strict=True)))


def strings(
    connection: sqlite3.Connection, table: str, key: str, value: str, ids: Sequence[int]
) -> Iterator[tuple[int, bytes | None]]:
    """Texts of a table by id, for these ids; None is a value that is no text."""
    key, value = _quoted(key), _quoted(value)
    for at in range(0, len(ids), _IDS_PER_QUERY):
        part = ids[at : at + _IDS_PER_QUERY]
        marks = ",".join("?" * len(part))
        statement = (
            f"SELECT {key}, typeof({value}), {value} FROM {_quoted(table)} WHERE {key} IN ({marks})"
        )
        for number, kind, text in connection.execute(statement, part):
            yield int(number), text if kind == b"text" else None


def records(
    connection: sqlite3.Connection, table: str, have: Mapping[str, str], names: Sequence[str]
) -> dict[str, str]:
    """Texts of column `value` by `name`, for these names."""
    name, value = _quoted(have["name"]), _quoted(have["value"])
    statement = (
        f"SELECT {name}, {value} FROM {_quoted(table)} "
        f"WHERE {name} IN ({', '.join('?' * len(names))}) AND typeof({value}) = 'text'"
    )
    rows = connection.execute(statement, tuple(names)).fetchall()
    return {_text(row[0]): _text(row[1]) for row in rows}


def _text(cell: object) -> str:
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(column: Column, name: str) -> str:
    if not column.text:
        return _quoted(name)
    # Texts and blobs both come as bytes; a blob is made a number, which text columns refuse.
    return f"CASE typeof({_quoted(name)}) WHEN 'blob' THEN 0 ELSE {_quoted(name)} END"
