# SPDX-License-Identifier: Apache-2.0
"""Rows of SQLite leaf pages as columns, without a Python loop over rows.

A record is a header, which says type and size of each cell, and the cells one after the other
(sqlite.org/fileformat2.html 2.1). Rows of one table have few different headers. Each is parsed once
and says where in its rows the cells are; the cells of one column are then gathered for all rows of
many pages at once, whichever header each row has.

A cell is never cast: a column is a numpy array where its cells are integers or null, and otherwise
a tuple of the Python objects that SQL would give.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.sqlite_file import LEAF, PAD, Bytes, Ints, NotPlain, PageFile

__all__ = ["Cells", "Decoder", "Numbers", "Wanted"]

Cells = tuple[Any, ...]
"""Cells as SQL gives them: int, float, bytes or None."""

_NULL, _INT, _REAL, _BLOB, _TEXT = range(5)
_SIZES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of a cell by serial type below 10; 8 and 9 are the integers 0 and 1."""
_BYTES: Final = {1: 1, 2: 2, 4: 4, 8: 6}
"""Serial type of the integers of so many bytes."""
_FLOAT: Final = 7
_ZERO, _ONE = 8, 9
_WIDEST_HEADER: Final = 127
_FEW_HEADERS: Final = 64
_ROWS_PER_HEADER: Final = 16
"""With fewer rows a header than this, SQL is as fast."""
_SAMPLE: Final = 1_024
_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column to decode: its position in the table, and whether it holds text.

    A blob in a column of texts is given as the number 0, so that it is not taken for a text.
    """

    position: int
    text: bool = False


@dataclass(frozen=True, slots=True)
class Numbers:
    """Cells that are integers or null.

    Attributes:
        values: in the narrowest type that holds them; one value repeated takes no memory.
        valid: False where the cell is null; None where none is.
    """

    values: npt.NDArray[np.signedinteger[Any]]
    valid: npt.NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the cells of a record are, from its start, and of which serial type."""

    size: int
    offsets: tuple[int, ...]
    types: tuple[int, ...]


@dataclass(slots=True)
class Decoder:
    """Decodes leaf pages of one table.

    Attributes:
        file: the pages.
        width: number of columns of the table.
        wanted: columns to decode.
    """

    file: PageFile
    width: int
    wanted: Sequence[Wanted]
    _layouts: dict[bytes, _Layout] = field(default_factory=dict)

    def columns(self, block: Bytes, *, root: bool) -> tuple[int, list["Numbers | Cells"]]:
        """Number of rows, and the wanted columns.

        Args:
            block: leaf pages, and `PAD` bytes behind them.
            root: whether it is the one page of its table, which alone may be without rows.

        Raises:
            NotPlain: something in the pages is not as SQLite writes it, or a row has overflow
                pages, or fewer columns than the table.
        """
        start, payload = self._records(block, root=root)
        if not len(start):
            nothing = Numbers(np.zeros(0, dtype=np.int64), None)
            return 0, [nothing for _ in self.wanted]
        words = _windows(block)
        layouts, which = self._headers(block, words, start, payload)
        sizes = np.asarray([layout.size for layout in layouts])
        if (sizes[which] != payload).any() if len(sizes) > 1 else (payload != sizes[0]).any():
            raise NotPlain("a record does not fill its cell")
        rows = _Rows(block, words, start, which)
        made = [_column(rows, layouts, column) for column in self.wanted]
        return len(start), made

    def _records(self, block: Bytes, *, root: bool) -> tuple[Ints, Ints]:
        """Start and length of each record, in order of pages and cells."""
        file = self.file
        base = np.arange(0, len(block) - PAD, file.page, dtype=np.intp)
        if (block[base] != LEAF).any():
            raise NotPlain("the leaves are not equally deep")
        cells = (block[base + 3].astype(np.intp) << 8) | block[base + 4]
        if (cells > (file.page - 8) // 6).any() or (not root and not cells.all()):
            raise NotPlain("a page has an impossible number of cells")
        total = int(cells.sum())
        first = 8 + 2 * cells
        # Places of the cell pointers, two bytes each from byte 8 of a page on.
        before = np.cumsum(cells) - cells
        slot = np.repeat((base + 8) // 2 - before, cells) + np.arange(total, dtype=np.intp)
        pointer = block[: len(block) - PAD].view(np.uint16)[slot].byteswap().astype(np.intp)
        if (pointer < np.repeat(first, cells)).any() or (pointer > file.usable - 4).any():
            raise NotPlain("a cell lies outside of its page")
        at = np.repeat(base, cells) + pointer
        payload, start = _sizes(block, at)
        # More than this lies on overflow pages (fileformat2.html 1.6).
        if (payload > file.usable - 35).any():
            raise NotPlain("a row has overflow pages")
        if (start + payload > np.repeat(base + file.usable, cells)).any():
            raise NotPlain("a cell lies outside of its page")
        return start, payload

    def _headers(
        self, block: Bytes, words: Any, start: Ints, payload: Ints
    ) -> tuple[list[_Layout], Ints]:
        """Layouts in use, and which of them each row has."""
        length = block[start]
        if (length > payload).any():
            raise NotPlain("a header is longer than its record")
        lengths = np.unique(length).tolist()
        if not 1 <= lengths[0] <= lengths[-1] <= _WIDEST_HEADER:
            raise NotPlain("a header is too long")
        layouts: list[_Layout] = []
        if len(lengths) == 1:
            return layouts, self._group(block, words, start, lengths[0], layouts)
        which = np.empty(len(start), dtype=np.intp)
        for one in lengths:
            rows = np.flatnonzero(length == one)
            base = len(layouts)
            which[rows] = base + self._group(block, words, start[rows], one, layouts)
        return layouts, which

    def _group(
        self, block: Bytes, words: Any, start: Ints, length: int, layouts: list[_Layout]
    ) -> Ints:
        """Number rows with headers of one length by their header; append the layouts."""
        parts = [words[start + at].view(np.uint64) for at in range(0, length, 8)]
        rest = length % 8
        if rest:
            # The first bytes in memory are the low ones.
            parts[-1] &= np.uint64((1 << 8 * rest) - 1)
        parts = [part for part in parts if (part != part[0]).any()]
        if not parts:
            layouts.append(self._layout(block, int(start[0]), length))
            return np.zeros(len(start), dtype=np.intp)
        mixed = parts[0]
        for part in parts[1:]:
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX + part
        first, which = _numbered(mixed)
        if len(first) > _FEW_HEADERS + len(start) // _ROWS_PER_HEADER:
            raise NotPlain("too many rows have a header of their own")
        # Two headers may have been mixed to one number.
        if len(parts) > 1 and any((part != part[first][which]).any() for part in parts):
            raise NotPlain("headers cannot be told apart")
        layouts += [self._layout(block, at, length) for at in start[first].tolist()]
        return which

    def _layout(self, block: Bytes, start: int, length: int) -> _Layout:
        header = block[start : start + length].tobytes()
        layout = self._layouts.get(header)
        if layout is None:
            layout = self._layouts[header] = _parse(header, self.width)
        return layout


def _numbered(mixed: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """First row of each distinct number, in order of the number, and which of them each row has.

    Rows have few different numbers: they are looked for in a sample, which spares a sort.
    """
    words = np.unique(mixed[:: max(len(mixed) // _SAMPLE, 1)])
    which = np.searchsorted(words, mixed)
    np.minimum(which, len(words) - 1, out=which)
    if (words[which] != mixed).any():
        _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
        return first, which.astype(np.intp, copy=False)
    first = np.empty(len(words), dtype=np.intp)
    # Of several assignments to one place the last one stays: the first row.
    first[which[::-1]] = np.arange(len(mixed) - 1, -1, -1)
    return first, which


def _windows(block: Bytes) -> Any:
    """The 8 bytes from each byte on, as opaque values: numpy gathers these without alignment."""
    return np.ndarray((len(block) - 7,), "V8", block.data, strides=(1,))


def _sizes(block: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Payload size of each cell, and where its record starts: behind two varints."""
    # No place can leave the buffer: a cell begins four bytes before the end of its page or earlier,
    # its varints have three and nine bytes at most, and `PAD` bytes follow the last page.
    first = block[at]
    if int(first.max(initial=0)) < 128:
        payload, step = first.astype(np.intp), at + 1
    else:
        payload, length = _varint(block, at)
        step = at + length
    # Of the row id only its length is needed. A ninth byte is the last one, whatever it holds.
    more = block[step] >= 128
    start = step + 1
    for behind in range(1, 9):
        if not more.any():
            break
        start += more
        more &= block[step + behind] >= 128
    return payload, start


def _varint(block: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Values and lengths of varints of at most three bytes."""
    one, two, three = (block[at + n].astype(np.intp) for n in range(3))
    long, longer = one >= 128, (one >= 128) & (two >= 128)
    if (longer & (three >= 128)).any():
        raise NotPlain("a row has overflow pages")
    value = np.where(long, (one & 127) << 7 | two & 127, one)
    value = np.where(longer, value << 7 | three, value)
    return value, 1 + long.astype(np.intp) + longer


def _parse(header: bytes, width: int) -> _Layout:
    """Read a header: its own length in one byte, then a varint for each cell."""
    at, end = 1, len(header)
    body = end
    offsets, types = [], []
    while at < end:
        kind = 0
        for _ in range(4):
            if at >= end:
                raise NotPlain("a header ends within a type")
            byte = header[at]
            at += 1
            kind = kind << 7 | byte & 127
            if byte < 128:
                break
        else:
            raise NotPlain("a row has overflow pages")
        if kind in (10, 11):
            raise NotPlain("a cell has a reserved type")
        offsets.append(body)
        types.append(kind)
        body += _SIZES[kind] if kind < 10 else (kind - 12) // 2
    if len(types) != width:
        raise NotPlain("a row has another number of columns than its table")
    return _Layout(body, tuple(offsets), tuple(types))


def _kind(serial: int) -> int:
    if serial >= 12:
        return _TEXT if serial % 2 else _BLOB
    if serial == 0:
        return _NULL
    return _REAL if serial == _FLOAT else _INT


@dataclass(frozen=True, slots=True)
class _Rows:
    """Records of many pages: where each starts, and which layout it has."""

    block: Bytes
    words: Any
    start: Ints
    which: Ints

    def of_layout(self, table: Sequence[int], kind: type[np.generic]) -> Any:
        """A value a row from a value a layout; a plain number where all layouts agree."""
        if len(set(table)) == 1:
            return kind(table[0])
        return np.asarray(table, dtype=kind)[self.which]


def _column(rows: _Rows, layouts: Sequence[_Layout], column: Wanted) -> Numbers | Cells:
    types = [layout.types[column.position] for layout in layouts]
    kinds = {_kind(serial) for serial in types}
    if kinds == {_NULL}:
        return _nulls(len(rows.start))
    offsets = [layout.offsets[column.position] for layout in layouts]
    if column.text or not kinds <= {_NULL, _INT}:
        return _objects(rows, types, offsets, text=column.text)
    return _integers(rows, types, offsets)


def _nulls(rows: int) -> Numbers:
    values = np.broadcast_to(np.int8(0), rows)
    return Numbers(values, np.broadcast_to(np.bool_(False), rows))  # noqa: FBT003 - a value


def _integers(rows: _Rows, types: Sequence[int], offsets: Sequence[int]) -> Numbers:
    count = len(rows.start)
    valid = None
    if 0 in types:
        valid = rows.of_layout([serial != 0 for serial in types], np.bool_)
    widest = max(_SIZES[serial] for serial in types)
    fixed = [1 if serial == _ONE else 0 for serial in types]
    if widest == 0:
        known = rows.of_layout(fixed, np.int8)
        return Numbers(np.broadcast_to(known, count) if np.ndim(known) == 0 else known, valid)
    at = rows.start + rows.of_layout(offsets, np.intp)
    if set(types) <= {_BYTES.get(widest)}:
        return _one_valued(_exactly(rows.block, at, widest), valid)
    # Windows that begin with the cell, high byte first; what follows it is shifted out.
    window = rows.words[at].view(np.int64).byteswap(inplace=True)
    sizes = [_SIZES[serial] for serial in types]
    window >>= rows.of_layout([64 - 8 * size if size else 0 for size in sizes], np.int64)
    if 0 in sizes:
        window &= rows.of_layout([-1 if size else 0 for size in sizes], np.int64)
        if any(fixed):
            window |= rows.of_layout(fixed, np.int64)
    if widest < 8:
        window = window.astype(_narrowest(widest))
    return _one_valued(window, valid)


def _exactly(block: Bytes, at: Ints, size: int) -> npt.NDArray[np.signedinteger[Any]]:
    """Cells of one size that numpy has integers of."""
    window: Any = np.ndarray((len(block) - size + 1,), f"V{size}", block.data, strides=(1,))
    found: npt.NDArray[np.signedinteger[Any]] = window[at].view(f"i{size}")
    return found.byteswap(inplace=True)


def _one_valued(
    values: npt.NDArray[np.signedinteger[Any]], valid: npt.NDArray[np.bool_] | None
) -> Numbers:
    if len(values) and values[0] == values[-1] and (values == values[0]).all():
        return Numbers(np.broadcast_to(values[0], len(values)), valid)
    return Numbers(values, valid)


def _narrowest(size: int) -> type[np.signedinteger[Any]]:
    if size <= 1:
        return np.int8
    if size == 2:
        return np.int16
    return np.int32 if size <= 4 else np.int64


def _objects(rows: _Rows, types: Sequence[int], offsets: Sequence[int], *, text: bool) -> Cells:
    """Cells as SQL gives them; for texts, and where a cell is not what its column holds."""
    data = rows.block.tobytes()
    begin = rows.start + rows.of_layout(offsets, np.intp)
    # A blob in a column of texts is read as the integer 0, which takes no bytes.
    read_as = [_ZERO if text and _kind(serial) == _BLOB else serial for serial in types]
    cells = zip(begin.tolist(), rows.which.tolist(), strict=True)
    return tuple(_cell(data, at, read_as[layout]) for at, layout in cells)


def _cell(data: bytes, at: int, serial: int) -> Any:
    if serial >= 12:
        return data[at : at + (serial - 12) // 2]
    if serial == 0:
        return None
    if serial == _FLOAT:
        number = float(np.frombuffer(data, ">f8", 1, at)[0])
        # SQLite reads a stored NaN as null.
        return None if number != number else number  # noqa: PLR0124 - the test for NaN
    if serial in (_ZERO, _ONE):
        return serial - _ZERO
    return int.from_bytes(data[at : at + _SIZES[serial]], "big", signed=True)
