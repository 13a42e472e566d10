# SPDX-License-Identifier: Apache-2.0
"""Any table comes back from a recording as it was, whatever its values."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.model.arrays import dictionary, encode, lists, make_table, numbers, strings
from graphtrace.model.recording import Manifest, read_tables, write_recording
from graphtrace.model.schema import TABLES
from graphtrace.model.trace import TableSet

WORDS = st.text(st.characters(codec="utf-8"), max_size=6)
FLOATS = st.floats(allow_nan=False)


def values(kind):
    if kind == pa.bool_():
        return st.booleans()
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        signed = (-(1 << bits - 1), (1 << bits - 1) - 1)
        low, high = (0, (1 << bits) - 1) if kind == pa.uint64() else signed
        return st.integers(low, high) | st.sampled_from([low, high])
    if kind == pa.float64():
        return FLOATS
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    return WORDS


def column(kind, items):
    if pa.types.is_dictionary(kind):
        return encode(items)
    if pa.types.is_string(kind):
        return strings(items)
    if pa.types.is_list(kind):
        return lists(items, kind.value_type)
    plain = [0 if item is None else item for item in items]
    known = np.asarray([item is not None for item in items], dtype=np.bool_)
    array = plain if kind == pa.bool_() else np.asarray(plain, dtype=kind.to_pandas_dtype())
    return numbers(array, kind, known)


@st.composite
def tables(draw):
    name = draw(st.sampled_from(sorted(TABLES)))
    rows = draw(st.integers(0, 12))
    made = {}
    for c in TABLES[name].columns:
        each = values(c.type) | st.none() if c.nullable else values(c.type)
        made[c.name] = column(c.type, draw(st.lists(each, min_size=rows, max_size=rows)))
    return make_table(name, rows, made), name


@given(tables())
def test_any_table_comes_back(drawn):
    table, name = drawn
    with tempfile.TemporaryDirectory() as folder:
        write_recording(Path(folder), Manifest(), TableSet({name: table}))
        read, finished = read_tables(Path(folder))
    assert finished
    assert list(read.tables) == [name]
    assert read.get(name).to_pylist() == table.to_pylist()


def test_a_column_of_words_is_read_with_one_dictionary(tmp_path):
    rows = 3_000_000
    names = [f"kernel_{number:05d}_" * 8 for number in range(20_000)]
    codes = np.arange(rows) % len(names)
    whole = np.zeros(rows, dtype=np.int64)
    table = make_table(
        "api_calls",
        rows,
        {
            "process": whole,
            "thread": whole,
            "name": dictionary(codes, names),
            "begin_ns": np.arange(rows) * 1000,
            "end_ns": np.arange(rows) * 1000 + 7,
        },
    )
    write_recording(tmp_path, Manifest(), TableSet({"api_calls": table}))
    file = tmp_path / "api_calls.parquet"
    read, _ = read_tables(tmp_path)
    name = read.get("api_calls").column("name")
    assert name.num_chunks == 1
    assert name.equals(table.column("name"))
    assert file.stat().st_size < 15_000_000
    group = pq.ParquetFile(file).metadata.row_group(0)
    encodings = {
        group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)
    }
    assert "DELTA_BINARY_PACKED" in encodings["begin_ns"]
    assert "RLE_DICTIONARY" in encodings["name"]
