# SPDX-License-Identifier: Apache-2.0
"""A trace gives its tables, and says when there is no work in it."""

import pyarrow as pa
import pytest

from graphtrace.model.arrays import encode, make_table, numbers
from graphtrace.model.errors import NoGpuWork
from graphtrace.model.schema import TABLES
from graphtrace.model.trace import InputInfo, TableSet, Trace


def a_trace(**tables):
    return Trace((InputInfo("x", "gtrace"),), TableSet(tables))


def one_batch():
    return make_table(
        "batches", 1, {"batch": [0], "process": [0], "begin_ns": [1], "end_ns": [2**60 + 1]}
    )


def test_a_table_of_another_schema_is_refused():
    with pytest.raises(TypeError, match="batches"):
        TableSet({"batches": pa.table({"x": [1]})})


def test_tables_are_attributes_except_the_one_that_streams():
    trace = a_trace(batches=one_batch())
    assert trace.activities.schema.equals(TABLES["activities"].schema)
    assert trace.table("batches").num_rows == 1
    assert [b.num_rows for b in trace.batches("batches", ["end_ns"])] == [1]
    with pytest.raises(AttributeError, match="no table 'kernels'"):
        _ = trace.kernels
    with pytest.raises(KeyError, match="kernels"):
        trace.table("kernels")


def test_pandas_keeps_large_integers_beside_nulls():
    frame = a_trace(batches=one_batch()).to_pandas("batches")
    assert frame["end_ns"][0] == 2**60 + 1
    assert frame["valid_tokens"].isna().all()


def test_absent_and_empty_are_two_things():
    tables = TableSet({"activities": make_table("activities", 0, {})})
    assert tables.has("activities")
    assert not tables.has("ranges")
    assert tables.rows("ranges") == 0


def test_work_is_a_batch_or_a_recorded_stage_but_not_a_bare_range():
    a_trace(batches=one_batch()).require_work()
    fields = {
        "process": [0],
        "thread": [1],
        "domain": encode([""]),
        "text": encode(["x"]),
        "kind": encode(["push_pop"]),
        "begin_ns": [1],
    }
    with pytest.raises(NoGpuWork, match="no GPU work"):
        a_trace(ranges=make_table("ranges", 1, fields)).require_work()
    staged = make_table("ranges", 1, {**fields, "stage": numbers([0], pa.int32())})
    a_trace(ranges=staged).require_work()


def test_the_reason_of_the_input_is_raised():
    reason = NoGpuWork("a", "b", "c")
    trace = Trace((InputInfo("x", "nsys_sqlite"),), TableSet(), nothing=(reason,))
    with pytest.raises(NoGpuWork) as caught:
        trace.require_work()
    assert caught.value is reason


def test_what_a_prompt_shows_of_a_trace_is_short():
    shown = repr(a_trace(batches=one_batch()))
    assert "TableSet(batches=1)" in shown
    assert len(shown) < 300
