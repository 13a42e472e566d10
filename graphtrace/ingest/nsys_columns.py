# SPDX-License-Identifier: Apache-2.0
"""Columns of an export as numpy arrays, cell types checked.

Two readers give rows in chunks: one decodes the pages of the file, the other asks SQL. The first is
fast, and gives up where anything is out of the ordinary; the second is simple, reads all that
SQLite reads, and is what the first one is tested against. Which of them read a table changes
nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_cells import Column, Pile
from graphtrace.ingest.nsys_frame import Frame
from graphtrace.ingest.nsys_open import Database
from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.sqlite_pages import (
    Cells,
    Chunk,
    NotPlain,
    Numbers,
    PageFile,
    Want,
    table_chunks,
)
from graphtrace.model.errors import InputUnsupported

__all__ = ["Column", "Frame", "Only", "fetch", "lookup"]

_CHUNK_ROWS: Final = 8_192
_IDS_PER_QUERY: Final = 500
"""Bound values of one query; SQLite promises at least 999."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Only:
    """A condition: rows whose cell in `column` is one of `values`.

    Attributes:
        odd: whether rows whose cell there is no integer are read too, to be counted as refused.
    """

    column: str
    values: tuple[int, ...]
    odd: bool = False


def fetch(
    database: Database,
    table: str,
    wanted: Sequence[Column],
    quarantine: Quarantine,
    *,
    meant_for: str,
    only: Only | None = None,
) -> Frame | None:
    """Read columns of a table.

    Args:
        database: the export.
        table: nsys' name of the table.
        wanted: columns; one that is absent is left out, unless it is needed.
        quarantine: where rows with wrongly typed cells are counted.
        meant_for: model table that the rows are meant for.
        only: which rows to read; a condition on a column that is absent reads all.

    Returns:
        The columns, or None where the table is absent.

    Raises:
        InputUnsupported: the table lacks a column that its rows mean nothing without.
        sqlite3.DatabaseError: the file is damaged.
    """
    low = database.find(table)
    if low is None:
        return None
    have = database.columns[low]
    missing = [
        column.name for column in wanted if column.needed and column.name.lower() not in have
    ]
    if missing:
        raise InputUnsupported(
            f"{database.path} is an export of nsys in a form that is not known.",
            f"Its table {database.tables[low]} has no column {', '.join(missing)}.",
            "Export the report again with a newer nsys: nsys export --type sqlite REPORT.nsys-rep",
        )
    columns = [column for column in wanted if column.name.lower() in have]
    if not columns:
        return Frame(0)
    if only is not None and only.column.lower() not in have:
        only = None
    if database.pages is not None:
        own = Quarantine()
        try:
            chunks = _page_chunks(database, database.pages, low, columns, only)
            frame = _piled(chunks, columns, own, meant_for)
        except NotPlain:
            pass  # What was read and counted so far is let go.
        else:
            quarantine.merge(own)
            return frame
    return _piled(_sql_chunks(database, low, columns, only), columns, quarantine, meant_for)


def _piled(
    chunks: Iterable[Chunk], columns: Sequence[Column], quarantine: Quarantine, meant_for: str
) -> Frame:
    pile = Pile(columns)
    for chunk in chunks:
        pile.add(chunk.rows, chunk.columns, quarantine, meant_for)
    return pile.frame()


def _page_chunks(
    database: Database, pages: PageFile, low: str, columns: Sequence[Column], only: Only | None
) -> Iterator[Chunk]:
    have, table = database.columns[low], database.tables[low]
    wants = [Want(have[column.name.lower()], column.text, column.real) for column in columns]
    if only is not None:
        wants.append(Want(have[only.column.lower()]))
    for chunk in table_chunks(pages, database.connection, table, wants):
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


def _sql_chunks(
    database: Database, low: str, columns: Sequence[Column], only: Only | None
) -> Iterator[Chunk]:
    have = database.columns[low]
    cells = ", ".join(_cell(column, have[column.name.lower()]) for column in columns)
    where = ""
    if only is not None:
        name = _quoted(have[only.column.lower()])
        where = f"WHERE {name} IN ({', '.join(map(str, only.values))})"
        where += f" OR typeof({name}) <> 'integer'" if only.odd else ""
    # An index of a stranger could say something else than the table.
    statement = f"SELECT {cells} FROM {_quoted(database.tables[low])} NOT INDEXED {where}"
    cursor = database.connection.execute(statement)
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        yield Chunk(len(rows), list(zip(*rows, strict=True)))


def lookup(
    database: Database, ids: Iterable[int], quarantine: Quarantine, *, meant_for: str
) -> dict[int, str]:
    """Strings of `StringIds` by id: these ids and no other, for the table holds host names too.

    An id without a text is left out; a text that is no UTF-8 has its bad bytes replaced.
    """
    low = database.find("StringIds")
    if low is None or not {"id", "value"} <= set(database.columns[low]):
        return {}
    have = database.columns[low]
    key, value = _quoted(have["id"]), _quoted(have["value"])
    found: dict[int, str] = {}
    pending = sorted(set(ids))
    for at in range(0, len(pending), _IDS_PER_QUERY):
        part = pending[at : at + _IDS_PER_QUERY]
        marks = ",".join("?" * len(part))
        statement = (
            f"SELECT {key}, typeof({value}), {value} FROM {_quoted(database.tables[low])} "
            f"WHERE {key} IN ({marks})"
        )
        for number, kind, text in database.connection.execute(statement, part):
            if kind == b"text":
                found[int(number)] = text.decode("utf-8", "replace")
            else:
                quarantine.add(meant_for, "StringIds.value is not text", 1, f"id {int(number)}")
    return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(column: Column, name: str) -> str:
    if not column.text:
        return _quoted(name)
    # Texts and blobs both come as bytes; a blob is made a number, which text columns refuse.
    return f"CASE typeof({_quoted(name)}) WHEN 'blob' THEN 0 ELSE {_quoted(name)} END"
