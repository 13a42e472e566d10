# SPDX-License-Identifier: Apache-2.0
"""Counts of a description against the same counted by hand, and gaps against hand-made inputs."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.source import Source
from graphtrace.model.arrays import encode, make_table, numbers, strings
from graphtrace.model.errors import NoGpuWork
from graphtrace.model.recording import Manifest, Origin
from graphtrace.model.trace import InputInfo, TableSet
from graphtrace.report.info_text import render
from graphtrace.views.info import describe

KINDS = ("kernel", "memcpy", "collective", "opaque_replay", "memset")


def keys(items):
    known = np.asarray([item is not None for item in items], dtype=np.bool_)
    return numbers([item or 0 for item in items], pa.int32(), known)


def activities(rows):
    size = len(rows)
    zeros = np.zeros(size, dtype=np.int64)
    return make_table(
        "activities",
        size,
        {
            "activity": np.arange(size),
            "process": zeros,
            "device": zeros,
            "stream": zeros,
            "kind": encode(kind for kind, _, _ in rows),
            "begin_ns": np.asarray([begin for _, _, begin in rows], dtype=np.int64),
            "end_ns": np.asarray([begin + 5 for _, _, begin in rows], dtype=np.int64),
            "replay": keys([replay for _, replay, _ in rows]),
        },
    )


def replays(count):
    zeros = np.zeros(count, dtype=np.int64)
    columns = {"process": zeros, "device": zeros, "begin_ns": zeros + 50, "end_ns": zeros + 60}
    # The key does not say where a row stands.
    return make_table("replays", count, {"replay": np.arange(count)[::-1], **columns})


def ranges(rows):
    size = len(rows)
    zeros = np.zeros(size, dtype=np.int64)
    return make_table(
        "ranges",
        size,
        {
            "process": zeros,
            "thread": zeros,
            "domain": encode(domain for domain, _ in rows),
            "text": encode("r" for _ in rows),
            "kind": encode(kind for _, kind in rows),
            "begin_ns": zeros + 40,
        },
    )


def results(rows, metrics=True):
    size = len(rows)
    zeros = np.zeros(size, dtype=np.int64)
    made = {
        "ncu_results": make_table(
            "ncu_results",
            size,
            {
                "result": np.arange(size),
                "source": zeros,
                "ncu_id": zeros,
                "name": strings("k" for _ in rows),
                "workload": encode("kernel" for _ in rows),
                "cache": encode(cache for cache, _, _ in rows),
                "clock": encode(clock for _, clock, _ in rows),
                "replay_mode": encode("kernel" for _ in rows),
                "passes": keys([passes for _, _, passes in rows]),
            },
        )
    }
    names = encode("m" for _ in rows)
    if metrics:
        made["metrics"] = make_table(
            "metrics", size, {"result": np.arange(size), "name": names, "unit": names}
        )
    return made


def told(kind="nsys_sqlite", warnings=(), nothing=None, manifest=None, **tables):
    info = InputInfo("/home/me/x", kind, "tool", "1")
    return describe(Source(info, TableSet(tables), warnings, None, nothing, manifest))


def named(description):
    return {gap.what: gap for gap in description.missing}


ROWS = st.integers(0, 5).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(
                st.sampled_from(KINDS),
                st.none() | st.integers(0, count - 1) if count else st.none(),
                st.integers(-(1 << 40), 1 << 61),
            ),
            max_size=20,
        ),
    )
)


@given(ROWS)
def test_replays_are_counted_as_by_hand(drawn):
    count, rows = drawn
    description = told(activities=activities(rows), replays=replays(count))
    inside = [(kind, replay) for kind, replay, _ in rows if replay is not None]
    opaque = {replay for kind, replay in inside if kind == "opaque_replay"}
    kernels = Counter(replay for kind, replay in inside if kind in ("kernel", "collective"))
    each = [kernels[key] for key in range(count) if key not in opaque]
    graphs = description.graphs
    assert graphs.replays == count
    assert graphs.opaque == len(opaque)
    assert graphs.kernels == ((min(each), max(each)) if each else None)
    assert graphs.graphs == graphs.instantiated == (None if count else 0)
    assert description.activities == dict(Counter(kind for kind, _, _ in rows))
    times = [t for _, _, begin in rows for t in (begin, begin + 5)] + ([50, 60] if count else [])
    span = description.span
    assert (span and (span.begin_ns, span.end_ns)) == ((min(times), max(times)) if times else None)


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["mark", "push_pop"]))))
def test_domains_are_counted_as_by_hand(rows):
    counts = Counter(rows)
    found = {d.name: (d.ranges, d.marks) for d in told(ranges=ranges(rows)).nvtx}
    wanted = {name: (counts[name, "push_pop"], counts[name, "mark"]) for name, _ in rows}
    assert found == wanted


MODES = st.tuples(
    st.sampled_from(["flushed", "warm", "unknown"]),
    st.sampled_from(["base", "none", "unknown"]),
    st.none() | st.integers(1, 90),
)


@given(st.lists(MODES, min_size=1))
def test_measurement_modes_are_counted_as_by_hand(rows):
    description = told("ncu_rep", **results(rows))
    counts = Counter((cache, clock) for cache, clock, _ in rows)
    assert {(m.cache, m.clock): m.results for m in description.ncu.modes} == dict(counts)
    for mode in description.ncu.modes:
        passes = [p for cache, clock, p in rows if (cache, clock) == (mode.cache, mode.clock) and p]
        assert mode.passes == ((min(passes), max(passes)) if passes else None)
    spoiled = any(cache != "warm" or clock != "none" for cache, clock, _ in rows)
    assert ("caches and clocks as the program has them" in named(description)) is spoiled


def test_what_is_not_there_is_not_counted():
    description = told()
    assert description.graphs is description.nvtx is description.ncu is description.stages is None
    assert description.activities is description.span is None
    assert set(description.tables.values()) == {None}
    assert "stage_times" not in description.tables


def test_results_without_metrics():
    gap = named(told("ncu_rep", **results([("warm", "none", 1)], metrics=False)))
    assert "metrics" in gap
    assert "caches and clocks as the program has them" not in gap


def test_a_sentence_of_the_reader_is_the_reason_and_no_warning():
    said = "There is no table NVTX_EVENTS: NVTX was not recorded. Record both: nsys profile -o x P"
    description = told(warnings=("Rows are odd.", said), activities=activities([]))
    gap = named(description)["ranges"]
    assert gap.why == "There is no table NVTX_EVENTS: NVTX was not recorded. Record both."
    assert gap.command == "nsys profile -o x P"
    assert description.warnings == ("Rows are odd.",)


def test_without_the_sentence_our_own_words_are():
    gap = named(told(activities=activities([("kernel", None, 1)])))["ranges"]
    assert gap.why == "Stages come from ranges, and there is none."
    assert gap.command.startswith("nsys profile")


def test_an_input_without_work_lacks_work_only():
    error = NoGpuWork("x holds none.", "Nothing ran.", "Record the part: nsys profile -o x P")
    description = told(warnings=("Nothing ran.", "Other."), nothing=error)
    (gap,) = description.missing
    assert (gap.what, gap.command) == ("work of the GPU", "nsys profile -o x P")
    assert gap.why == "Nothing ran. Record the part."
    assert description.warnings == ("Other.",)


def test_an_exported_file_lacks_what_its_origin_does():
    origin = Origin("ncu_csv", "a.csv")
    tables = results([("unknown", "unknown", None)])
    description = told("gtrace", manifest=Manifest(origin=origin), **tables)
    assert description.origin == origin
    assert set(named(description)) == {"timeline", "how it was measured"}


@pytest.mark.parametrize("call", ["hipLaunchKernel", "cudaLaunchKernel"])
def test_no_tool_of_nvidia_is_named_for_the_device_of_another(call):
    api = make_table(
        "api_calls",
        1,
        {
            "process": np.zeros(1),
            "thread": np.zeros(1),
            "name": encode([call]),
            "begin_ns": np.ones(1),
            "end_ns": np.ones(1),
        },
    )
    said = "1 graph replay was recorded without ids of the nodes: no stage."
    tables = {"api_calls": api, "activities": activities([("kernel", 0, 1)])}
    description = told("kineto", (said,), replays=replays(1), **tables)
    commands = [gap.command for gap in description.missing if gap.command]
    nvidia = [command for command in commands if command.startswith(("ncu ", "nsys "))]
    assert len(nvidia) == (0 if call.startswith("hip") else 2)


def test_many_of_a_kind_are_cut_in_the_text_only():
    rows = [(f"domain {number}", "push_pop") for number in range(40)]
    description = told(ranges=ranges(rows))
    assert len(description.nvtx) == 40
    text = render(description, width=80)
    assert "and 28 more (--format json)" in text
    assert all(len(line) <= 80 or line.startswith("    $") for line in text.splitlines())
