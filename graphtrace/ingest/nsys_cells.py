# SPDX-License-Identifier: Apache-2.0
"""Cells of a table, checked and piled up into columns.

SQLite types cells, not columns: an INTEGER column may hold text, a real number or nothing. A row
with a cell of the wrong type is refused and counted; no cell is ever cast.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_frame import Frame, Integers
from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.sqlite_pages import Cells, Numbers

__all__ = ["Column", "Pile"]

_INT32: Final = 2**31

Flags = npt.NDArray[np.bool_]
_Faults = list[tuple[str, Flags]]
_Show = Callable[[Any], set[str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column wanted.

    Attributes:
        name: nsys' name, matched without regard to case.
        needed: whether a row without a value is refused.
        bits: width that an integer must fit.
        text: whether it holds text; its values are then codes into `Frame.words`.
        real: whether it holds reals, integers among them; its values are then in `Frame.reals`.
    """

    name: str
    needed: bool = False
    bits: int = 64
    text: bool = False
    real: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """Checked cells of one column of one chunk; `faults` say which rows to refuse, and why."""

    values: npt.NDArray[Any]
    valid: Flags | None
    faults: _Faults
    show: _Show


class Pile:
    """Chunks of the columns of one table."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.rows = 0
        self.values: list[list[npt.NDArray[Any]]] = [[] for _ in columns]
        self.valid: list[list[Flags | int]] = [[] for _ in columns]
        self.words: list[defaultdict[bytes, int]] = [_numbering() for _ in columns]

    def add(
        self,
        rows: int,
        cells: Sequence[Numbers | Cells],
        quarantine: Quarantine,
        meant_for: str,
    ) -> None:
        """Take a chunk of rows; refuse those with a cell that is not what its column holds.

        Args:
            rows: how many.
            cells: column by column.
            quarantine: where refused rows are counted.
            meant_for: model table that the rows are meant for.
        """
        keep: Flags | None = None
        parts = [self._part(position, column) for position, column in enumerate(cells)]
        for position, part in enumerate(parts):
            for reason, bad in part.faults:
                keep = np.ones(rows, dtype=np.bool_) if keep is None else keep
                fresh = np.flatnonzero(bad & keep)
                if len(fresh):
                    name = self.columns[position].name
                    quarantine.add(meant_for, f"{name} {reason}", len(fresh), min(part.show(fresh)))
                    keep = keep & ~bad
        for position, part in enumerate(parts):
            kept = part.values if keep is None else _taken(part.values, keep)
            self.values[position].append(kept)
            flags = part.valid if part.valid is None or keep is None else part.valid[keep]
            self.valid[position].append(len(kept) if flags is None else flags)
        self.rows += rows if keep is None else int(np.count_nonzero(keep))

    def _part(self, position: int, cells: Numbers | Cells) -> _Part:
        column = self.columns[position]
        if column.real:
            return _reals(cells, column)
        if isinstance(cells, Numbers):
            return _numbers(cells, column)
        values, valid, faults = (
            _texts(cells, self.words[position]) if column.text else _objects(cells, column)
        )
        return _Part(
            values, valid, faults, lambda rows: {repr(cells[row]) for row in rows.tolist()}
        )

    def frame(self) -> Frame:
        """The columns whole; chunks are let go one column at a time."""
        frame = Frame(self.rows)
        for position, column in enumerate(self.columns):
            chunks, self.values[position] = self.values[position], []
            values = joined(chunks)
            flags, self.valid[position] = self.valid[position], []
            if any(not isinstance(flag, int) for flag in flags):
                whole = [np.ones(f, dtype=np.bool_) if isinstance(f, int) else f for f in flags]
                frame.valid[column.name] = joined(whole)
            if column.real:
                frame.reals[column.name] = values.astype(np.float64, copy=False)
                continue
            if column.text:
                values, frame.words[column.name] = _sorted_words(values, self.words[position])
            frame.values[column.name] = values
        return frame


def joined(chunks: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The chunks one after the other; one value repeated takes no memory, as in its chunks."""
    chunks = [chunk for chunk in chunks if len(chunk)]
    if not chunks:
        return np.zeros(0, dtype=np.int64)
    if all(chunk.strides == (0,) for chunk in chunks):
        first = chunks[0][0]
        if all(chunk[0] == first for chunk in chunks):
            widest = max((chunk.dtype for chunk in chunks), key=lambda kind: kind.itemsize)
            return np.broadcast_to(first.astype(widest), sum(map(len, chunks)))
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _taken(values: npt.NDArray[Any], keep: Flags) -> npt.NDArray[Any]:
    if values.strides == (0,) and len(values):
        return np.broadcast_to(values[0], int(np.count_nonzero(keep)))
    kept: npt.NDArray[Any] = values[keep]
    return kept


def _numbering() -> "defaultdict[bytes, int]":
    return defaultdict(count().__next__)


def _sorted_words(
    codes: Integers, numbering: "defaultdict[bytes, int]"
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Codes into words in order, so that the order of rows changes nothing."""
    decoded = {word.decode("utf-8", "replace") for word in numbering}
    words = sorted(decoded)
    place = {word: position for position, word in enumerate(words)}
    table = np.zeros(max(len(numbering), 1), dtype=np.int64)
    for word, code in numbering.items():
        table[code] = place[word.decode("utf-8", "replace")]
    return table[codes], words


def _numbers(cells: Numbers, column: Column) -> _Part:
    """Cells that are integers or null; those of a text column are then all null."""
    values, valid = cells.values, cells.valid
    faults: _Faults = []
    if column.text and valid is None and len(values):
        raise AssertionError("integers in a text column come as cells")
    if column.needed and valid is not None:
        faults.append(("is missing", ~valid))
    if column.bits == 32 and values.dtype.itemsize > 4:
        wide = (values < -_INT32) | (values >= _INT32)
        if wide.any():
            faults.append(("does not fit 32 bits", wide))
        else:
            values = values.astype(np.int32)

    def show(rows: npt.NDArray[np.intp]) -> set[str]:
        known = rows if valid is None else rows[valid[rows]]
        shown = {repr(number) for number in np.unique(values[known]).tolist()}
        return shown | ({"None"} if len(known) < len(rows) else set())

    return _Part(values, valid, faults, show)


def _reals(cells: Numbers | Cells, column: Column) -> _Part:
    """Cells that are numbers or null, as reals."""
    faults: _Faults = []
    if isinstance(cells, Numbers):
        valid, whole = cells.valid, cells.values
        values = whole.astype(np.float64)
        if whole.strides == (0,) and len(whole):
            values = np.broadcast_to(np.float64(whole[0]), len(whole))
    else:
        objects = _array(cells)
        each = _kinds(objects)
        valid = _is(each, float) | _is(each, int)
        values = np.zeros(len(cells))
        values[valid] = objects[valid].astype(np.float64)
        faults.append(("is text", _is(each, bytes)))
    if column.needed and valid is not None:
        faults.append(("is missing", ~valid))

    def show(rows: npt.NDArray[np.intp]) -> set[str]:
        if isinstance(cells, Numbers):
            return {"None"}
        return {repr(cells[row]) for row in rows.tolist()}

    return _Part(values, valid, faults, show)


def _array(cells: Cells) -> npt.NDArray[np.object_]:
    objects = np.empty(len(cells), dtype=np.object_)
    objects[:] = cells
    return objects


def _kinds(objects: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    kinds: Any = np.frompyfunc(type, 1, 1)(objects)
    found: npt.NDArray[np.object_] = kinds
    return found


def _is(kinds: npt.NDArray[np.object_], kind: type) -> Flags:
    wanted: Any = kind
    same: Flags = np.equal(kinds, wanted).astype(np.bool_)
    return same


def _objects(cells: Cells, column: Column) -> tuple[Integers, Flags | None, _Faults]:
    faults: _Faults = []
    valid: Flags | None = None
    kinds = set(map(type, cells))
    values = np.zeros(len(cells), dtype=np.int64)
    if kinds == {int}:
        values = np.fromiter(cells, dtype=np.int64, count=len(cells))
    elif kinds == {type(None)}:
        valid = np.zeros(len(cells), dtype=np.bool_)
    else:
        objects = _array(cells)
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
    cells: Cells, words: "defaultdict[bytes, int]"
) -> tuple[Integers, Flags | None, _Faults]:
    kinds = set(map(type, cells))
    if kinds == {bytes}:
        return np.fromiter(map(words.__getitem__, cells), np.int64, len(cells)), None, []
    objects = _array(cells)
    each = _kinds(objects)
    valid = _is(each, bytes)
    values = np.zeros(len(cells), dtype=np.int64)
    texts = objects[valid]
    values[valid] = np.fromiter(map(words.__getitem__, texts), dtype=np.int64, count=len(texts))
    return values, valid, [("is not text", ~valid & ~_is(each, type(None)))]
