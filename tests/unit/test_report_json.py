# SPDX-License-Identifier: Apache-2.0
import json
import math
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from report_samples import EMPTY, finding, graph_analysis, hostile_analysis, ncu_analysis

import graphtrace
from graphtrace.model import errors
from graphtrace.model.analysis import Budget, EagerWork, Evidence, Gate, MetricValue, StageBudget
from graphtrace.report.json import render, render_error

SAMPLES = {
    "empty": EMPTY,
    "ncu": ncu_analysis(),
    "graph": graph_analysis(),
    "hostile": hostile_analysis(),
}


def _schema(name):
    text = (files("graphtrace.report") / "schema" / f"{name}.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    Draft202012Validator.check_schema(schema)
    return schema


def _closed(schema):
    """The schema with every object closed: a key that it does not describe is an error."""
    if isinstance(schema, dict):
        made = {key: _closed(value) for key, value in schema.items()}
        if "properties" in made:
            made["additionalProperties"] = False
        return made
    return [_closed(item) for item in schema] if isinstance(schema, list) else schema


ANALYSIS = Draft202012Validator(_schema("analysis-1"))
STRICT = Draft202012Validator(_closed(_schema("analysis-1")))
ERROR = Draft202012Validator(_closed(_schema("error-1")))


def _no_constant(name):
    raise AssertionError(f"{name} in the JSON")


def _read(text):
    return json.loads(text, parse_constant=_no_constant)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_schema_describes_every_key(name):
    document = _read(render(SAMPLES[name]))
    ANALYSIS.validate(document)
    STRICT.validate(document)


def test_keys_and_nesting_of_the_contract():
    document = _read(render(graph_analysis()))
    assert document["schema"] == "graphtrace.analysis/1"
    assert document["graphtrace_version"] == graphtrace.__version__
    assert document["replays"] == {
        "count": 20,
        "wall_ns": {"total": 10_000_000, "median": 500_000, "p99": 666_666},
    }
    assert set(document["budget"]) == {
        "scope",
        "units",
        "wall_ns",
        "busy_ns",
        "idle_ns",
        "by_stage",
        "idle_by_kind",
        "by_device",
        "eager",
    }
    assert document["budget"]["eager"] == {"kernels": 10, "busy_ns": 1000}
    assert document["budget"]["by_stage"][-1]["stage"] is None
    assert document["tables"]["association"] is None
    assert document["tables"]["buckets"] is None
    assert len(document["tables"]["batches"]) == 20
    assert document["inputs"][0]["synthetic"] is True
    assert document["synthetic"] is True
    assert document["cost"]["hook_ns_per_border"] == 410


def test_what_no_input_carries_is_null():
    document = _read(render(EMPTY))
    for key in ("coverage", "replays", "budget", "cost"):
        assert document[key] is None
    assert document["tables"] == {"association": None, "batches": None, "buckets": None}
    assert document["findings"] == []


def test_additive_keys_do_not_break_the_schema():
    document = _read(render(ncu_analysis()))
    document["new"] = document["findings"][0]["new"] = 1
    ANALYSIS.validate(document)


def test_large_ids_are_strings_and_large_values_are_not():
    document = _read(render(ncu_analysis()))
    metrics = document["kernels"][0]["metrics"]
    assert metrics["launch__graph_exec_cuda_id"]["value"] == str(2**63 + 1)
    row = replace(ncu_analysis().kernels[0], metrics={"m.sum": MetricValue(2**60, "byte")})
    document = _read(render(replace(ncu_analysis(), kernels=(row,))))
    assert document["kernels"][0]["metrics"]["m.sum"]["value"] == 2**60


def test_invalid_metrics_say_why():
    metric = _read(render(ncu_analysis()))["kernels"][1]["metrics"]["lts__t_sector_hit_rate.pct"]
    assert metric["value"] is None
    assert metric["invalid"].startswith("121 % hit rate")
    assert metric["mode"] == {"cache": "flushed", "clock": "base", "passes": 8}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_that_json_lacks(bad):
    row = replace(
        ncu_analysis().kernels[0],
        metrics={"m": MetricValue(bad, "%")},
        stalls={"wait": bad},
    )
    made = replace(
        ncu_analysis(),
        kernels=(row,),
        findings=(finding(share=bad, evidence=(Evidence("e", bad, ""),)),),
        gates=(Gate("recoverable", bad, bad, None),),
        options={"a": {"x": bad}},
    )
    document = _read(render(made))
    assert document["kernels"][0]["metrics"]["m"]["value"] is None
    assert document["findings"][0]["share"] is None
    STRICT.validate(document)


def test_the_text_is_safe_to_print():
    text = render(hostile_analysis())
    assert text.isascii()
    assert all(c == "\n" or " " <= c <= "~" for c in text)
    assert "\x7f" not in render(replace(EMPTY, warnings=("a\x7fb",)))
    assert _read(render(replace(EMPTY, warnings=("a\x7fb\u202e",))))["warnings"] == ["a\x7fb\u202e"]


ROWS = st.dictionaries(
    st.one_of(st.none(), st.text(max_size=5)),
    st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)),
    max_size=6,
)


@settings(max_examples=50)
@given(ROWS, st.text(max_size=20), st.floats(), st.integers(0, 2**70))
def test_anything_the_model_allows_validates(rows, text, number, integer):
    busy = sum(b for b, _ in rows.values())
    idle = sum(i for _, i in rows.values())
    stages = tuple(
        StageBudget(s, b, i, (b + i) / (busy + idle) if busy + idle else 0.0)
        for s, (b, i) in rows.items()
    )
    budget = Budget("batch", 1, busy + idle, busy, idle, stages, {}, (), EagerWork(0, 0))
    evidence = (
        Evidence(text, integer, ""),
        Evidence("x_id", integer, ""),
        Evidence(text, text, ""),
    )
    row = replace(ncu_analysis().kernels[0], name=text, metrics={text: MetricValue(number, text)})
    made = replace(
        EMPTY,
        budget=budget,
        kernels=(row,),
        findings=(finding(evidence=evidence, why=text),),
        warnings=(text,),
    )
    document = _read(render(made))
    STRICT.validate(document)
    parts = document["budget"]
    assert sum(s["busy_ns"] for s in parts["by_stage"]) == parts["busy_ns"]
    assert document["warnings"] == [text]


@pytest.mark.parametrize(
    "kind", [errors.InputTruncated, errors.InputMissing, errors.NoGpuWork, errors.InternalError]
)
def test_errors(kind):
    error = kind("x.ncu-rep ends early.", "It has 10 of 99 bytes \x1b[31m.", "Copy it again.")
    text = render_error(error)
    document = _read(text)
    ERROR.validate(document)
    assert document["schema"] == "graphtrace.error/1"
    assert document["exit"] == kind.exit_code
    assert (document["what"], document["do"]) == (error.what, error.do)
    assert "\x1b" not in text
