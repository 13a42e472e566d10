# SPDX-License-Identifier: Apache-2.0
"""The reader against a slow one, on built traces and on odd ones."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_oracle import expected, read_as

from graphtrace.attribute.attribute import attribute
from graphtrace.ingest import kineto_stream
from graphtrace.ingest.kineto import read
from graphtrace.ingest.load import load
from graphtrace.ingest.source import Source
from graphtrace.testing.kineto import DIALECTS, Copy, Kernel, KinetoTrace, Set, Stage

STAGES = (
    Stage("enc/attn", [Kernel("void attention<float, 4>(float*, int)", 9_000), Set(64, 500)]),
    Stage("enc/mlp", [Kernel("gemm", 20_000, (7, 2, 1)), Kernel("relu", 2_000, stream=1)]),
    Stage("head", [Copy(4_096, 3_000), Copy(64, 900, kind=2)]),
)


def built(dialect: Any = "2026", *, replays: int = 5, seed: int = 0, **options: Any) -> KinetoTrace:
    trace = KinetoTrace(dialect, seed=seed, **options)
    for _ in range(2):
        with trace.step(), trace.range("decode"):
            with trace.operator("aten::linear", ["model.py(3): forward", "nn.py(9): __call__"]):
                trace.eager([Kernel("embed", 4_000), Copy(1 << 20, 8_000, kind=1)])
            with trace.range('graph \\ with "odd" {[names]}, and: more\u00e9'):
                trace.graph(STAGES).replays(replays, 80_000, jitter=0.1)
    return trace


def written(folder: Path, text: str | bytes, name: str = "t.json") -> Path:
    place = folder / name
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def tables_of(source: Source) -> dict[str, Any]:
    return {name: table.to_pydict() for name, table in source.tables.tables.items()}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("packed", [False, True])
def test_every_dialect(tmp_path: Path, dialect: Any, packed: bool) -> None:
    trace = built(dialect, rank=3)
    place = tmp_path / ("t.json.gz" if packed else "t.json")
    trace.write(place)
    source = read(place)
    assert read_as(source) == expected(place.read_bytes())
    assert source.info.synthetic and source.info.kind == "kineto"
    assert source.tables.rows("replays") == 10
    assert source.tables.rows("quarantine") == 0
    (process,) = source.tables.get("processes").to_pylist()
    assert (process["pid"], process["rank"]) == (4242, 3)
    (device,) = source.tables.get("devices").to_pylist()
    assert device["sm_count"] == 132
    assert device["max_warps_per_sm"] == (32 if dialect == "rocm" else 64)
    named = any("without ids of the nodes" in warning for warning in source.warnings)
    assert named == (dialect != "2026")
    assert source.tables.rows("execs") == (2 if dialect == "2026" else 0)


def test_node_ids_and_instances(tmp_path: Path) -> None:
    trace = built("2026")
    trace.write(tmp_path / "t.json")
    tables = read(tmp_path / "t.json").tables
    activities = tables.get("activities").to_pylist()
    inside = [row for row in activities if row["replay"] is not None]
    assert {row["node_native_id"] >> 32 for row in inside} == {2, 4}
    assert [row["native_id"] for row in tables.get("execs").to_pylist()] == [2, 4]
    assert [row["exec"] for row in tables.get("replays").to_pylist()] == [0] * 5 + [1] * 5
    # Some nodes ran beside the launch stream: which one the launch was on is not in the trace.
    assert all(row["stream"] is None for row in tables.get("replays").to_pylist())


def test_a_graph_without_ids_in_a_new_trace(tmp_path: Path) -> None:
    trace = KinetoTrace("2026")
    trace.graph(STAGES, node_ids=False).replays(3, 80_000)
    trace.write(tmp_path / "t.json")
    source = read(tmp_path / "t.json")
    assert source.tables.rows("replays") == 3
    assert any("3 graph replays were recorded without ids" in text for text in source.warnings)
    coverage = attribute(load(tmp_path / "t.json")).coverage
    assert coverage is not None
    assert coverage.activities.in_graphs == coverage.activities.unattributed == 18


def test_eager_work_has_the_stage_open_at_its_launch(tmp_path: Path) -> None:
    built().write(tmp_path / "t.json")
    found = attribute(load(tmp_path / "t.json"))
    stages = {row["stage"]: row["path"] for row in found.trace.stages.to_pylist()}
    eager = [row for row in found.trace.activities.to_pylist() if row["replay"] is None]
    assert {stages[row["stage"]] for row in eager} == {"decode"}
    assert {row["method"] for row in eager} == {"eager"}
    assert {row["batch"] for row in found.trace.replays.to_pylist()} == {0, 1}


@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_the_order_of_events_means_nothing(
    tmp_path_factory: pytest.TempPathFactory, order: random.Random, seed: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    trace = built(seed=seed, replays=2)
    places = list(range(len(trace.events)))
    first = read(written(folder, trace.text()))
    order.shuffle(places)
    second = read(written(folder, trace.text(places)))
    assert tables_of(first) == tables_of(second)
    assert first.warnings == second.warnings


# Values as files have them: right ones, ones of other types, and ones that cannot be true.
ODD = st.sampled_from(
    [
        None,
        True,
        "",
        "7",
        " 8 ",
        "x",
        "stream 9",
        "stream x",
        -1,
        0,
        1,
        2**31 - 1,
        2**31,
        2**63,
        2**63 - 1,
        -(2**63),
        10**30,
        1.5,
        7.0,
        [1, 2, 3],
        [1, 2],
        {"a": 1},
        "\\",
        "1e3",
    ]
)
SMALL = st.integers(0, 3)
TIME = st.one_of(
    st.integers(1, 40),
    st.builds(lambda n: n / 1000, st.integers(1, 40_000)),
    st.sampled_from([0, -5, 1e-4, 2.5e-3, "12.5", "x", None, 1e19, 10**15, 9e16, 2**61, True]),
)
NAMES = st.sampled_from(
    [
        "k",
        'void f<{1}, [2]>(int, "x")',
        "cudaGraphLaunch",
        "hipGraphLaunch",
        "gt_nope",
        "é\u2028",
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy PtoP",
        "Memset (Device)",
        "ProfilerStep#12",
        "",
        7,
        "back\\slash",
        'quote\\"',
        "\ud800",
        "tab\t",
        "cat",
        "ProfilerStep#x",
        None,
    ]
)
ARGS = st.dictionaries(
    st.sampled_from(
        [
            "device",
            "inDevice",
            "context",
            "inContext",
            "stream",
            "correlation",
            "bytes",
            "block",
            "registers per thread",
            "shared memory",
            "graph node id",
            "graph id",
            "grid",
            "cat",
        ]
    ),
    st.one_of(SMALL, SMALL, ODD),
)
CATS = st.sampled_from(
    [
        "kernel",
        "Kernel",
        "gpu_memcpy",
        "Memcpy",
        "gpu_memset",
        "Memset",
        "cuda_runtime",
        "Runtime",
        "cuda_driver",
        "user_annotation",
        "gpu_user_annotation",
        "cpu_op",
        "ac2g",
        None,
        5,
        "kerne",
    ]
)


@st.composite
def event(draw: st.DrawFn) -> dict[str, Any]:
    made = {
        "ph": draw(st.sampled_from(["X"] * 8 + ["f", "i", "XX", None])),
        "cat": draw(CATS),
        "name": draw(NAMES),
        "pid": 1,
        "tid": draw(st.one_of(SMALL, SMALL, ODD)),
        "ts": draw(TIME),
        "dur": draw(TIME),
        "args": draw(st.one_of(ARGS, ARGS, ARGS, ODD)),
        "other": draw(
            st.sampled_from([None, [{"cat": "kernel"}], {"ts": 3, "args": {"device": 9}}])
        ),
    }
    dropped = draw(st.sets(st.sampled_from([*made, "pid"]), max_size=2)) - {"pid"}
    kept = [name for name in made if name not in dropped]
    return {name: made[name] for name in draw(st.permutations(kept))}


def dumped(value: Any, style: random.Random) -> str:
    """JSON with blanks anywhere, escapes here and there, and members that come twice."""

    def blank() -> str:
        return style.choice(["", "", "", " ", "\n  ", "\t\r\n"])

    if isinstance(value, dict):
        members = [(name, inner) for name, inner in value.items()]
        if members and style.random() < 0.1:
            members.insert(0, (members[-1][0], style.choice([1, "twice", {"ts": 2}])))
        texts = [
            f"{blank()}{json.dumps(name)}{blank()}:{blank()}{dumped(inner, style)}{blank()}"
            for name, inner in members
        ]
        return "{" + ",".join(texts) + blank() + "}"
    if isinstance(value, list):
        return "[" + ",".join(blank() + dumped(inner, style) + blank() for inner in value) + "]"
    return json.dumps(value, ensure_ascii=style.random() < 0.5)


@given(
    st.lists(event(), max_size=25),
    st.randoms(use_true_random=False),
    st.sampled_from([64, 300, 1 << 22]),
    st.sampled_from([0, 1_767_189_312_000_000_000, "x", None, -1, 2**62]),
    st.booleans(),
)
def test_it_reads_what_json_reads(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    style: random.Random,
    piece: int,
    base: Any,
    packed: bool,
) -> None:
    document = {
        "schemaVersion": 1,
        "\u00e9 {[": ['"}]', {"traceEvents": [1, {}]}],
        "traceEvents": [*events, {"ph": "X", "cat": "user_annotation", "pid": 1}],
        "baseTimeNanoseconds": base,
        "tail": "]}\\",
    }
    data = dumped(document, style).encode("utf-8", "surrogatepass")
    data = gzip.compress(data) if packed else data
    place = written(tmp_path_factory.getbasetemp(), data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_stream, "PIECE", piece)
        source = read(place)
    found, wanted = read_as(source), expected(data)
    if source.nothing is not None:
        # Device work that is memsets alone, and steps around nothing, are no work.
        assert all(row[0] == "memset" for row in wanted.work)
        assert found.calls == wanted.calls and found.ranges == wanted.ranges
        return
    assert found == wanted


@pytest.mark.parametrize(
    ("twice", "column"),
    [
        ('"context": 1, "context": null', "context"),
        ('"correlation": 7, "correlation": "seven"', "correlation"),
        ('"grid": [1, 2, 3], "grid": "twice"', "grid_x"),
        ('"registers per thread": 9, "registers per thread": {}', "registers"),
    ],
)
def test_of_members_of_one_name_the_last_counts_be_it_nothing(
    tmp_path: Path, twice: str, column: str
) -> None:
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 1, "tid": 0, "ts": 1, "dur": 1, '
    place = written(
        tmp_path,
        f'{{"schemaVersion": 1, "traceEvents": [{event}"args": {{{twice}}}}}]}}'.encode(),
    )
    assert read(place).tables.get("activities").column(column).to_pylist() == [None]


def test_the_size_of_pieces_means_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built().write(tmp_path / "t.json")
    whole = tables_of(read(tmp_path / "t.json"))
    for piece in (50, 333, 4_096, 100_000):
        monkeypatch.setattr(kineto_stream, "PIECE", piece)
        assert tables_of(read(tmp_path / "t.json")) == whole


def merged(folder: Path, *traces: KinetoTrace) -> Path:
    document = json.loads(traces[0].text())
    for trace in traces[1:]:
        document["traceEvents"] += json.loads(trace.text())["traceEvents"]
    return written(folder, json.dumps(document))


def test_processes_of_a_merged_trace(tmp_path: Path) -> None:
    one, two = KinetoTrace(pid=10, device=0), KinetoTrace(pid=20, device=1)
    two._correlation = 9_000
    for trace in (one, two):
        trace.graph(STAGES).replays(2, 80_000)
    source = read(merged(tmp_path, one, two))
    assert source.tables.get("processes").column("pid").to_pylist() == [10, 20]
    assert source.tables.get("processes").column("rank").to_pylist() == [None, None]
    owners = {(r["process"], r["device"]) for r in source.tables.get("activities").to_pylist()}
    assert owners == {(0, 0), (1, 1)}
    assert source.tables.rows("replays") == 4
    assert any("how many SMs" in warning for warning in source.warnings)


def test_work_of_an_unknown_process_is_said_to_be(tmp_path: Path) -> None:
    one, two = KinetoTrace(pid=10), KinetoTrace(pid=20)
    for trace in (one, two):
        trace.eager([Kernel("k", 1_000)])
    source = read(merged(tmp_path, one, two))
    assert source.tables.get("processes").column("pid").to_pylist() == [10, 20, None]
    assert set(source.tables.get("activities").column("process").to_pylist()) == {2}
    assert any("2 rows of device work" in warning for warning in source.warnings)


def test_work_without_any_call(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.work(Kernel("k", 1_000), 5_000, 6_000, 7)
    source = read(written(tmp_path, trace.text()))
    assert source.tables.get("processes").column("pid").to_pylist() == [None]
    assert not source.tables.has("api_calls")
    assert any("no call of the CUDA or HIP runtime" in warning for warning in source.warnings)
    assert attribute(load(tmp_path / "t.json")).coverage is not None


def test_launches_without_work_are_counted(tmp_path: Path) -> None:
    trace = built(replays=1)
    trace.call("cuGraphLaunch")
    source = read(written(tmp_path, trace.text()))
    assert any("1 graph was launched without any work" in text for text in source.warnings)


def refusals(source: Source) -> dict[str, int]:
    rows = source.tables.get("quarantine").to_pylist()
    return {row["reason"]: row["count"] for row in rows}


def test_rows_that_cannot_be_true_are_counted_and_not_mended(tmp_path: Path) -> None:
    trace = KinetoTrace("2026")
    trace.eager([Kernel("good", 1_000)])
    graph = trace.graph(STAGES)
    graph.replays(1, 80_000)
    again = trace.events[-4].replace('"ts": ', '"ts": 1')
    document = json.loads(trace.text())
    kernel = next(e for e in document["traceEvents"] if e.get("cat") == "kernel")

    def odd(**members: Any) -> dict[str, Any]:
        args = {**kernel["args"], **members.pop("args", {})}
        return {**kernel, "args": args, **members}

    document["traceEvents"] += [
        odd(dur=-1),
        odd(dur=None),
        odd(ts=float("nan")),
        odd(ts=-3.5),
        odd(ts=0),
        odd(dur=10**13),
        odd(ts=10**19),
        odd(args={"device": 2**31 - 1}),
        odd(args={"device": "x", "stream": None}, pid="y"),
        odd(args={"stream": None}, tid=None),
        json.loads(again),
    ]
    source = read(written(tmp_path, json.dumps(document)))
    assert refusals(source) == {
        "ends before it starts": 1,
        "its time is missing or no number": 3,
        "its time is negative": 1,
        "time is zero: it was not collected": 1,
        "longer than the recording": 1,
        "ran on the host": 1,
        "its device or stream is missing": 2,
        "its graph node already ran in this replay": 1,
    }
    names = source.tables.get("activities").column("name").to_pylist()
    assert names.count("good") == 1
    lengths = np.diff(
        [source.tables.get("activities")[c].to_numpy() for c in ("begin_ns", "end_ns")], axis=0
    )
    assert lengths.min() > 0
