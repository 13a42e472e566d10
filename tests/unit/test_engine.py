# SPDX-License-Identifier: Apache-2.0
"""The engine as a whole, with an attribution that hands through what the test made up."""

import dataclasses
import sys
import types

import pytest
from analysis_builders import activities, devices, ncu_tables, stage_times, stages, trace

from graphtrace.analysis import engine, registry
from graphtrace.model.analysis import Abstention, Budget, EagerWork
from graphtrace.model.arrays import encode, lists, make_table, numbers
from graphtrace.model.errors import GraphtraceError, NoGpuWork, UsageError
from graphtrace.model.plugin import Analyzer, Claim, Need, Outcome
from graphtrace.model.schema_columns import I64
from graphtrace.model.trace import TableSet, Trace

NoOptions = dataclasses.make_dataclass("NoOptions", [], frozen=True)


def analyzer(run, name="mine", needs=()):
    return Analyzer(name, "s", needs, NoOptions, run)


def claim(**fields):
    given = {
        "kind": "k",
        "severity": "low",
        "confidence": "high",
        "fingerprint": "f",
        "evidence": (),
        "why": "w",
        "do": "d",
        "prove": "p",
    }
    return Claim(**{**given, **fields})


@pytest.fixture
def budget():
    return Budget("replay", 1, 1000, 800, 200, (), {}, (), EagerWork(0, 0))


@pytest.fixture
def attributed(monkeypatch, budget):
    """Attribution that changes nothing; its budget is that of the fixture, or none for ncu."""

    def attribute(whole):
        known = budget if whole.tables.rows("stage_times") else None
        return types.SimpleNamespace(trace=whole, coverage=None, replays=None, budget=known)

    fake = types.ModuleType("graphtrace.attribute.attribute")
    fake.attribute = attribute
    monkeypatch.setitem(sys.modules, "graphtrace.attribute.attribute", fake)


@pytest.fixture
def install(monkeypatch, attributed):
    def put(*found):
        monkeypatch.setattr(registry, "analyzers", lambda: found)

    return put


TIMELINE = TableSet(
    {
        "activities": activities({"begin": 0, "end": 800, "stage": 0, "replay": 0}),
        "stages": stages("encoder"),
        "stage_times": stage_times((0, 0, 0, 800, 200)),
        "devices": devices(80),
    }
)


def test_findings_and_gates(install):
    install(
        analyzer(lambda _t, _o: Outcome((claim(stage=0, claimed_ns=100),))),
    )
    result, whole = engine.run(trace(TIMELINE), fail_over={"recoverable": 0.05})
    assert result.verdict == "findings"
    found = result.findings[0]
    assert (found.stage, found.recoverable_ns, found.share) == ("encoder", 100, 0.1)
    gate = result.gates[0]
    assert (gate.name, gate.value, gate.limit, gate.passed) == ("recoverable", 0.1, 0.05, False)
    assert whole.tables.rows("stage_times") == 1
    assert [(s.stage, s.busy_ns, s.replays) for s in result.stages] == [("encoder", 800, 1)]
    assert result.kernels[0].stage == "encoder"
    assert result.devices[0].sm_count == 80
    assert {"attribute", "rows", "mine", "rank"} <= set(result.timing)
    assert all(isinstance(ns, int) and ns >= 0 for ns in result.timing.values())


def test_a_gate_passes_at_its_limit_and_is_undecided_without_a_wall(install):
    install(analyzer(lambda _t, _o: Outcome((claim(stage=0, claimed_ns=100),))))
    assert engine.analyze(trace(TIMELINE), fail_over={"recoverable": 0.1}).gates[0].passed
    install(analyzer(lambda _t, _o: Outcome()))
    gate = engine.analyze(trace(ncu_tables({})), fail_over={"recoverable": 0.1}).gates[0]
    assert (gate.value, gate.passed) == (None, None)


@pytest.mark.parametrize(
    "limits", [{"recoverabel": 0.1}, {"recoverable": float("nan")}, {"recoverable": 5.0}]
)
def test_gates_that_make_no_sense(install, limits):
    install()
    with pytest.raises(UsageError):
        engine.analyze(trace(TIMELINE), fail_over=limits)


def test_verdicts(install):
    install(analyzer(lambda _t, _o: Outcome()))
    assert engine.analyze(trace(TIMELINE)).verdict == "clean"
    unsure = Outcome(abstentions=(Abstention("mine", "r", "c"),))
    install(analyzer(lambda _t, _o: unsure))
    assert engine.analyze(trace(TIMELINE)).verdict == "cannot_tell"


def test_the_engine_abstains_where_a_need_is_missing(install):
    need = Need(("metrics", "counters"), "no metrics", "ncu ...")
    install(analyzer(lambda _t, _o: pytest.fail("must not run"), needs=(need,)))
    result = engine.analyze(trace(TIMELINE))
    assert result.abstentions == (Abstention("mine", "no metrics", "ncu ..."),)
    assert result.verdict == "cannot_tell"


def test_a_broken_analyzer_is_named(install):
    def fails(_tables, _options):
        raise KeyError("sm__cycles")

    install(analyzer(fails, "theirs"))
    with pytest.raises(GraphtraceError, match="The analyzer theirs failed") as caught:
        engine.analyze(trace(TIMELINE))
    assert "KeyError" in caught.value.why
    install(analyzer(lambda _t, _o: [], "theirs"))
    with pytest.raises(GraphtraceError, match="The analyzer theirs failed"):
        engine.analyze(trace(TIMELINE))


def test_only_and_options(install):
    install(analyzer(lambda _t, _o: Outcome(), "a"), analyzer(lambda _t, _o: Outcome(), "b"))
    assert set(engine.analyze(trace(TIMELINE)).options) == {"a", "b"}
    assert set(engine.analyze(trace(TIMELINE), only=["b"]).options) == {"b"}
    with pytest.raises(UsageError):
        engine.analyze(trace(TIMELINE), only=["c"])


def test_nothing_to_analyze(install):
    install()
    with pytest.raises(NoGpuWork):
        engine.analyze(Trace((), TableSet({})))


def test_warnings_quarantine_and_batches(install):
    install()
    refused = make_table(
        "quarantine",
        3,
        {
            "table": encode(["activities", "ranges", "activities"]),
            "reason": encode(["end before start", "open", "end before start"]),
            "count": [2, 1, 3],
        },
    )
    count = 1200
    steps = make_table(
        "batches",
        count,
        {
            "batch": range(count),
            "process": [0] * count,
            "begin_ns": range(0, count * 10, 10),
            "end_ns": [10 * i + (5 if i < 200 else 9) for i in range(count)],
            "label": encode([None, *["image"] * (count - 1)]),
            "sizes": lists([None, *[[1, 2, 3]] * (count - 1)], I64),
            "valid_tokens": numbers([7] * count, I64),
        },
    )
    tables = TIMELINE.with_tables(quarantine=refused, batches=steps)
    whole = Trace(trace(tables).inputs, tables, warnings=("read me",))
    result = engine.analyze(whole)
    assert result.warnings == ("read me",)
    assert [(q.table, q.reason, q.count) for q in result.quarantine] == [
        ("activities", "end before start", 5),
        ("ranges", "open", 1),
    ]
    assert result.batches is not None
    assert len(result.batches) == 1000
    assert result.truncated == {"batches": 200}
    assert {b.wall_ns for b in result.batches} == {9}
    assert (result.batches[0].samples, result.batches[0].valid_tokens) == (3, 7)
    assert result.batches[0].captured_tokens is None
    assert engine.analyze(trace(TIMELINE)).batches is None
