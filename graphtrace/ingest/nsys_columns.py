# SPDX-License-Identifier: Apache-2.0
"""Columns of an export as numpy arrays, cell types checked.

SQLite types cells, not columns: an INTEGER column may hold text, a real number or nothing. A row
with a cell of the wrong type is refused and counted; no cell is ever cast.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_open import Database
from graphtrace.ingest.sanity import Quarantine
from graphtrace.model.errors import InputUnsupported

__all__ = ["Column", "Frame", "fetch", "lookup"]

_CHUNK_ROWS: Final = 8_192
_IDS_PER_QUERY: Final = 500
"""Bound values of one query; SQLite promises at least 999."""
_INT32: Final = 2**31


Flags = npt.NDArray[np.bool_]
_Faults = list[tuple[str, Flags]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column wanted.

    Attributes:
        name: nsys' name, matched without regard to case.
        needed: whether a row without a value is refused.
        bits: width that an integer must fit.
        text: whether it holds text; its values are then codes into `Frame.words`.
    """

    name: str
    needed: bool = False
    bits: int = 64
    text: bool = False


@dataclass(slots=True)
class Frame:
    """Columns of one table, of equal length.

    A column that the export does not have is absent from `values`. `valid` holds only columns that
    have nulls.
    """

    rows: int
    values: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    valid: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)

    def get(self, name: str) -> npt.NDArray[np.int64]:
        """Values of a column; zeros where the export does not have it."""
        found = self.values.get(name)
        return np.zeros(self.rows, dtype=np.int64) if found is None else found

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """True where a column has a value."""
        if name not in self.values:
            return np.zeros(self.rows, dtype=np.bool_)
        found = self.valid.get(name)
        return np.ones(self.rows, dtype=np.bool_) if found is None else found

    def take(self, rows: npt.NDArray[Any]) -> "Frame":
        """The rows of a mask or an index."""
        values = {name: array[rows] for name, array in self.values.items()}
        valid = {name: array[rows] for name, array in self.valid.items()}
        kept = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Frame(kept, values, valid, self.words)


def fetch(
    database: Database,
    table: str,
    wanted: Sequence[Column],
    quarantine: Quarantine,
    *,
    meant_for: str,
    where: str = "",
) -> Frame | None:
    """Read columns of a table.

    Args:
        database: the export.
        table: nsys' name of the table.
        wanted: columns; one that is absent is left out, unless it is needed.
        quarantine: where rows with wrongly typed cells are counted.
        meant_for: model table that the rows are meant for.
        where: an SQL condition on quoted column names, for tables that have those columns.

    Returns:
        The columns, or None where the table is absent.

    Raises:
        InputUnsupported: the table lacks a column that its rows mean nothing without.
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
    cells = ", ".join(_cell(column, have[column.name.lower()]) for column in columns)
    statement = f"SELECT {cells} FROM {_quoted(database.tables[low])} {where}"
    cursor = database.connection.execute(statement)
    pile = _Pile(columns)
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        pile.add(rows, quarantine, meant_for)
    return pile.frame()


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


class _Pile:
    """Chunks of the columns of one table."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.rows = 0
        self.values: list[list[npt.NDArray[np.int64]]] = [[] for _ in columns]
        self.valid: list[list[Flags | int]] = [[] for _ in columns]
        self.words: list[defaultdict[bytes, int]] = [_numbering() for _ in columns]

    def add(self, rows: list[tuple[Any, ...]], quarantine: Quarantine, meant_for: str) -> None:
        """Take a chunk of rows; refuse those with a cell that is not what its column holds."""
        keep: Flags | None = None
        parts: list[tuple[npt.NDArray[np.int64], Flags | None]] = []
        for position, cells in enumerate(zip(*rows, strict=True)):
            column = self.columns[position]
            if column.text:
                values, valid, faults = _texts(cells, self.words[position])
            else:
                values, valid, faults = _integers(cells, column)
            parts.append((values, valid))
            for reason, bad in faults:
                keep = np.ones(len(rows), dtype=np.bool_) if keep is None else keep
                fresh = np.flatnonzero(bad & keep)
                if len(fresh):
                    sample = min(repr(cells[row]) for row in fresh.tolist())
                    quarantine.add(meant_for, f"{column.name} {reason}", len(fresh), sample)
                    keep[fresh] = False
        for position, (values, valid) in enumerate(parts):
            kept = values if keep is None else values[keep]
            self.values[position].append(kept)
            flags = valid if valid is None or keep is None else valid[keep]
            self.valid[position].append(len(kept) if flags is None else flags)
        self.rows += len(rows) if keep is None else int(np.count_nonzero(keep))

    def frame(self) -> Frame:
        """The columns whole; chunks are let go one column at a time."""
        frame = Frame(self.rows)
        for position, column in enumerate(self.columns):
            chunks, self.values[position] = self.values[position], []
            values = np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)
            flags, self.valid[position] = self.valid[position], []
            if any(not isinstance(flag, int) for flag in flags):
                whole = [np.ones(f, dtype=np.bool_) if isinstance(f, int) else f for f in flags]
                frame.valid[column.name] = np.concatenate(whole)
            if column.text:
                values, frame.words[column.name] = _sorted_words(values, self.words[position])
            frame.values[column.name] = values
        return frame


def _numbering() -> "defaultdict[bytes, int]":
    return defaultdict(count().__next__)


def _sorted_words(
    codes: npt.NDArray[np.int64], numbering: "defaultdict[bytes, int]"
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Codes into words in order, so that the order of rows changes nothing."""
    decoded = {word.decode("utf-8", "replace") for word in numbering}
    words = sorted(decoded)
    place = {word: position for position, word in enumerate(words)}
    table = np.zeros(max(len(numbering), 1), dtype=np.int64)
    for word, code in numbering.items():
        table[code] = place[word.decode("utf-8", "replace")]
    return table[codes], words


def _objects(cells: tuple[object, ...]) -> npt.NDArray[np.object_]:
    objects = np.empty(len(cells), dtype=np.object_)
    objects[:] = cells
    return objects


def _kinds(objects: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    kinds: Any = np.frompyfunc(type, 1, 1)(objects)
    return np.asarray(kinds, dtype=np.object_)


def _is(kinds: npt.NDArray[np.object_], kind: Any) -> Flags:
    return np.asarray(kinds == kind, dtype=np.bool_)


def _integers(
    cells: tuple[Any, ...], column: Column
) -> tuple[npt.NDArray[np.int64], Flags | None, _Faults]:
    faults: _Faults = []
    valid: Flags | None = None
    kinds = set(map(type, cells))
    values = np.zeros(len(cells), dtype=np.int64)
    if kinds == {int}:
        values = np.fromiter(cells, dtype=np.int64, count=len(cells))
    elif kinds == {type(None)}:
        valid = np.zeros(len(cells), dtype=np.bool_)
    else:
        objects = _objects(cells)
        each = _kinds(objects)
        valid = _is(each, int)
        values[valid] = objects[valid].astype(np.int64)
        faults = [("is a real number", _is(each, float)), ("is text", _is(each, bytes))]
    if column.needed and valid is not None:
        faults.append(("is missing", ~valid))
    if column.bits == 32:
        wide = (values < -_INT32) | (values >= _INT32)
        if wide.any():
            faults.append(("does not fit 32 bits", wide))
    return values, valid, faults


def _texts(
    cells: tuple[Any, ...], words: "defaultdict[bytes, int]"
) -> tuple[npt.NDArray[np.int64], Flags | None, _Faults]:
    kinds = set(map(type, cells))
    if kinds == {bytes}:
        return np.fromiter(map(words.__getitem__, cells), np.int64, len(cells)), None, []
    objects = _objects(cells)
    each = _kinds(objects)
    valid = _is(each, bytes)
    values = np.zeros(len(cells), dtype=np.int64)
    texts = objects[valid]
    values[valid] = np.fromiter(map(words.__getitem__, texts), dtype=np.int64, count=len(texts))
    return values, valid, [("is not text", ~valid & ~_is(each, type(None)))]
