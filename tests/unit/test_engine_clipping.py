# SPDX-License-Identifier: Apache-2.0
"""What the findings give back never exceeds the time it sits in."""

import dataclasses

import pytest
from analysis_builders import ncu_tables, stage_times, stages, trace
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.analysis import ranking
from graphtrace.model.analysis import Evidence
from graphtrace.model.errors import GraphtraceError
from graphtrace.model.metric_view import MetricView
from graphtrace.model.plugin import Claim
from graphtrace.model.trace import TableSet
from graphtrace.model.vocabulary import CONFIDENCES, SEVERITIES

PATHS = ("encoder", "encoder/attn", "head")


def claim(**fields):
    given_fields = {
        "kind": "k",
        "severity": "low",
        "confidence": "high",
        "fingerprint": "f",
        "evidence": (),
        "why": "w",
        "do": "d",
        "prove": "p",
    }
    return Claim(**{**given_fields, **fields})


times = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([0, 1]),
        st.sampled_from([None, 0, 1, 2]),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=12,
)
claims = st.lists(
    st.builds(
        claim,
        kind=st.sampled_from(["a", "b"]),
        severity=st.sampled_from(SEVERITIES),
        confidence=st.sampled_from(CONFIDENCES),
        fingerprint=st.text(max_size=3),
        stage=st.sampled_from([None, 0, 1, 2]),
        pool=st.sampled_from(["busy", "idle"]),
        claimed_ns=st.one_of(st.none(), st.integers(0, 30_000)),
        device=st.sampled_from([None, 0, 1, 7]),
    ),
    max_size=12,
)


def found_in(rows, made, wall):
    tables = TableSet({"stages": stages(*PATHS), "stage_times": stage_times(*rows)})
    empty = ranking.Results({}, {})
    return ranking.findings([("mine", c) for c in made], trace(tables), wall, empty)


def clipped_slowly(rows, made):
    """The oracle: nanoseconds are handed out one claim after the other."""
    left = {}
    for _, device, stage, busy, idle in rows:
        for pool, ns in (("busy", busy), ("idle", idle)):
            for key in ((pool, stage, device), (pool, stage, "all")):
                left[key] = left.get(key, 0) + ns
    given_back = []
    order = sorted(
        made,
        key=lambda c: (
            CONFIDENCES.index(c.confidence),
            -(c.claimed_ns or 0),
            c.kind,
            c.fingerprint,
            -1 if c.stage is None else c.stage,
        ),
    )
    for c in order:
        if c.claimed_ns is None:
            continue
        keys = [(c.pool, c.stage, "all")]
        if c.device is not None:
            keys.append((c.pool, c.stage, c.device))
        taken = min([c.claimed_ns, *(left.get(key, 0) for key in keys)])
        for key in keys:
            left[key] = left.get(key, 0) - taken
        given_back.append(taken)
    return given_back


@given(times, claims)
def test_never_more_than_the_time_it_sits_in(rows, made):
    wall = sum(busy + idle for *_, busy, idle in rows)
    found = found_in(rows, made, wall)
    assert len(found) == len(made)
    assert len({f.id for f in found}) == len(found)
    room = sum(busy + idle for *_, busy, idle in rows)
    if not wall:
        assert all(f.recoverable_ns is None for f in found)
        return
    assert sum(f.recoverable_ns or 0 for f in found) <= room
    for path, stage in ((None, None), *zip(PATHS, range(3), strict=True)):
        inside = sum(f.recoverable_ns or 0 for f in found if f.stage == path)
        assert inside <= sum(b + i for _, _, s, b, i in rows if s == stage)
    for finding in found:
        if finding.recoverable_ns is not None:
            assert 0 <= finding.recoverable_ns <= finding.claimed_ns
            assert 0.0 <= finding.share <= 1.0
            assert finding.share_of == "wall"
    given_back = [f.recoverable_ns for f in found if f.recoverable_ns is not None]
    assert sorted(given_back) == sorted(clipped_slowly(rows, made))
    assert given_back == sorted(given_back, reverse=True)


@given(times, claims, st.randoms())
def test_the_order_of_the_claims_does_not_matter(rows, made, random):
    wall = sum(busy + idle for *_, busy, idle in rows)
    shuffled = list(made)
    random.shuffle(shuffled)
    one, other = found_in(rows, made, wall), found_in(rows, shuffled, wall)
    assert sorted((f.recoverable_ns or 0, f.claimed_ns or 0, f.kind) for f in one) == sorted(
        (f.recoverable_ns or 0, f.claimed_ns or 0, f.kind) for f in other
    )


def test_the_more_certain_claim_is_served_first():
    rows = [(0, 0, 0, 100, 0)]
    low = claim(stage=0, claimed_ns=90, confidence="low", kind="a")
    high = claim(stage=0, claimed_ns=60, confidence="high", kind="b")
    found = found_in(rows, [low, high], 100)
    assert [(f.kind, f.recoverable_ns) for f in found] == [("b", 60), ("a", 40)]


def test_an_id_depends_on_what_it_is_and_not_on_how_much():
    rows = [(0, 0, 0, 100, 0)]
    one = found_in(rows, [claim(stage=0, claimed_ns=1)], 100)[0]
    more = found_in(rows, [claim(stage=0, claimed_ns=99, why="other")], 100)[0]
    other = found_in(rows, [claim(stage=1, claimed_ns=1)], 100)[0]
    assert one.id == more.id != other.id


def test_results_are_named_by_report_and_place_and_ranked_by_time():
    tables = ncu_tables({"name": "short", "ns": 10}, {"name": "long", "ns": 1000})
    whole = trace(tables, path="/some where/report.ncu-rep")
    results = ranking.Results.of(MetricView.of(tables), whole.inputs)
    quick = claim(share_of_kernel=0.9, results=(0,), kind="quick", severity="high")
    slow = claim(share_of_kernel=0.2, results=(1,), kind="slow")
    found = ranking.findings([("mine", quick), ("mine", slow)], whole, None, results)
    assert [f.kind for f in found] == ["slow", "quick"]
    assert found[0].results == ("report.ncu-rep#1",)
    assert (found[0].share, found[0].share_of) == (0.2, "kernel")
    assert found[0].recoverable_ns is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"share_of_kernel": 1.5},
        {"share_of_kernel": float("nan")},
        {"claimed_ns": -1},
        {"claimed_ns": 1.5},
        {"stage": 99},
        {"results": (99,)},
        {"severity": "awful"},
        {"confidence": "sure"},
        {"evidence": (Evidence("x", float("inf"), ""),)},
    ],
)
def test_claims_that_cannot_be_name_their_analyzer(wrong):
    with pytest.raises(GraphtraceError, match="The analyzer mine made a claim that cannot be"):
        found_in([(0, 0, 0, 1, 1)], [dataclasses.replace(claim(), **wrong)], 2)
