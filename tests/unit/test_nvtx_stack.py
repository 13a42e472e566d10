# SPDX-License-Identifier: Apache-2.0
"""Stacks of push/pop ranges against a slow oracle that looks at every range."""

from random import Random

import numpy as np
import pytest
from attribute_builders import Row, push, table
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.attribute.keys import Lanes, Lookup, join_keys, pack, sum_by
from graphtrace.attribute.nvtx_stack import Nest, crossing
from graphtrace.attribute.open_stages import OpenStages
from graphtrace.attribute.paths import StagePaths
from graphtrace.model.schema import empty_table

FOREVER = np.iinfo(np.int64).max
Interval = tuple[int, int]


def _end(row: Row) -> int:
    return FOREVER if row["end_ns"] is None else row["end_ns"]


def _crosses(row: Row, rows: list[Row]) -> bool:
    return (
        any(
            _lane(other) == _lane(row)
            and other["begin_ns"] < row["begin_ns"] < _end(other) < _end(row)
            for other in rows
            if other["kind"] == "push_pop" and _end(other) > other["begin_ns"]
        )
        and _end(row) > row["begin_ns"]
    )


def _lane(row: Row) -> tuple[int, int, str]:
    return row["process"], row["thread"], row["domain"]


def _order(row: Row) -> tuple[int, int, str, str]:
    return row["begin_ns"], -_end(row), row["domain"], row["text"]


def _eligible(rows: list[Row], process: int) -> list[Row]:
    ours = [r for r in rows if r["process"] == process and r["kind"] == "push_pop"]
    named = [r for r in ours if r["domain"] == "graphtrace"]
    return named or ours


def oracle(rows: list[Row], process: int, thread: int, time: int) -> tuple[str | None, bool]:
    """Path open at a time and whether it is refused."""
    ours = [r for r in _eligible(rows, process) if r["thread"] == thread]
    now = [r for r in ours if r["begin_ns"] <= time < _end(r)]
    if any(_crosses(r, ours) for r in now):
        return None, True
    names = [r["text"] or "(unnamed)" for r in sorted(now, key=_order)]
    return "/".join(names) or None, False


def _look(rows: list[Row], queries: list[tuple[int, int, int]]) -> tuple[list, list, OpenStages]:
    paths = StagePaths(empty_table("stages"))
    opened = OpenStages(table("ranges", rows), paths)
    process, thread, time = (np.asarray(c, dtype=np.int64) for c in zip(*queries, strict=True))
    answer = opened.at(process, thread, time)
    by_key = paths.path_by_key
    found = [by_key.get(key) for key in answer.stage.tolist()]
    roots = [None if r < 0 else rows[r]["text"] for r in answer.root.tolist()]
    return list(zip(found, answer.refused.tolist(), strict=True)), roots, opened


range_rows = st.builds(
    lambda begin, length, text, domain, thread, process, kind: {
        **push(
            begin,
            None if length is None else begin + length,
            text,
            domain=domain,
            thread=thread,
            process=process,
        ),
        "kind": kind,
    },
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(0, 20), st.integers(0, 4)),
    st.sampled_from(["a", "b", "", "c"]),
    st.sampled_from(["", "NCCL", "cuBLAS", "graphtrace"]),
    st.integers(1, 2),
    st.integers(0, 1),
    st.sampled_from(["push_pop", "push_pop", "push_pop", "push_pop", "start_end", "mark"]),
)


@given(st.lists(range_rows, max_size=14))
def test_open_stage_is_the_one_of_the_oracle(rows: list[Row]) -> None:
    queries = [(p, t, at) for p in (0, 1) for t in (1, 2, 3) for at in range(-2, 54)]
    answers, _, _ = _look(rows, queries)
    assert answers == [oracle(rows, *query) for query in queries]


@given(st.lists(range_rows, max_size=10), st.randoms())
def test_stages_of_ranges_and_row_order(rows: list[Row], random: Random) -> None:
    """A range is the path that was open when it was pushed, up to itself."""
    _, _, opened = _look(rows, [(0, 1, 0)])
    by_key = opened._paths.path_by_key
    got = [by_key.get(key) for key in opened.stage_of_range.tolist()]
    assert got == [_path_of(row, rows) for row in rows]
    order = list(range(len(rows)))
    random.shuffle(order)
    _, _, again = _look([rows[i] for i in order], [(0, 1, 0)])
    by_key = again._paths.path_by_key
    shuffled = [by_key.get(key) for key in again.stage_of_range.tolist()]
    # Equal rows stand for each other.
    assert sorted(map(str, shuffled)) == sorted(map(str, got))


def _path_of(row: Row, rows: list[Row]) -> str | None:
    eligible = _eligible(rows, row["process"])
    if not any(row is other for other in eligible):
        return None
    ours = [r for r in eligible if r["thread"] == row["thread"]]
    begin = row["begin_ns"]
    now = [r for r in ours if r["begin_ns"] <= begin < _end(r)]
    if any(_crosses(r, ours) for r in now):
        return None
    if _end(row) <= begin:
        names = [r["text"] for r in sorted(now, key=_order)] + [row["text"]]
    else:
        # Of equal ranges the rows come in the order given.
        before = sorted(now, key=_order)
        place = next(i for i, r in enumerate(before) if r is row)
        names = [r["text"] for r in before[: place + 1]]
    return "/".join(name or "(unnamed)" for name in names)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 25)), max_size=25))
def test_crossing_ranges_are_counted_exactly(pairs: list[Interval]) -> None:
    begin = np.asarray([b for b, _ in pairs], dtype=np.int64)
    end = np.asarray([b + n for b, n in pairs], dtype=np.int64)
    expected = [
        any(b2 < b < e2 < e for b2, e2 in zip(begin, end, strict=True))
        for b, e in zip(begin, end, strict=True)
    ]
    assert crossing(begin, end).tolist() == expected


def test_half_open_and_order_at_one_instant() -> None:
    rows = [push(0, 10, "a"), push(10, 20, "b"), push(10, 15, "c")]
    answers, roots, _ = _look(rows, [(0, 1, t) for t in (-1, 0, 9, 10, 14, 15, 20)])
    assert [path for path, _ in answers] == [None, "a", "a", "b/c", "b/c", "b", None]
    assert roots == [None, "a", "a", "b", "b", "b", None]


def test_domains_of_one_thread_are_joined_by_start_though_they_cross() -> None:
    rows = [push(0, 10, "a", domain="x"), push(5, 15, "b", domain="y"), push(7, 9, "c", domain="x")]
    answers, _, opened = _look(rows, [(0, 1, t) for t in (2, 6, 8, 12)])
    assert answers == [("a", False), ("a/b", False), ("a/b/c", False), ("b", False)]
    assert opened.crossing == 0


def test_domain_graphtrace_alone_counts_where_the_process_has_it() -> None:
    rows = [
        push(0, 100, "step"),
        push(10, 50, "encoder", domain="graphtrace"),
        push(0, 100, "step", process=1),
    ]
    answers, _, _ = _look(rows, [(0, 1, 20), (0, 1, 60), (1, 1, 20)])
    assert [path for path, _ in answers] == ["encoder", None, "step"]


def test_crossing_ranges_get_no_partner_and_are_refused_only_where_it_matters() -> None:
    rows = [push(0, 100, "outer"), push(10, 30, "a"), push(20, 40, "b")]
    answers, _, opened = _look(rows, [(0, 1, t) for t in (5, 15, 25, 35, 50)])
    assert answers == [
        ("outer", False),
        ("outer/a", False),
        (None, True),
        (None, True),
        ("outer", False),
    ]
    assert opened.crossing == 1


def test_open_end_lasts_and_no_ranges_answer_nothing() -> None:
    answers, _, _ = _look([push(5, None, "a")], [(0, 1, 4), (0, 1, 5), (0, 1, 10**18)])
    assert [path for path, _ in answers] == [None, "a", "a"]
    answers, _, opened = _look([], [(0, 1, 3)])
    assert answers == [(None, False)]
    assert opened.lanes == 0


def test_a_given_stage_encloses_its_children_though_they_begin_and_end_together() -> None:
    stages = table(
        "stages",
        [
            {"stage": 3, "path": "z", "name": "z", "origin": "module"},
            {"stage": 5, "parent": 3, "path": "z/a", "name": "a", "origin": "module"},
        ],
    )
    rows = [{**push(0, 10, "a"), "stage": 5}, {**push(0, 10, "z"), "stage": 3}, push(2, 4, "x")]
    paths = StagePaths(stages)
    opened = OpenStages(table("ranges", rows), paths)
    zero, one = np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64)
    got = opened.at(zero, one, np.asarray([1, 3]))
    assert [paths.path_by_key[key] for key in got.stage.tolist()] == ["z/a", "z/a/x"]
    assert opened.stage_of_range.tolist()[:2] == [5, 3]


@pytest.mark.parametrize("big", [1, 1 << 40, 1 << 61])
def test_packed_keys_join_as_tuples_do(big: int) -> None:
    rng = np.random.default_rng(1)
    left = [rng.integers(0, 4, 50) * big, rng.integers(-3, 3, 50), rng.integers(0, 9, 50) * big]
    right = [column[::-1][:20] for column in left]
    a, b = join_keys(left, right)
    rows = list(zip(*(c.tolist() for c in left), strict=True))
    wanted = list(zip(*(c.tolist() for c in right), strict=True))
    assert Lookup.of(a).first(b).tolist() == [rows.index(row) for row in wanted]
    order = np.argsort(pack(*left), kind="stable")
    assert [rows[i] for i in order] == sorted(rows)


def test_sums_are_exact_above_the_precision_of_floats() -> None:
    key = np.asarray([2, 1, 2])
    _, (total,) = sum_by(key, np.asarray([(1 << 60) + 1, 5, 1]))
    assert total.tolist() == [5, (1 << 60) + 2]


def test_lanes_do_not_meet() -> None:
    lane = np.asarray([0, 1, 2])
    axis = Lanes.of(lane, np.asarray([100, -50, 10**18]), np.asarray([200, 50, 10**18 + 1]), 3)
    left = axis.place(lane, np.full(3, -(10**18)))
    right = axis.place(lane, np.full(3, 2 * 10**18))
    assert (left[1:] > right[:-1]).all()


def test_a_million_ranges_take_seconds() -> None:
    per = 32
    base = np.arange(1_000_000 // per)[:, None] * 100_000
    begin = np.concatenate([base] + [base + 100 + i * 2_800 for i in range(per - 1)], 1).ravel()
    end = begin + np.tile([90_000] + [2_000] * (per - 1), len(base))
    lane = np.zeros(len(begin), dtype=np.int64)
    order = np.arange(len(begin))
    nest = Nest.of(lane, begin, end, order, 1)
    inner, refused = nest.query(lane, begin + 1)
    assert (inner == order).all()
    assert not refused.any()
