# SPDX-License-Identifier: Apache-2.0
"""Lineage of graph nodes against an oracle that walks one hop at a time."""

import numpy as np
from attribute_builders import Row, event, table
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.attribute.origin import Lineage
from graphtrace.attribute.reasons import REASONS

Answer = tuple[int | None, str | None]


def look(rows: list[Row], queries: list[tuple[int, int, int]]) -> list[Answer]:
    lineage = Lineage.of(table("graph_events", rows))
    process, node, time = (np.asarray(c, dtype=np.int64) for c in zip(*queries, strict=True))
    found = lineage.roots(process, node, time, np.ones(len(node), dtype=np.bool_))
    event, reason = found.event[found.answer], found.reason[found.answer]
    return [
        (row if row >= 0 else None, REASONS[why] if why >= 0 else None)
        for row, why in zip(event.tolist(), reason.tolist(), strict=True)
    ]


def oracle(rows: list[Row], process: int, node: int, time: int) -> int | None:
    """Row of the creation, None where it is not certain."""
    seen: set[tuple[int, int]] = set()
    while True:
        same = [r for r in rows if r["process"] == process and r["node_native_id"] == node]
        before = [r for r in same if r["time_ns"] <= time]
        if not before or len({r["origin_native_id"] for r in before}) > 1:
            return None
        places = {(r["time_ns"], r["thread"]) for r in before}
        if len({t for t, _ in places}) < len(places):
            return None
        last = max(before, key=lambda r: r["time_ns"])
        if last["origin_native_id"] is None:
            return rows.index(last)
        if (node, time) in seen:
            return None
        seen.add((node, time))
        node, time = last["origin_native_id"], last["time_ns"]


events = st.builds(
    lambda node, origin, time, thread, process: event(
        node, origin, time, thread=thread, process=process
    ),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(1, 6)),
    st.integers(0, 12),
    st.integers(1, 2),
    st.sampled_from([0, 0, 0, 1]),
)


@given(st.lists(events, max_size=12))
def test_lineage_is_that_of_the_oracle(rows: list[Row]) -> None:
    queries = [(p, n, t) for p in (0, 1) for n in range(8) for t in range(-1, 14)]
    got = look(rows, queries)
    wanted = [oracle(rows, *query) for query in queries]
    where = [None if row is None else rows[row] for row, _ in got]
    assert where == [None if row is None else rows[row] for row in wanted]
    assert all((row is None) == (why is not None) for row, why in got)


def test_several_hops_lead_to_the_creation() -> None:
    rows = [event(30, 20, 3), event(10, None, 1), event(20, 10, 2)]
    assert look(rows, [(0, 30, 5), (0, 20, 5), (0, 10, 5)]) == [(1, None)] * 3


def test_what_is_refused_says_why() -> None:
    rows = [
        event(2, 1, 5),
        event(1, 2, 5),  # a cycle
        event(3, 9, 5),  # leads out of the recording
        event(4, None, 1),
        event(5, 4, 2),
        event(5, 6, 3),  # two parents
        event(6, None, 1),
        event(7, 7, 1),  # made from itself
    ]
    assert look(rows, [(0, n, 10) for n in (2, 3, 5, 8, 7)]) == [
        (None, "lineage cycle"),
        (None, "creation not recorded"),
        (None, "two parents"),
        (None, "creation not recorded"),
        (None, "lineage cycle"),
    ]


def test_an_id_that_is_used_again_means_the_node_of_its_time() -> None:
    rows = [event(1, None, 10), event(1, None, 50), event(2, 1, 20), event(3, 1, 60)]
    assert look(rows, [(0, 1, 5), (0, 1, 10), (0, 1, 49), (0, 1, 50), (0, 2, 99), (0, 3, 99)]) == [
        (None, "creation not recorded"),
        (0, None),
        (0, None),
        (1, None),
        (0, None),
        (1, None),
    ]


def test_an_exec_made_again_is_known_only_until_then() -> None:
    rows = [event(1, None, 1), event(2, None, 2), event(9, 1, 10), event(9, 2, 20)]
    assert look(rows, [(0, 9, 15), (0, 9, 25)]) == [(0, None), (None, "two parents")]


def test_processes_do_not_share_ids() -> None:
    rows = [event(1, None, 1, process=0), event(2, 1, 2, process=1)]
    assert look(rows, [(1, 2, 9), (1, 1, 9), (0, 1, 9)]) == [
        (None, "creation not recorded"),
        (None, "creation not recorded"),
        (0, None),
    ]


def test_one_capture_has_many_instances_and_a_long_chain_ends() -> None:
    chain = [event(1, None, 0)] + [event(n, n - 1, n) for n in range(2, 3_000)]
    assert look(chain[::-1], [(0, 2_999, 10**6)]) == [(2_998, None)]
    many = [event(1, None, 0)] + [event((n << 32) | 1, 1, n) for n in range(2, 50)]
    assert look(many, [(0, (n << 32) | 1, 10**6) for n in range(2, 50)]) == [(0, None)] * 48
