# SPDX-License-Identifier: Apache-2.0
"""occupancy_launch on timelines: planted small grids, decoys, and data that decides nothing."""

import numpy as np
import pytest
from analysis_builders import activities, devices, stage_times, stages
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.model.arrays import make_table
from graphtrace.model.trace import TableSet
from graphtrace.views.numbers import duration as reported
from graphtrace_analyzers._claims import duration
from graphtrace_analyzers._occupancy_launch_timeline import alone_on_device
from graphtrace_analyzers.occupancy_launch import ANALYZER, Options

WALL = 10_000_000
GAP = 100_000


def launched(count, *, blocks=20, ns=10_000, start=0, **fields):
    return [
        {
            "begin": start + i * GAP,
            "end": start + i * GAP + ns,
            "blocks": blocks,
            "stage": 0,
            **fields,
        }
        for i in range(count)
    ]


def tables(rows, sms=80, wall=WALL, **device):
    busy = min(sum(row["end"] - row["begin"] for row in rows), wall)
    found = {
        "activities": activities(*rows),
        "devices": devices(sms, sms, **device),
        "stages": stages("encoder", "head"),
    }
    if wall:
        found["stage_times"] = stage_times((0, 0, 0, busy, wall - busy))
    return TableSet(found)


def run(rows, **fields):
    return ANALYZER.run(tables(rows, **fields), Options())


def test_planted_small_grid():
    outcome = run(launched(30, name="void my::head<int>(float *)"))
    assert [claim.kind for claim in outcome.claims] == ["small_grid"]
    found = outcome.claims[0]
    assert found.claimed_ns == 30 * 10_000 * 60 // 80
    assert (found.stage, found.pool, found.confidence, found.device) == (0, "busy", "medium", 0)
    assert "30 launches run 20 blocks on 80 SMs" in found.why
    assert found.why.endswith("of their 300 µs.")
    assert "--kernel-name head " in found.prove


@pytest.mark.parametrize(
    "decoy",
    [
        launched(19),
        launched(30, blocks=80),
        launched(30, ns=4_000),
        launched(30, kind="collective"),
        launched(30, kind="memcpy"),
        # another branch of the graph fills the other SMs meanwhile
        launched(30) + launched(30, blocks=500, name="other", start=5_000),
        launched(30) + launched(30, kind="memcpy", name="copy", ns=2_000, start=9_000),
        # inside one long kernel
        [*launched(30), {"begin": 0, "end": 30 * GAP, "blocks": 900, "name": "long"}],
    ],
)
def test_decoys_of_a_small_grid(decoy):
    assert run(decoy).claims == ()


def test_what_runs_on_another_device_or_is_our_own_mark_fills_nothing():
    others = launched(30, device=1, blocks=500, name="other", start=1_000)
    marks = launched(30, kind="mark", name="mark", ns=2_000, start=3_000)
    assert len(run(launched(30) + others + marks).claims) == 1


def test_below_one_percent_of_the_wall_is_not_worth_a_change():
    assert run(launched(30), wall=30_000_000).claims == ()


def test_a_claim_for_each_stage_and_kernel():
    rows = launched(30) + launched(30, stage=1, start=20_000) + launched(30, name="b", start=40_000)
    found = run(rows).claims
    assert sorted((claim.stage, claim.kernel) for claim in found) == [(0, "b"), (0, "k"), (1, "k")]


def test_only_work_inside_replays_counts_where_there_are_any():
    replays = make_table(
        "replays",
        1,
        {"replay": [0], "process": [0], "device": [0], "begin_ns": [0], "end_ns": [WALL]},
    )
    eager = tables(launched(30)).with_tables(replays=replays)
    assert ANALYZER.run(eager, Options()).claims == ()
    inside = tables(launched(30, replay=0)).with_tables(replays=replays)
    found = ANALYZER.run(inside, Options()).claims[0]
    assert found.replays == 1


@pytest.mark.parametrize(
    ("rows", "fields", "said"),
    [
        (launched(30, blocks=None), {}, "no launch shapes"),
        (launched(30), {"sms": None}, "how many SMs"),
        (launched(30), {"mig": True}, "MIG"),
        (launched(30), {"wall": 0}, "no replay, step or named range"),
    ],
)
def test_a_timeline_that_cannot_tell(rows, fields, said):
    outcome = run(rows, **fields)
    assert outcome.claims == ()
    assert said in outcome.abstentions[0].reason
    assert outcome.abstentions[0].rerun.startswith("nsys ")


def test_a_timeline_says_what_it_never_shows_and_where_to_start():
    rows = launched(3) + launched(2, name="void ns::longest<4>(int)", ns=50_000, start=20_000)
    said = run(rows).abstentions[-1]
    assert "hardware counters" in said.reason
    assert "--kernel-name longest " in said.rerun
    assert run([{"begin": 0, "end": 9, "kind": "memcpy"}]).abstentions == ()


intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 8)), max_size=25
)


@given(intervals)
def test_alone_against_every_pair(made):
    device = np.array([d for d, _, _ in made], dtype=np.int64)
    begin = np.array([b for _, b, _ in made], dtype=np.int64)
    end = begin + np.array([length for _, _, length in made], dtype=np.int64)
    found = alone_on_device(device, begin, end)
    for i in range(len(made)):
        if begin[i] == end[i]:
            continue
        pairs = [
            j
            for j in range(len(made))
            if j != i
            and device[j] == device[i]
            and begin[j] < end[i]
            and begin[i] < end[j]
            and begin[j] < end[j]
        ]
        if pairs:
            assert not found[i]
        elif not any(begin[j] == end[j] for j in range(len(made))):
            assert found[i]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 160)), min_size=1, max_size=60))
def test_never_more_than_the_kernels_took(made):
    rows = [
        {"begin": i * GAP, "end": i * GAP + 20_000, "blocks": blocks, "stage": stage}
        for i, (stage, blocks) in enumerate(made)
    ]
    for claim in run(rows).claims:
        spent = sum(20_000 for stage, blocks in made if stage == claim.stage and blocks < 80)
        lost = sum(
            20_000 * (80 - blocks) // 80
            for stage, blocks in made
            if stage == claim.stage and blocks < 80
        )
        assert claim.claimed_ns == lost <= spent


@given(st.one_of(st.integers(0, 10**13), st.integers(0, 10**7), st.integers(990, 10_010)))
def test_a_time_in_a_sentence_is_that_of_the_table(ns):
    assert duration(ns) == reported(ns)
