# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays built from buffers hold what Arrow itself would hold."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.model.arrays import (
    as_numpy,
    codes_of,
    dictionary,
    encode,
    lists,
    make_table,
    numbers,
    strings,
    valid_of,
)
from graphtrace.model.schema import TABLES, empty_table

RANGES = {
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
}


@given(st.data(), st.sampled_from(list(RANGES)))
def test_numbers_hold_every_value_and_null(data, arrow_type):
    items = data.draw(st.lists(st.none() | RANGES[arrow_type]))
    valid = np.array([item is not None for item in items], dtype=bool)
    filled = [0 if item is None else item for item in items]
    dtype = np.uint64 if arrow_type == pa.uint64() else None
    array = numbers(np.array(filled, dtype=dtype), arrow_type, valid)
    array.validate(full=True)
    assert array.to_pylist() == items
    assert valid_of(array).tolist() == valid.tolist()
    assert as_numpy(array)[valid].tolist() == [item for item in items if item is not None]


@given(st.lists(st.none() | st.text()), st.integers(0, 5), st.integers(0, 5))
def test_texts_survive_encoding_chunking_and_slicing(items, start, length):
    clean = [None if t is None else t.encode("utf-8", "replace").decode() for t in items]
    for array in (strings(items), encode(items)):
        array.validate(full=True)
        assert array.to_pylist() == clean
    chunked = pa.chunked_array([encode(items), encode(items[::-1])])
    codes, words = codes_of(chunked)
    assert [None if c < 0 else words[c] for c in codes] == clean + clean[::-1]
    part = encode(items).slice(start, length)
    codes, words = codes_of(part)
    assert [None if c < 0 else words[c] for c in codes] == clean[start : start + length]


@given(st.lists(st.none() | st.lists(st.integers(-(2**63), 2**63 - 1))))
def test_lists_hold_every_item(items):
    array = lists(items, pa.int64())
    array.validate(full=True)
    assert array.to_pylist() == items


def test_every_table_can_be_empty_and_can_leave_out_what_is_nullable():
    for name, table in TABLES.items():
        assert make_table(name, 0, {}).equals(empty_table(name))
        required = {
            c.name: encode(["x"])
            if pa.types.is_dictionary(c.type)
            else strings(["x"])
            if pa.types.is_string(c.type)
            else lists([[1]], c.type.value_type)
            if pa.types.is_list(c.type)
            else numbers([1], c.type)
            for c in table.columns
            if not c.nullable
        }
        made = make_table(name, 1, required)
        made.validate(full=True)
        left_out = [c.name for c in table.columns if c.nullable]
        assert all(made.column(column).null_count == 1 for column in left_out)


def test_a_table_refuses_what_its_schema_does_not_know():
    with pytest.raises(TypeError, match="no column nonsense"):
        make_table("processes", 1, {"process": [0], "source": [0], "nonsense": [1]})
    with pytest.raises(TypeError, match="needs column source"):
        make_table("processes", 1, {"process": [0]})
    with pytest.raises(TypeError, match="not int64"):
        make_table("processes", 1, {"process": [0], "source": [0], "pid": numbers([1], pa.int32())})


def test_building_and_reading_arrays_does_not_import_pandas():
    code = (
        "import sys, numpy as np, pyarrow as pa\n"
        "from graphtrace.model.arrays import *\n"
        "t = make_table('processes', 2, {'process': [0, 1], 'source': [0, 0]})\n"
        "as_numpy(t['process']); valid_of(t['pid']); codes_of(encode(['a', None]))\n"
        "dictionary([0], ['a']); lists([[1]], pa.int64()); strings(['a'])\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_dictionary_marks_nulls():
    array = dictionary([0, 7], ["a"], np.array([True, False]))
    assert array.to_pylist() == ["a", None]
