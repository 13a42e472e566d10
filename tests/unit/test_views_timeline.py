# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import graph_trace, host_trace

from graphtrace.model.trace import TableSet, Trace
from graphtrace.views.timeline import Bar, _covered, _depths, timeline_view

SPANS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), max_size=40)


def test_slowest_replay_bar_for_bar():
    trace = graph_trace(kernels=20, replays=4)
    view = timeline_view(trace)
    rows = trace.activities.to_pylist()
    paths = trace.stages.column("path").to_pylist()
    begin = 3 * 10_000_000
    expected = {
        Bar(
            row["stream"] - 7,
            row["begin_ns"] - begin,
            row["end_ns"] - begin,
            "(no stage)" if row["stage"] is None else paths[row["stage"]],
            row["name"],
            row["end_ns"] - row["begin_ns"],
        )
        for row in rows
        if row["replay"] == 3
    }
    assert set(view.bars) == expected
    assert len(view.bars) == 20
    assert not view.binned
    assert view.lanes == ("stream 7", "stream 8")
    assert view.title == "Slowest of 4 graph replays: 79.2 µs"


@given(SPANS, st.lists(st.integers(0, 1500), min_size=1, max_size=20))
def test_covered_time_against_a_slow_sum(spans, edges):
    begin = np.array([b for b, _ in spans], dtype=np.int64)
    end = np.array([b + d for b, d in spans], dtype=np.int64)
    fast = _covered(begin, end, np.array(edges, dtype=np.int64))
    slow = [sum(min(max(edge - b, 0), d) for b, d in spans) for edge in edges]
    assert fast.tolist() == slow


def test_binned_view_against_a_slow_one():
    trace = graph_trace(kernels=400, replays=1)
    view = timeline_view(trace, limit=60)
    assert view.binned
    assert len(view.bars) <= 60
    assert view.note.startswith("400 activities in slices of ")
    paths = trace.stages.column("path").to_pylist()
    edges = np.linspace(0, view.wall_ns, 31).astype(int).tolist()
    busy = defaultdict(int)
    for row in trace.activities.to_pylist():
        stage = "(no stage)" if row["stage"] is None else paths[row["stage"]]
        for i, (lo, hi) in enumerate(pairwise(edges)):
            part = min(hi, row["end_ns"]) - max(lo, row["begin_ns"])
            if part > 0:
                busy[row["stream"] - 7, i, stage] += part
    for bar in view.bars:
        place = edges.index(bar.begin_ns)
        here = {s: ns for (lane, i, s), ns in busy.items() if (lane, i) == (bar.lane, place)}
        assert bar.busy_ns == here[bar.stage] == max(here.values())
    assert {(b.lane, edges.index(b.begin_ns)) for b in view.bars} == {(k[0], k[1]) for k in busy}


def test_many_lanes_keep_the_busiest():
    trace = graph_trace(kernels=120, replays=1)
    table = trace.activities
    place = table.schema.get_field_index("stream")
    from graphtrace.model.arrays import numbers

    streams = numbers(np.arange(120), table.schema.field("stream").type)
    table = table.set_column(place, table.schema.field("stream"), streams)
    view = timeline_view(Trace(trace.inputs, trace.tables.with_tables(activities=table)))
    assert len(view.lanes) == 40
    assert view.note == "80 less busy lanes left out."
    assert {bar.lane for bar in view.bars} == set(range(40))


def test_host_stages_of_the_slowest_batch_by_depth():
    view = timeline_view(host_trace())
    assert view.title == "Slowest of 3 batches (448px): 3.00 µs"
    assert view.lanes == ("depth 1", "depth 2")
    assert [(b.lane, b.begin_ns, b.end_ns, b.stage) for b in view.bars] == [
        (0, 0, 2100, "encoder"),
        (0, 2130, 2970, "head"),
        (1, 30, 900, "encoder/attn"),
        (1, 930, 2070, "encoder/mlp"),
    ]


def test_without_batches_the_longest_range_is_the_unit():
    trace = host_trace()
    tables = {k: v for k, v in trace.tables.tables.items() if k != "batches"}
    view = timeline_view(Trace(trace.inputs, TableSet(tables)))
    assert view.title == "Longest stage range: 2.10 µs"
    assert {bar.stage for bar in view.bars} == {"encoder", "encoder/attn", "encoder/mlp"}


def test_without_any_unit_all_device_work_is_drawn():
    trace = graph_trace(kernels=10, replays=2)
    tables = {k: v for k, v in trace.tables.tables.items() if k != "replays"}
    view = timeline_view(Trace(trace.inputs, TableSet(tables)))
    assert view.title == "All device work: 10.0 ms"
    assert len(view.bars) == 20


def test_nothing_to_draw():
    assert timeline_view(Trace((), TableSet({}))) is None


@settings(max_examples=200)
@given(
    st.recursive(st.just([]), lambda kids: st.lists(kids, min_size=1, max_size=3), max_leaves=12)
)
def test_depth_of_nested_ranges(tree):
    spans, clock = [], iter(range(10_000))

    def walk(node, depth):
        begin = next(clock)
        for child in node:
            walk(child, depth + 1)
        spans.append((begin, next(clock), depth))

    walk(tree, 0)
    begin, end, depth = (np.array(column) for column in zip(*spans, strict=True))
    assert _depths(begin, end).tolist() == depth.tolist()


@pytest.mark.parametrize("limit", [1, 7, 1500])
def test_limit_holds(limit):
    view = timeline_view(graph_trace(kernels=2000, replays=1), limit=max(limit, 2))
    assert len(view.bars) <= max(limit, 2)
