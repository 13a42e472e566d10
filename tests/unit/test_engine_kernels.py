# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from analysis_builders import activities, ncu_tables
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.analysis.kernels import KEPT, kernel_rows
from graphtrace.model.metric_view import MetricView, function_name
from graphtrace.model.trace import TableSet

STAGES = {0: "encoder", 1: "head"}


def rows_of(tables):
    view = MetricView.of(tables)
    labels = {key: f"r#{key}" for key in view.keys.tolist()}
    return kernel_rows(tables, view, labels, STAGES)


kernels = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", None]),
            "kind": st.sampled_from(["kernel", "memcpy", "collective", "mark"]),
            "stage": st.sampled_from([None, 0, 1]),
            "begin": st.integers(0, 1000),
            "blocks": st.sampled_from([None, 1, 2]),
            "device": st.sampled_from([0, 1]),
        }
    ).map(lambda row: {**row, "end": row["begin"] + 7}),
    max_size=20,
)


@given(kernels)
def test_timeline_rows_add_up(made):
    expected = {}
    for row in made:
        if row["kind"] in ("kernel", "collective"):
            key = (row["name"] or "", STAGES.get(row["stage"]))
            expected.setdefault(key, []).append(row)
    found, left = rows_of(TableSet({"activities": activities(*made)}))
    assert left == 0
    assert {(k.name, k.stage) for k in found} == set(expected)
    for kernel in found:
        group = expected[kernel.name, kernel.stage]
        assert (kernel.count, kernel.total_ns) == (len(group), 7 * len(group))
        grids = {row["blocks"] for row in group}
        agreed = grids.pop() if len(grids) == 1 else None
        assert kernel.grid == (None if agreed is None else (agreed, 1, 1))
        on = {row["device"] for row in group}
        assert kernel.device == (on.pop() if len(on) == 1 else None)
        assert kernel.source == "timeline"


def test_long_lists_are_cut_and_say_so():
    made = [{"name": f"k{i}", "begin": 0, "end": i + 1} for i in range(KEPT + 5)]
    found, left = rows_of(TableSet({"activities": activities(*made)}))
    assert (len(found), left) == (KEPT, 5)
    assert found[0].total_ns == KEPT + 5
    found, left = rows_of(ncu_tables(*[{"ns": i + 1} for i in range(KEPT + 5)]))
    assert (len(found), left) == (KEPT, 5)


def test_rates_that_cannot_be_are_kept_as_invalid():
    found, _ = rows_of(
        ncu_tables({"l1tex__t_sector_hit_rate.pct": 171.0, "lts__t_sector_hit_rate.pct": -3.0})
    )
    metrics = found[0].metrics
    assert metrics["l1tex__t_sector_hit_rate.pct"].value is None
    assert "171 %" in metrics["l1tex__t_sector_hit_rate.pct"].invalid
    assert metrics["lts__t_sector_hit_rate.pct"].value is None


@pytest.mark.parametrize(
    ("ns", "passes", "valid"), [(9_000, 35, False), (9_000, 1, True), (30_000, 35, True)]
)
def test_l2_hit_rates_of_short_kernels_decide_nothing(ns, passes, valid):
    found, _ = rows_of(ncu_tables({"ns": ns, "passes": passes, "lts__t_sector_hit_rate.pct": 50.5}))
    metric = found[0].metrics["lts__t_sector_hit_rate.pct"]
    assert metric.value == 50.5
    assert (metric.invalid is None) == valid


def test_one_row_a_result_with_how_it_was_measured():
    found, _ = rows_of(
        ncu_tables(
            {
                "ns": 10,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 240.0,
                "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 10.0,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0.0,
                "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 0.0,
                "dram__bytes_op_read.sum": 64.0,
                **{
                    f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio": value
                    for reason, value in (
                        ("selected", 9.0),
                        ("wait", 1.0),
                        ("lg_throttle", 5.0),
                        ("barrier", 0.0),
                        ("drain", 0.1),
                        ("membar", 0.2),
                        ("misc", 0.3),
                        ("sleeping", 0.4),
                    )
                },
            },
            {"ns": 20},
        )
    )
    assert [k.result for k in found] == ["r#1", "r#0"]
    kernel = found[1]
    assert kernel.metrics["graphtrace__sectors_per_request_ld"].value == 24.0
    assert "graphtrace__sectors_per_request_st" not in kernel.metrics
    assert kernel.metrics["dram__bytes_op_read.sum"].unit == "byte"
    mode = kernel.metrics["dram__bytes_op_read.sum"].mode
    assert (mode.cache, mode.clock, mode.passes) == ("flushed", "base", 35)
    assert list(kernel.stalls) == ["lg_throttle", "wait", "sleeping", "misc", "membar"]
    assert (kernel.grid, kernel.block, kernel.count) == ((1000, 1, 1), (256, 1, 1), 1)


def test_metric_view_takes_the_first_spelling_that_a_result_has():
    view = MetricView.of(ncu_tables({"a": 1.0, "b": 2.0}, {"b": 3.0}, {}))
    np.testing.assert_array_equal(view.values("a", "b"), [1.0, 3.0, np.nan])
    np.testing.assert_array_equal(view.values("none"), [np.nan] * 3)
    assert view.lookup(1, "a", "b") == ("b", 3.0, "")
    assert view.lookup(2, "a", "b") is None
    assert [e.value for e in view.evidence(0, ("a",), ("none",))] == [1]
    empty = MetricView.of(TableSet({}))
    assert len(empty) == 0
    assert empty.values("a").shape == (0,)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void at::native::add<4, at::A<int>>(int, at::A)", "add"),
        ("kernel", "kernel"),
        ("my::kernel(float *)", "kernel"),
        ("std::array<int, 2> ns::f<int>()", "f"),
        ("(anonymous namespace)::g(int)", "g"),
        ("void (anonymous namespace)::g<int>(int)", "g"),
        ("", ""),
    ],
)
def test_function_names_are_those_that_ncu_filters_by(name, function):
    assert function_name(name) == function
