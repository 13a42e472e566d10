# SPDX-License-Identifier: Apache-2.0
"""Columns of an SQLite table, decoded from its pages.

SQL hands over rows one Python object a cell, which is the limit of every reader that asks it. Here
the b-tree of the table is walked and its leaf pages are decoded many at a time. That gives what SQL
gives or it gives nothing: where anything about the file, the table or a row is out of the ordinary,
`NotPlain` is raised and the caller asks SQL for the whole table.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphtrace.ingest.sqlite_file import NotPlain, PageFile, open_pages
from graphtrace.ingest.sqlite_records import Cells, Decoder, Numbers, Wanted

__all__ = [
    "Cells",
    "Chunk",
    "NotPlain",
    "Numbers",
    "PageFile",
    "Want",
    "open_pages",
    "table_chunks",
]

CHUNK_BYTES: Final = 4 << 20
"""Pages decoded at a time; their columns then stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Want:
    """A column wanted: its real name, and whether it holds text, or numbers that are made reals."""

    name: str
    text: bool = False
    real: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table, column by column in the order in which they were wanted."""

    rows: int
    columns: Sequence[Numbers | Cells]


def table_chunks(
    file: PageFile, connection: sqlite3.Connection, table: str, columns: Sequence[Want]
) -> Iterator[Chunk]:
    """All rows of a table, in order of row id.

    Args:
        file: the pages.
        connection: SQL access to the same file, for its schema.
        table: real name of the table.
        columns: columns that it has.

    Raises:
        NotPlain: now or later, that SQL must be asked; what came before is then void.
        sqlite3.DatabaseError: the schema is damaged.
    """
    root = _root(connection, table)
    names = _stored(connection, table, columns)
    wanted = [Wanted(names.index(column.name), column.text) for column in columns]
    leaves = file.leaves(root)
    alone = len(leaves) == 1 and int(leaves[0]) == root
    decoder = Decoder(file, len(names), wanted)
    buffer = None
    many = max(CHUNK_BYTES // file.page, 1)
    for at in range(0, len(leaves), many):
        block = file.read(leaves[at : at + many], buffer)
        buffer = block if buffer is None else buffer
        rows, made = decoder.columns(block, root=alone)
        if rows:
            yield Chunk(rows, made)


def _root(connection: sqlite3.Connection, table: str) -> int:
    statement = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
    rows = connection.execute(statement, (table,)).fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 2:
        raise NotPlain("the table has no root page of its own")
    return rows[0][0]


def _stored(connection: sqlite3.Connection, table: str, columns: Sequence[Want]) -> list[str]:
    """Names of the columns in the order in which records hold them."""
    quoted = table.replace('"', '""')
    names = []
    wanted = {column.name for column in columns}
    real = {column.name for column in columns if column.real}
    for row in connection.execute(f'PRAGMA table_xinfo("{quoted}")').fetchall():
        name, declared, key, hidden = _text(row[1]), _text(row[2]), row[5], row[6]
        # A primary key may be the row id, which records do not hold, or order the whole table.
        if key or hidden:
            raise NotPlain("the table has a primary key or a generated column")
        # Integers in a column of reals are stored as integers and read as reals.
        if name in wanted - real and _is_real(declared):
            raise NotPlain("a column is declared to hold reals")
        names.append(name)
    if not wanted <= set(names) or len(set(names)) != len(names):
        raise NotPlain("the table has other columns")
    return names


def _text(cell: Any) -> str:
    return cell.decode("utf-8") if isinstance(cell, bytes) else str(cell)


def _is_real(declared: str) -> bool:
    """Whether a declared type has affinity REAL, by SQLite's rules (datatype3.html 3.1)."""
    upper = declared.upper()
    if any(word in upper for word in ("INT", "CHAR", "CLOB", "TEXT", "BLOB")):
        return False
    return any(word in upper for word in ("REAL", "FLOA", "DOUB"))
