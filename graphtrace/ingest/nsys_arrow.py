# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow as the cells that a `Pile` takes, whatever type they are stored in.

Columns of Arrow are typed, cells of SQLite are: a column of a wrong type is refused row by row with
the reasons that its cells would be refused for there. Nothing is cast.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_cells import Column
from graphtrace.ingest.nsys_export import Only, Refuse
from graphtrace.ingest.sqlite_pages import Cells, Chunk, Numbers

__all__ = ["Direct", "chunk_of", "integers", "texts"]

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_INTEGERS: Final[dict[Any, np.dtype[Any]]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.uint8(): np.dtype(np.uint8),
    pa.uint16(): np.dtype(np.uint16),
    pa.uint32(): np.dtype(np.uint32),
    pa.uint64(): np.dtype(np.uint64),
}
_REALS: Final[dict[Any, np.dtype[Any]]] = {
    pa.float16(): np.dtype(np.float16),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}
_LARGEST: Final = (1 << 63) - 1
_FIRST_DIRECT: Final = -(1 << 62)
_BITS: Final = frozenset({"uint64Value"})
"""Columns whose 64 bits SQLite exports hold as if they had a sign; those bits are what is read."""
_TOO_WIDE: Final = "does not fit 64 bits"


@dataclass(slots=True)
class Direct:
    """Strings that stand where ids of strings are expected, by ids that nsys does not give."""

    ids: dict[bytes, int] = field(default_factory=dict)
    words: list[bytes] = field(default_factory=list)

    def id(self, text: bytes) -> int:
        """Id of a string, below zero."""
        found = self.ids.get(text)
        if found is None:
            found = self.ids[text] = _FIRST_DIRECT + len(self.words)
            self.words.append(text)
        return found

    def text(self, number: int) -> bytes | None:
        """The string of an id that was given here."""
        place = number - _FIRST_DIRECT
        return self.words[place] if 0 <= place < len(self.words) else None


@dataclass(frozen=True, slots=True)
class _Cells:
    """One column of a batch: its cells, and rows whose cell no column of ours can hold.

    Attributes:
        cells: integers, or Python objects as SQL would give them.
        odd: rows to refuse; None where there is none.
        reason: why those.
        show: the smallest sample of some rows.
    """

    cells: Numbers | Cells
    odd: Flags | None = None
    reason: str = ""
    show: Callable[[Flags], str] = repr


def chunk_of(
    arrays: Sequence[pa.Array],
    columns: Sequence[Column],
    direct: Sequence[Direct | None],
    test: pa.Array | None,
    only: Only | None,
    refuse: Refuse,
) -> Chunk:
    """Rows of a batch that pass a condition.

    Args:
        arrays: the columns.
        columns: what each of them should hold.
        direct: where strings are kept that stand in a column of their ids.
        test: column of the condition.
        only: the condition; None lets all rows through.
        refuse: counts rows that are left out because a cell fits no type of ours.

    Raises:
        pyarrow.ArrowException: a column contradicts itself.
    """
    made = [
        _cells(_plain(array), column, strings)
        for array, column, strings in zip(arrays, columns, direct, strict=True)
    ]
    keep = np.ones(len(arrays[0]), dtype=np.bool_)
    if test is not None and only is not None:
        keep = _passing(_plain(test), only)
    for column, part in zip(columns, made, strict=True):
        if part.odd is not None and (fresh := part.odd & keep).any():
            refuse(f"{column.name} {part.reason}", int(np.count_nonzero(fresh)), part.show(fresh))
            keep = keep & ~fresh
    if keep.all():
        return Chunk(len(keep), [part.cells for part in made])
    return Chunk(int(np.count_nonzero(keep)), [_kept(part.cells, keep) for part in made])


def _passing(array: pa.Array, only: Only) -> Flags:
    """Rows that the condition lets through, as SQL would: 59.0 equals 59, '59' does not."""
    found = _values(array)
    if found is None:
        return np.full(len(array), only.odd)
    values, valid = found
    same: Flags = np.isin(values, only.values) & valid
    if only.odd:
        same |= ~valid if array.type not in _REALS else np.True_
    return same


def _picked(array: pa.Array, rows: Rows) -> pa.Array:
    data = rows.astype(np.int64).tobytes()
    return array.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(data)]))


def _kept(cells: Numbers | Cells, keep: Flags) -> Numbers | Cells:
    if not isinstance(cells, Numbers):
        return tuple(compress(cells, keep.tolist()))
    return Numbers(cells.values[keep], None if cells.valid is None else cells.valid[keep])


def _plain(array: pa.Array) -> pa.Array:
    """The array without the wrappings of an extension type, views of texts as texts."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _is_view(array.type):
        array.validate(full=True)
        array = array.cast(pa.large_string())
    return array


def _is_view(kind: pa.DataType) -> bool:
    known = getattr(pa.types, "is_string_view", None)
    return known is not None and bool(known(kind))


def _valid(array: pa.Array) -> Flags:
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.bool_)
    mask = array.buffers()[0]
    if mask is None:
        return np.ones(len(array), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def _data(array: pa.Array, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype=kind)
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)


def _values(array: pa.Array) -> tuple[npt.NDArray[Any], Flags] | None:
    """Numbers of a column, and which of them count; None where it holds none."""
    if pa.types.is_dictionary(array.type):
        found = _values(_plain(array.dictionary))
        if found is None:
            return None
        codes, valid = _codes(array)
        words, known = found
        if not len(words):
            return np.zeros(len(array), dtype=np.int64), valid & False
        return words[codes], valid & known[codes]
    kind = _INTEGERS.get(array.type) or _REALS.get(array.type)
    if kind is not None:
        return _data(array, kind), _valid(array)
    if pa.types.is_boolean(array.type):
        data = array.buffers()[1]
        if data is None:
            return np.zeros(len(array), dtype=np.int8), _valid(array)
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].astype(np.int8), _valid(array)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64), _valid(array)
    return None


def _codes(array: pa.Array) -> tuple[Rows, Flags]:
    """Codes of a dictionary-encoded column, 0 where there is none, and where there is one."""
    indices, valid = array.indices, _valid(array.indices)
    codes = np.where(valid, _data(indices, _INTEGERS[indices.type]), 0)
    size = len(array.dictionary)
    if valid.any() and (int(codes.min()) < 0 or int(codes.max()) >= size):
        raise pa.ArrowInvalid("a code is beyond its dictionary")
    return codes.astype(np.intp), valid


def integers(array: pa.Array) -> tuple[npt.NDArray[np.int64], Flags] | None:
    """A column of integers in 64 bits, and which of them count; None where it holds none.

    An integer beyond 64 bits counts for none.
    """
    found = _values(_plain(array))
    if found is None or found[0].dtype.kind == "f":
        return None
    values, valid = found
    if values.dtype == np.uint64:
        valid = valid & (values <= _LARGEST)
    return np.where(valid, values, 0).astype(np.int64), valid


def _cells(array: pa.Array, column: Column, direct: Direct | None) -> _Cells:
    if _is_text(array.type):
        if column.text or direct is None:
            return _Cells(tuple(texts(array)))
        return _Cells(_interned(array, direct))
    found = _values(array)
    if found is not None:
        values, valid = found
        known = None if valid.all() else valid
        if known is not None and not valid.any():
            return _Cells(Numbers(np.broadcast_to(np.int8(0), len(array)), known))
        # What is too wide for an integer is none for a real.
        if column.text or values.dtype.kind == "f" or (column.real and values.dtype == np.uint64):
            return _Cells(_objects(values, known))
        if column.name in _BITS and values.dtype == np.uint64:
            values = values.view(np.int64)
        return _numbers(values, known)
    # Bytes, dates, lists and the like are neither a number nor a text.
    valid = _valid_of_any(array)
    if column.text:
        return _Cells(tuple(0 if some else None for some in valid.tolist()))
    nothing = Numbers(np.broadcast_to(np.int8(0), len(array)), np.zeros_like(valid))
    kind = str(array.type)[:60]
    return _Cells(nothing, valid, "is neither a number nor a text", lambda _: kind)


def _valid_of_any(array: pa.Array) -> Flags:
    if pa.types.is_dictionary(array.type):
        return _valid(array.indices)
    if pa.types.is_union(array.type) or pa.types.is_run_end_encoded(array.type):
        return np.ones(len(array), dtype=np.bool_)
    return _valid(array)


def _numbers(values: npt.NDArray[Any], valid: Flags | None) -> _Cells:
    odd = None
    stored = values
    if values.dtype == np.uint64:
        wide = values > _LARGEST
        if valid is not None:
            wide &= valid
        if wide.any():
            odd, values = wide, np.where(wide, 0, values)
    if valid is not None:
        values = np.where(valid, values, 0)

    def show(rows: Flags) -> str:
        return min(map(str, np.unique(stored[rows]).tolist()))

    return _Cells(Numbers(_narrow(values), valid), odd, _TOO_WIDE, show)


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values in the narrowest signed type that holds them; one value repeated is one."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    least, most = int(values.min()), int(values.max())
    kind = next(
        kind
        for kind in (np.int8, np.int16, np.int32, np.int64)
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max
    )
    if least == most:
        return np.broadcast_to(kind(least), len(values))
    return values.astype(kind)


def _objects(values: npt.NDArray[Any], valid: Flags | None) -> Cells:
    # SQL has no number that is not one, and gives null for it.
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=np.bool_)
    if valid is not None:
        known &= valid
    objects = values.astype(np.float64 if values.dtype.kind == "f" else values.dtype)
    return tuple(
        value if some else None
        for value, some in zip(objects.tolist(), known.tolist(), strict=True)
    )


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(kind.value_type):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_view(kind))


def _interned(array: pa.Array, direct: Direct) -> Numbers:
    codes, words = _words(array)
    ids = np.asarray([0 if word is None else direct.id(word) for word in words], dtype=np.int64)
    known = np.asarray([word is not None for word in words], dtype=np.bool_)
    valid = known[codes]
    return Numbers(ids[codes], None if valid.all() else valid)


def texts(array: pa.Array, rows: Rows | None = None) -> list[bytes | None]:
    """Texts of a column, or of some rows of it; None where it has none, or holds no text."""
    array = _plain(array)
    if not _is_text(array.type):
        return [None] * (len(array) if rows is None else len(rows))
    if rows is not None:
        if not pa.types.is_dictionary(array.type):
            _check_offsets(array)
        array = _picked(array, rows)
    codes, words = _words(array)
    objects = np.empty(len(words), dtype=np.object_)
    objects[:] = words
    found: list[bytes | None] = objects[codes].tolist()
    return found


def _words(array: pa.Array) -> tuple[Rows, list[bytes | None]]:
    """Codes into the different texts of a column, the last of which stands for null."""
    if not pa.types.is_dictionary(array.type):
        _check_offsets(array)
        array = array.dictionary_encode()
    codes, valid = _codes(array)
    used = np.unique(codes[valid])
    dictionary = _plain(array.dictionary)
    _check_offsets(dictionary)
    words = _bytes(_picked(dictionary, used))
    return np.where(valid, np.searchsorted(used, codes), len(words)), [*words, None]


def _bytes(array: pa.Array) -> list[bytes | None]:
    offsets = _check_offsets(array).tolist()
    data = array.buffers()[2]
    content = b"" if data is None else memoryview(data)
    valid = _valid(array).tolist()
    return [
        bytes(content[offsets[row] : offsets[row + 1]]) if some else None
        for row, some in enumerate(valid)
    ]


def _check_offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Where each text of a column begins and the last one ends, from 0."""
    kind: np.dtype[Any] = np.dtype(np.int32 if pa.types.is_string(array.type) else np.int64)
    _, starts, data = array.buffers()
    if starts is None or not len(array):
        return np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(starts, kind, len(array) + 1, array.offset * kind.itemsize)
    size = 0 if data is None else data.size
    if int(offsets[0]) < 0 or int(offsets[-1]) > size or bool((np.diff(offsets) < 0).any()):
        raise pa.ArrowInvalid("a text is beyond its column")
    return offsets.astype(np.int64)
