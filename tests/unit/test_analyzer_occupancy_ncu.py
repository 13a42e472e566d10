# SPDX-License-Identifier: Apache-2.0
"""occupancy_launch on ncu results: planted cases, decoys, and data that decides nothing."""

import math

import pytest
from analysis_builders import ncu_tables
from hypothesis import given
from hypothesis import strategies as st

from graphtrace_analyzers.occupancy_launch import ANALYZER, Options

ACTIVE, ELAPSED = "sm__cycles_active.avg", "sm__cycles_elapsed.max"
WAVES = "launch__waves_per_multiprocessor"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ISSUE = "smsp__issue_active.avg.per_cycle_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
SCOREBOARD = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
SMS = "device__attribute_multiprocessor_count"

BUSY = {WAVES: 30.5, ACTIVE: 99.0, ELAPSED: 100.0, ACHIEVED: 95.0, THEORETICAL: 100.0, SMS: 108.0}
TAIL = {**BUSY, WAVES: 1.185, ACTIVE: 70.0}
LOW = {**BUSY, ACHIEVED: 40.0, ISSUE: 0.1, LATENCY: 50.0, SCOREBOARD: 40.0, SM: 20.0, MEMORY: 30.0}
SMALL = {**BUSY, "grid": (3, 4, 1), WAVES: 0.05, ACTIVE: 9.0, ACHIEVED: 6.0}


def run(*results, **fields):
    return ANALYZER.run(ncu_tables(*results, **fields), Options())


def kinds(outcome):
    return [claim.kind for claim in outcome.claims]


def test_a_kernel_that_fills_the_device():
    assert run(BUSY).claims == run(BUSY).abstentions == ()


def test_planted_tail():
    outcome = run(TAIL)
    assert kinds(outcome) == ["tail"]
    assert outcome.claims[0].share_of_kernel == pytest.approx(0.3)
    assert "1.19 waves" in outcome.claims[0].why
    capped = run({**TAIL, SM: 85.0, MEMORY: 10.0}).claims[0]
    assert capped.share_of_kernel == pytest.approx(0.15)


@pytest.mark.parametrize(
    "decoy",
    [
        {**TAIL, ACTIVE: 88.0},  # a partial wave whose SMs are busy all the same
        {**TAIL, WAVES: 9.5},  # idle for another reason than the last of many waves
        {**TAIL, WAVES: 1.0},  # a persistent kernel: one wave of blocks that loop over tiles
        {**TAIL, WAVES: 0.5},
        {**TAIL, "ns": 9_000},  # the SMs are still filling up
        {**TAIL, ACTIVE: 120.0},  # more active than elapsed: of two passes
        {**TAIL, "launch__uses_green_context": 1.0},  # not all SMs were its own
        {**TAIL, "launch__cluster_size": 2.0},
    ],
)
def test_decoys_of_a_tail(decoy):
    assert run(decoy).claims == ()


def test_tail_without_elapsed_cycles():
    lacking = {k: v for k, v in TAIL.items() if k != ELAPSED}
    outcome = run(lacking, BUSY)
    assert outcome.claims == ()
    assert "1 of 2 results" in outcome.abstentions[0].reason
    assert f"{ACTIVE},{ELAPSED},{WAVES}" in outcome.abstentions[0].rerun
    assert kinds(run({**lacking, "gpc__cycles_elapsed.max": 100.0})) == ["tail"]


def test_planted_small_grid():
    outcome = run({**SMALL, "ns": 10_400})
    assert kinds(outcome) == ["small_grid"]
    found = outcome.claims[0]
    assert "12 blocks run on 108 SMs: 96 stand idle" in found.why
    assert found.share_of_kernel == pytest.approx(96 / 108)


@pytest.mark.parametrize(
    "decoy",
    [
        {**SMALL, "ns": 1_600},  # over before anything could fill the device
        {**SMALL, "grid": (12, 9, 1), WAVES: 0.5},  # one block for each SM
        {**SMALL, "launch__uses_mps": 1.0},
        {k: v for k, v in SMALL.items() if k != SMS},
    ],
)
def test_decoys_of_a_small_grid(decoy):
    assert run(decoy).claims == ()


def test_planted_low_occupancy():
    outcome = run(LOW)
    assert kinds(outcome) == ["low_occupancy"]
    found = outcome.claims[0]
    assert found.share_of_kernel == pytest.approx(0.6)
    assert "80 % of their time" in found.why
    assert "warps end unevenly" in found.why
    assert "0.27 of a wave" in run({**LOW, WAVES: 0.27}).claims[0].why


@pytest.mark.parametrize(
    "decoy",
    [
        {**LOW, ISSUE: 0.7},  # few warps, and they issue all the same
        {**LOW, SCOREBOARD: 10.0},  # they wait, but not for memory
        {**LOW, MEMORY: 91.7},  # memory is busy: more warps would only queue
        {**LOW, SM: 80.0},
        {**LOW, ACHIEVED: 91.0},
        {**LOW, THEORETICAL: 45.0},  # as many warps as there can be
        {**LOW, ACHIEVED: 130.0},
        {**LOW, "ns": 9_000},
    ],
)
def test_decoys_of_low_occupancy(decoy):
    assert run(decoy).claims == ()


@pytest.mark.parametrize("lacking", [ISSUE, LATENCY, SCOREBOARD, SM, MEMORY])
def test_low_occupancy_without_what_decides_it(lacking):
    outcome = run({k: v for k, v in LOW.items() if k != lacking})
    assert outcome.claims == ()
    assert "Whether low occupancy costs time" in outcome.abstentions[0].reason
    assert "--section WarpStateStats" in outcome.abstentions[0].rerun


def test_one_result_gets_one_kind():
    everything = {**LOW, "grid": (12, 1, 1), WAVES: 1.185, ACTIVE: 70.0}
    assert kinds(run(everything)) == ["small_grid"]
    assert kinds(run({**LOW, WAVES: 1.185, ACTIVE: 70.0})) == ["tail"]


def test_launches_of_one_kernel_are_one_claim_weighted_by_time():
    outcome = run({**TAIL, "ns": 100_000}, {**TAIL, "ns": 300_000, ACTIVE: 50.0}, BUSY)
    found = outcome.claims[0]
    assert found.results == (0, 1)
    assert found.share_of_kernel == pytest.approx((0.3 * 1 + 0.5 * 3) / 4)
    assert "50 % of the longest of 2 launches (45 % over all)" in found.why


def test_severity_is_by_the_time_of_the_whole_report():
    alone = run({**SMALL, "ns": 10_400}).claims[0]
    beside = run({**SMALL, "ns": 10_400}, {**BUSY, "ns": 10_000_000}).claims[0]
    assert (alone.severity, beside.severity) == ("high", "low")
    assert alone.share_of_kernel == beside.share_of_kernel


value = st.one_of(st.none(), st.floats(0, 200), st.floats(-1e9, 1e9))
METRICS = (
    ACTIVE,
    ELAPSED,
    WAVES,
    ACHIEVED,
    THEORETICAL,
    ISSUE,
    LATENCY,
    SCOREBOARD,
    SM,
    MEMORY,
    SMS,
)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(METRICS, value)), max_size=4))
def test_whatever_the_numbers_are_shares_are_shares(results):
    outcome = run(*({k: v for k, v in r.items() if v is not None} for r in results))
    for claim in outcome.claims:
        assert 0.0 <= claim.share_of_kernel <= 1.0
        assert all(math.isfinite(e.value) for e in claim.evidence)
        assert all(0 <= e.value <= 100 for e in claim.evidence if e.unit == "%")
