# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays and tables from numpy without `pa.array`.

`pa.array`, `pa.scalar` and `to_numpy` import pandas where it is installed (half a second and
hundreds of megabytes), so everything on the analyze path builds arrays from buffers and reads them
with numpy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.model.schema import TABLES

__all__ = [
    "as_numpy",
    "codes_of",
    "column_of",
    "dictionary",
    "encode",
    "few",
    "lists",
    "make_table",
    "narrow",
    "numbers",
    "repeated",
    "strings",
    "valid_of",
    "words_of",
]

_NUMPY = {
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint64(): np.uint64,
    pa.float64(): np.float64,
}


_RUN = 65_536
"""Rows of the piece that a column of one value repeats."""


_SAMPLE = 1 << 16
_SPAN = 1 << 20


def _validity(valid: npt.NDArray[np.bool_] | None, length: int) -> tuple[pa.Buffer | None, int]:
    if valid is None or (valid.strides == (0,) and valid[:1].all()) or bool(valid.all()):
        return None, 0
    packed = np.packbits(valid, bitorder="little")
    return pa.py_buffer(packed.tobytes()), length - int(np.count_nonzero(valid))


def numbers(
    values: npt.ArrayLike,
    arrow_type: pa.DataType,
    valid: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """A numeric or boolean array.

    Args:
        values: one number a row; what stands where `valid` is false does not matter.
        arrow_type: an integer, float64 or bool type of the schema.
        valid: False where the value is null.
    """
    data: bytes | memoryview
    if arrow_type == pa.bool_():
        flags = np.asarray(values, dtype=np.bool_)
        data = np.packbits(flags, bitorder="little").tobytes()
        length = len(flags)
    else:
        typed = np.ascontiguousarray(values, dtype=_NUMPY[arrow_type])
        data = typed.tobytes() if typed.size == 0 else typed.data
        length = len(typed)
    mask, nulls = _validity(valid, length)
    return pa.Array.from_buffers(arrow_type, length, [mask, pa.py_buffer(data)], nulls)


def strings(values: Iterable[str | None]) -> pa.Array:
    """A plain string array; None is null."""
    items = list(values)
    encoded = [b"" if item is None else item.encode("utf-8", "replace") for item in items]
    offsets = np.zeros(len(items) + 1, dtype=np.int32)
    np.cumsum([len(item) for item in encoded], out=offsets[1:])
    valid = np.fromiter((item is not None for item in items), dtype=np.bool_, count=len(items))
    mask, nulls = _validity(valid, len(items))
    buffers = [mask, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(items), buffers, nulls)


def dictionary(
    codes: npt.ArrayLike, words: Sequence[str], valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """A dictionary-encoded string array from codes into `words`."""
    safe = np.asarray(codes, dtype=np.int32)
    if valid is not None and not (len(valid) and bool(valid.all())):
        safe = np.where(valid, safe, np.int32(0))
    indices = numbers(safe, pa.int32(), valid)
    return pa.DictionaryArray.from_arrays(indices, strings(words))


def column_of(
    values: npt.NDArray[Any], arrow_type: pa.DataType, valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array | pa.ChunkedArray:
    """As `numbers`; one value repeated and nulls alone take next to no memory."""
    if valid is not None and len(valid) and not valid[0] and not valid.any():
        return repeated(None, arrow_type, len(values))
    if _is_one_value(values) and (valid is None or bool(valid.all())):
        return repeated(int(values[0]), arrow_type, len(values))
    return numbers(values, arrow_type, valid)


def words_of(
    codes: npt.NDArray[Any], words: Sequence[str], valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array | pa.ChunkedArray:
    """As `dictionary`; one word repeated and nulls alone take next to no memory."""
    if valid is not None and len(valid) and not valid[0] and not valid.any():
        return repeated(None, pa.dictionary(pa.int32(), pa.string()), len(codes))
    if _is_one_value(codes) and (valid is None or bool(valid.all())):
        return repeated(words[int(codes[0])], pa.dictionary(pa.int32(), pa.string()), len(codes))
    return dictionary(codes, words, valid)


def encode(values: Iterable[str | None]) -> pa.Array:
    """A dictionary-encoded string array from plain strings; for few rows, not for activities."""
    words: dict[str, int] = {}
    codes = [-1 if item is None else words.setdefault(item, len(words)) for item in values]
    array = np.asarray(codes, dtype=np.int32)
    return dictionary(np.maximum(array, 0), list(words), array >= 0)


def lists(values: Iterable[Sequence[float] | None], item_type: pa.DataType) -> pa.Array:
    """A list array; None is null."""
    items = list(values)
    offsets = np.zeros(len(items) + 1, dtype=np.int32)
    np.cumsum([0 if item is None else len(item) for item in items], out=offsets[1:])
    flat = [x for item in items if item is not None for x in item]
    valid = np.fromiter((item is not None for item in items), dtype=np.bool_, count=len(items))
    mask, nulls = _validity(valid, len(items))
    return pa.Array.from_buffers(
        pa.list_(item_type),
        len(items),
        [mask, pa.py_buffer(offsets.tobytes())],
        nulls,
        children=[numbers(np.asarray(flat, dtype=_NUMPY[item_type]), item_type)],
    )


def _nulls(arrow_type: pa.DataType, rows: int) -> pa.Array:
    absent = np.zeros(rows, dtype=np.bool_)
    if pa.types.is_dictionary(arrow_type):
        return dictionary(np.zeros(rows, dtype=np.int32), [""] if rows else [], absent)
    if pa.types.is_string(arrow_type):
        return strings([None] * rows)
    if pa.types.is_list(arrow_type):
        return lists([None] * rows, arrow_type.value_type)
    return numbers(absent if arrow_type == pa.bool_() else np.zeros(rows), arrow_type, absent)


def _run(piece: pa.Array, rows: int) -> pa.Array | pa.ChunkedArray:
    """A piece of equal values repeated up to a number of rows: one buffer for all of them."""
    if rows <= len(piece):
        return piece if rows == len(piece) else piece.slice(0, rows)
    whole, rest = divmod(rows, len(piece))
    pieces = [piece] * whole + ([piece.slice(0, rest)] if rest else [])
    return pa.chunked_array(pieces, type=piece.type)


def repeated(
    value: int | str | None, arrow_type: pa.DataType, rows: int
) -> pa.Array | pa.ChunkedArray:
    """A column of one value, be it null, in the memory of a short one.

    Args:
        value: a number, or a word where the type is a dictionary of strings.
        arrow_type: a numeric type of the schema, or that dictionary.
        rows: how many.
    """
    size = min(rows, _RUN)
    if value is None:
        return _run(_nulls(arrow_type, size), rows)
    if isinstance(value, str):
        return _run(dictionary(np.zeros(size, dtype=np.int32), [value]), rows)
    return _run(numbers(np.full(size, value), arrow_type), rows)


def make_table(name: str, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table of the schema from its columns; nullable columns that are not given are null.

    Args:
        name: name of the table.
        rows: number of rows.
        columns: by column name, an Arrow array of the declared type, or something that `numbers`
            takes where the column is numeric and has no null.

    Raises:
        TypeError: a column is unknown, missing though it may not be null, or of another type.
    """
    declared = TABLES[name]
    unknown = set(columns) - set(declared.names)
    if unknown:
        raise TypeError(f"table {name} has no column {', '.join(sorted(unknown))}")
    arrays = []
    for column in declared.columns:
        given = columns.get(column.name)
        if given is None:
            if not column.nullable and rows:
                raise TypeError(f"table {name} needs column {column.name}")
            arrays.append(_run(_nulls(column.type, min(rows, _RUN)), rows))
        elif isinstance(given, pa.Array | pa.ChunkedArray):
            if given.type != column.type:
                raise TypeError(f"{name}.{column.name} is {given.type}, not {column.type}")
            arrays.append(given)
        elif rows > _RUN and _is_one_value(given):
            arrays.append(repeated(int(given[0]), column.type, rows))
        else:
            arrays.append(numbers(given, column.type))
    return pa.Table.from_arrays(arrays, schema=declared.schema)


def _is_one_value(values: object) -> bool:
    """Whether an array is known to hold one value, without looking at all of it."""
    return isinstance(values, np.ndarray) and values.strides == (0,) and len(values) > 0


def _piece(array: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """The first piece of a column whose pieces are all that one; None where they are not."""
    if not isinstance(array, pa.ChunkedArray) or array.num_chunks < 2:
        return None
    first = array.chunk(0)
    if first.offset or len(first) != _RUN:
        return None
    place = _address(first)
    same = all(_address(chunk) == place for chunk in array.chunks[1:])
    return first if same else None


def _address(array: pa.Array) -> tuple[int | None, ...]:
    """Where an array lies; two with one address begin with the same values."""
    if pa.types.is_dictionary(array.type):
        return _address(array.indices)
    return (array.offset, *(buffer and buffer.address for buffer in array.buffers()))


def _constant(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any] | None:
    """One value for all rows, of a numeric column that repeats it; None where there are more."""
    piece = _piece(array)
    if piece is None or array.type == pa.bool_():
        return None
    values = as_numpy(piece)
    one = bool((values == values[0]).all())
    return np.broadcast_to(values[0], len(array)) if one else None


def _one(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 0:  # combine_chunks would build it with pa.array
        return _nulls(array.type, 0)
    return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)


def valid_of(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """True where a value is not null; one flag a row, not to be written to."""
    rows = len(array)
    nulls = array.null_count
    if nulls in (0, rows):
        return np.broadcast_to(np.bool_(nulls == 0), rows)
    one = _one(array)
    bits = np.unpackbits(np.frombuffer(one.buffers()[0], dtype=np.uint8), bitorder="little")
    return bits[one.offset : one.offset + len(one)].astype(np.bool_)


def as_numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values of a numeric or boolean array, without copying where that is possible.

    What stands where the value is null is arbitrary: ask `valid_of`.
    """
    constant = _constant(array)
    if constant is not None:
        return constant
    one = _one(array)
    data = one.buffers()[1]
    if one.type == pa.bool_():
        if data is None:
            return np.zeros(0, dtype=np.bool_)
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return bits[one.offset : one.offset + len(one)].astype(np.bool_)
    if data is None:
        return np.zeros(0, dtype=_NUMPY[one.type])
    values = np.frombuffer(data, dtype=_NUMPY[one.type])
    return values[one.offset : one.offset + len(one)]


def codes_of(array: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Codes and words of a dictionary-encoded string array; null is code -1."""
    rows = len(array)
    piece = _piece(array)
    if piece is not None:
        codes, words = codes_of(piece)
        if bool((codes == codes[0]).all()):
            return np.broadcast_to(codes[0], rows), words
    if isinstance(array, pa.ChunkedArray) and array.num_chunks > 1:
        array = array.unify_dictionaries()
    one = _one(array)
    codes = as_numpy(one.indices)
    if one.null_count:
        codes = np.where(valid_of(one.indices), codes, -1)
    return codes.astype(np.int32, copy=False), one.dictionary.to_pylist()


def few(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The distinct values in order, and for each row which of them it has.

    Made for columns with few distinct values: they are looked for in a sample, and the rest of the
    column is searched in what was found.
    """
    if not len(values):
        return values, np.zeros(0, dtype=np.int32)
    ends = [values.min(), values.max()]
    words = np.unique(np.r_[values[:: max(len(values) // _SAMPLE, 1)], ends])
    while True:
        codes = _placed(words, values)
        missed = values[words[codes] != values]
        if not len(missed):
            return words, codes
        words = np.union1d(words, missed)


def _placed(words: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The word that each value is, if it is one; what stands for the others is arbitrary.

    The smallest and the largest value are words.
    """
    low, high = int(words[0]), int(words[-1])
    if high - low < _SPAN:
        table = np.zeros(high - low + 1, dtype=np.int32)
        table[words - low] = np.arange(len(words), dtype=np.int32)
        return table[values - low]
    return np.searchsorted(words, values).astype(np.int32)


def narrow(codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Codes from 0 in 16 bits where they fit: numpy's stable sort of those takes linear time."""
    fits = len(codes) == 0 or int(codes.max()) < 1 << 16
    return codes.astype(np.uint16) if fits else codes
