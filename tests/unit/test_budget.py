# SPDX-License-Identifier: Apache-2.0
"""The time budget: what must hold for any trace, and host recordings against a slow oracle."""

from collections import Counter
from typing import Any

import pytest
from attribute_builders import (
    call,
    event,
    kernel,
    push,
    shuffled,
    stage_paths,
    times_by_path,
    trace,
)
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.attribute.attribute import attribute
from graphtrace.model.analysis import Budget, DeviceBudget
from graphtrace.model.trace import Trace

STAGES = ("a", "b", "c")
EXEC = 9 << 32

works = st.lists(
    st.tuples(
        st.integers(0, 60),  # begin
        st.integers(0, 20),  # length
        st.integers(1, 3),  # stream
        st.integers(0, 1),  # process
        st.integers(0, 1),  # device
        st.integers(0, 3),  # launch; 0 is eager
        st.integers(0, 4),  # node: three in stages, one without, one unknown
        st.sampled_from(["kernel", "kernel", "memcpy", "mark"]),
    ),
    max_size=16,
)


def made(rows: list[tuple[Any, ...]], *, apart: bool = False) -> Trace:
    """A trace of these activities; `apart` gives each process devices of its own."""
    activities = []
    for key, (begin, length, stream, process, device, launch, number, kind) in enumerate(rows):
        inside = {"node_native_id": EXEC | number} if launch else {"node_native_id": None}
        activities.append(
            kernel(
                key,
                1_000 + begin,
                1_000 + begin + length,
                stream=stream,
                process=process,
                device=device + 2 * process * apart,
                correlation=launch if launch else 100 + number,
                kind=kind,
                **inside,
            )
        )
    both = (0, 1)
    return trace(
        ranges=[
            push(10 * i, 10 * i + 5, name, process=p) for p in both for i, name in enumerate(STAGES)
        ],
        graph_events=[event(i, None, 10 * i + 1, process=p) for p in both for i in range(4)]
        + [event(EXEC | i, i, 100 + i, process=p) for p in both for i in range(4)],
        api_calls=[call(i, 200 + i, process=p) for p in both for i in range(1, 4)]
        + [call(100 + i, 10 * i, process=p) for p in both for i in range(3)],
        activities=activities,
        batches=[],
    )


def check(budget: Budget | DeviceBudget) -> None:
    assert budget.busy_ns + budget.idle_ns == budget.wall_ns
    assert sum(s.busy_ns for s in budget.by_stage) == budget.busy_ns
    assert sum(s.idle_ns for s in budget.by_stage) == budget.idle_ns
    assert sum(budget.idle_by_kind.values()) == budget.idle_ns
    assert all(ns >= 0 for ns in budget.idle_by_kind.values())
    assert all(0 <= s.share <= 1 for s in budget.by_stage)
    assert all(s.busy_ns >= 0 <= s.idle_ns for s in budget.by_stage)


@given(works, st.integers(0, 10**6))
def test_parts_sum_to_the_whole_in_any_row_order(rows: list[tuple[Any, ...]], seed: int) -> None:
    whole = attribute(made(rows))
    budget, coverage = whole.budget, whole.coverage
    assert budget is not None
    assert coverage is not None
    check(budget)
    for device in budget.by_device:
        check(device)
    assert sum(d.wall_ns for d in budget.by_device) == budget.wall_ns
    for split in (coverage.activities, coverage.time_ns):
        assert split.exact + split.inferred + split.unattributed == split.total
        assert 0 <= split.in_graphs <= split.total
    assert sum(coverage.reasons.values()) == coverage.activities.unattributed
    times = whole.trace.stage_times.to_pylist()
    assert sum(row["busy_ns"] for row in times) == budget.busy_ns
    assert sum(row["idle_ns"] for row in times) == budget.idle_ns
    assert all(0 <= row["alone_ns"] <= row["busy_ns"] for row in times)
    mixed = attribute(shuffled(made(rows), seed))
    assert mixed.budget == budget
    assert times_by_path(mixed.trace) == times_by_path(whole.trace)


@given(works)
def test_wall_is_the_union_of_the_units(rows: list[tuple[Any, ...]]) -> None:
    whole = attribute(made(rows))
    assert whole.budget is not None
    unit = "replay" if whole.budget.scope == "replay" else None
    if unit is None:
        return
    spans: dict[tuple[int, int, int], list[int]] = {}
    for row in whole.trace.activities.to_pylist():
        if row["replay"] is not None:
            spans.setdefault((row["process"], row["device"], row["replay"]), []).extend(
                (row["begin_ns"], row["end_ns"])
            )
    lanes: dict[tuple[int, int], set[int]] = {}
    for (process, device, _), times in spans.items():
        lanes.setdefault((process, device), set()).update(range(min(times), max(times)))
    assert whole.budget.wall_ns == sum(len(instants) for instants in lanes.values())


@given(works)
def test_processes_alone_sum_to_the_whole(rows: list[tuple[Any, ...]]) -> None:
    rows = [(*row[:5], row[5] or 1, *row[6:]) for row in rows]
    for apart in (False, True):
        whole = attribute(made(rows, apart=apart)).budget
        assert whole is not None
        total: Counter[Any] = Counter()
        for process in (0, 1):
            part = attribute(made([r for r in rows if r[3] == process], apart=apart)).budget
            assert part is not None
            if part.scope != whole.scope:
                assert part.wall_ns == 0
                continue
            total.update(wall=part.wall_ns, busy=part.busy_ns, units=part.units)
            total.update({("idle", kind): ns for kind, ns in part.idle_by_kind.items()})
            for stage in part.by_stage:
                total.update({stage.stage: stage.busy_ns, ("gap", stage.stage): stage.idle_ns})
        assert total["wall"] == whole.wall_ns
        assert total["busy"] == whole.busy_ns
        assert total["units"] == whole.units
        for kind, ns in whole.idle_by_kind.items():
            assert total["idle", kind] == ns
        for stage in whole.by_stage:
            assert (total[stage.stage], total["gap", stage.stage]) == (stage.busy_ns, stage.idle_ns)


def test_overlapping_replays_are_counted_and_their_time_is_not_added_twice() -> None:
    rows = [
        (0, 10, 1, 0, 0, 1, 0, "kernel"),
        (5, 10, 2, 0, 0, 2, 1, "kernel"),
        (40, 5, 1, 0, 0, 3, 2, "kernel"),
    ]
    found = attribute(made(rows))
    assert found.budget is not None
    assert found.budget.wall_ns == 15 + 5
    assert found.replays is not None
    assert found.replays.wall_total_ns == 10 + 10 + 5
    assert any(w.startswith("2 of 3 replays overlap") for w in found.trace.warnings)
    assert times_by_path(found.trace) == {
        (0, 0, "a"): (8, 5, 0, 1),
        (1, 0, "b"): (7, 5, 0, 1),
        (2, 0, "c"): (5, 5, 0, 1),
    }


def test_batches_are_the_unit_of_eager_work_on_a_device() -> None:
    found = attribute(
        trace(
            ranges=[push(0, 50, "a"), push(60, 90, "b")],
            batches=[
                {"batch": 3, "process": 0, "thread": 1, "begin_ns": 0, "end_ns": 100},
                {"batch": 4, "process": 0, "thread": 1, "begin_ns": 100, "end_ns": 200},
            ],
            api_calls=[call(1, 10), call(2, 70), call(3, 300)],
            activities=[kernel(1, 500, 510), kernel(2, 530, 550), kernel(3, 700, 701)],
        )
    )
    budget = found.budget
    assert budget is not None
    assert (budget.scope, budget.units, budget.wall_ns) == ("batch", 1, 50)
    assert [(s.stage, s.busy_ns, s.idle_ns) for s in budget.by_stage] == [
        ("b", 20, 20),
        ("a", 10, 0),
    ]
    assert (budget.eager.kernels, budget.eager.busy_ns) == (1, 1)


def host(ranges: list[Any], batches: list[Any], stages: tuple[str, ...] = STAGES) -> Trace:
    """A recording of a host: stages with keys, no device."""
    return trace(
        stages=[
            {"stage": i, "path": name, "name": name, "origin": "module"}
            for i, name in enumerate(stages)
        ],
        ranges=ranges,
        batches=batches,
    )


def entered(begin: int, end: int | None, name: str, *, thread: int = 1, process: int = 0) -> dict:
    row = push(begin, end, name, domain="graphtrace", thread=thread, process=process)
    return {**row, "stage": STAGES.index(name)}


def batch(key: int, begin: int, end: int, *, thread: int | None = 1, process: int = 0) -> dict:
    return {
        "batch": key,
        "process": process,
        "thread": thread,
        "begin_ns": begin,
        "end_ns": end,
    }


def host_oracle(
    ranges: list[dict], batches: list[dict]
) -> dict[tuple[int, None, str | None], tuple[int, int, int, int]]:
    """Busy and idle of each batch and stage, one nanosecond at a time."""
    times: dict[Any, list[int]] = {}
    for lane in {(b["process"], b["thread"]) for b in batches}:
        mine = [b for b in batches if (b["process"], b["thread"]) == lane]
        stages = [r for r in ranges if (r["process"], r["thread"]) == lane]
        waiting: Counter[int] = Counter()
        for now in range(min(b["begin_ns"] for b in mine), max(b["end_ns"] for b in mine)):
            open_ = [b for b in mine if b["begin_ns"] <= now < b["end_ns"]]
            if not open_:
                continue
            unit = max(open_, key=lambda b: (b["begin_ns"], -b["end_ns"], b["batch"]))["batch"]
            inside = [r for r in stages if r["begin_ns"] <= now < r["end_ns"]]
            if not inside:
                waiting[unit] += 1
                continue
            deepest = max(inside, key=lambda r: (r["begin_ns"], -r["end_ns"], r["text"]))
            row = times.setdefault((unit, None, deepest["text"]), [0, 0])
            row[0] += 1
            row[1] += waiting.pop(unit, 0)
        for unit, ns in waiting.items():
            times.setdefault((unit, None, None), [0, 0])[1] += ns
    return {key: (busy, busy, idle, 0) for key, (busy, idle) in times.items()}


nested = st.recursive(
    st.tuples(st.integers(0, 3), st.sampled_from(STAGES), st.integers(1, 4), st.just([])),
    lambda inner: st.tuples(
        st.integers(0, 3), st.sampled_from(STAGES), st.integers(0, 3), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


def laid_out(trees: list[Any], begin: int, thread: int) -> tuple[list[dict], int]:
    rows: list[dict] = []
    now = begin
    for gap, name, tail, children in trees:
        start = now + gap
        inner, end = laid_out(children, start, thread)
        end += tail
        rows += [entered(start, end, name, thread=thread), *inner]
        now = end
    return rows, now


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 4), st.lists(nested, max_size=3))),
    st.integers(0, 10**6),
)
def test_batches_of_a_host_are_those_of_the_oracle(steps: list[Any], seed: int) -> None:
    ranges: list[dict] = []
    batches: list[dict] = []
    now = {1: 0, 2: 3}
    for key, (thread, rest, trees) in enumerate(steps):
        rows, end = laid_out(trees, now[thread], thread)
        if end + rest > now[thread]:
            batches.append(batch(key, now[thread], end + rest, thread=thread))
        ranges += rows
        now[thread] = end + rest + 2
    ranges = [r for r in ranges if r["end_ns"] > r["begin_ns"]]
    # Paths of the stages that were given are their names: every stage is its own root.
    found = attribute(host(ranges, batches))
    if not ranges and not batches:
        assert found.budget is None
        return
    assert found.coverage is None
    assert found.budget is not None
    check(found.budget)
    if batches:
        assert found.budget.scope == "batch"
        assert found.budget.wall_ns == sum(b["end_ns"] - b["begin_ns"] for b in batches)
        assert times_by_path(found.trace) == host_oracle(ranges, batches)
    assert attribute(shuffled(host(ranges, batches), seed)).budget == found.budget


def test_a_host_recording_by_hand() -> None:
    found = attribute(
        host(
            [
                entered(10, 60, "a"),
                entered(20, 40, "b"),
                entered(70, 80, "c"),
                entered(200, 300, "a"),
            ],
            [batch(5, 0, 100), batch(6, 0, 50, thread=9)],
        )
    )
    budget = found.budget
    assert budget is not None
    assert (budget.scope, budget.units, budget.wall_ns) == ("batch", 2, 150)
    assert times_by_path(found.trace) == {
        (5, None, "a"): (30, 30, 10, 0),
        (5, None, "b"): (20, 20, 0, 0),
        (5, None, "c"): (10, 10, 10, 0),
        (5, None, None): (0, 0, 20, 0),
        (6, None, None): (0, 0, 50, 0),
    }
    assert budget.idle_by_kind == {"unexplained": 90}
    assert [device.device for device in budget.by_device] == [None]
    assert (budget.eager.kernels, budget.eager.busy_ns) == (0, 0)
    assert stage_paths(found.trace, "ranges") == ["a", "b", "c", "a"]


def test_nested_batches_own_their_own_time() -> None:
    found = attribute(host([entered(0, 100, "a")], [batch(1, 0, 100), batch(2, 20, 50)]))
    assert times_by_path(found.trace) == {
        (1, None, "a"): (70, 70, 0, 0),
        (2, None, "a"): (30, 30, 0, 0),
    }
    assert any("1 of 2 batches overlap" in w for w in found.trace.warnings)


def test_a_batch_without_thread_is_its_processs_only_thread() -> None:
    found = attribute(
        host([entered(5, 8, "a"), entered(0, 9, "b", process=1)], [batch(1, 0, 10, thread=None)])
    )
    assert times_by_path(found.trace) == {
        (1, None, "a"): (3, 3, 5, 0),
        (1, None, None): (0, 0, 2, 0),
    }


@pytest.mark.parametrize("end", [60, None])
def test_stages_without_batches_are_units_themselves(end: int | None) -> None:
    found = attribute(host([entered(0, 40, "a"), entered(10, 20, "b"), entered(50, end, "c")], []))
    assert found.budget is not None
    # What is open at the end lasts to the last time that is known.
    assert (found.budget.scope, found.budget.units) == ("range", 2 if end else 1)
    assert found.budget.wall_ns == 40 + (10 if end else 0)
    assert found.budget.idle_ns == 0
