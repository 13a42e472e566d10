# SPDX-License-Identifier: Apache-2.0
"""Synthetic pages of ncu: printed as ncu prints, read back as planted, stalls found."""

import csv
import dataclasses
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.ncu_csv import read
from graphtrace.ingest.ncu_rep import read as read_report
from graphtrace.model.errors import InputUnsupported, NoGpuWork, OutputError
from graphtrace.testing.ncu_csv import (
    MARK,
    Form,
    Metric,
    NcuCsv,
    Profiled,
    Rule,
    planted_uncoalesced,
)

OLD = ("mojo_gtx1660ti_2022.4", "ncar_v100_2022.2", "scan_rtx3070_2020.3", "selfjoin_a100_2022.4")
PROOF = Metric("proof__of.the_locale", 87.5, "%")


def of_report(report):
    """The results of a report, as the builder takes them."""
    tables = read_report(report).tables
    kernels = []
    for result in tables.get("ncu_results").to_pylist():
        metrics = []
        for row in tables.get("metrics").to_pylist():
            if row["result"] == result["result"]:
                exact = row["integer"] if row["integer"] is not None else row["value"]
                value = row["text"] if exact is None else exact
                listed = tuple(row["instances"] or ())
                metrics.append(Metric(row["name"], value, row["unit"], listed))
        kernels.append(
            Profiled(
                result["name"],
                metrics,
                context=result["context"],
                stream=result["stream"],
                pid=result["process_id"],
            )
        )
    return kernels


def rows_of(text):
    """Records of a page as cells, and how its lines are quoted."""

    return [row for row in csv.reader(text.splitlines()) if row and not row[0].startswith("==")]


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("name", OLD)
def test_a_raw_page_is_printed_as_ncu_prints_it(data_dir, ncu, name, base):
    report = data_dir / "ncu" / f"{name}.ncu-rep"
    options = ("--print-units", "base") if base else ()
    done = subprocess.run(
        [ncu, "--import", str(report), "--csv", "--page", "raw", *options],
        capture_output=True,
        timeout=60,
        check=True,
    )
    theirs = rows_of(done.stdout.decode())
    text = NcuCsv(of_report(report)).text(Form(release="2022", base_units=base, preamble=False))
    ours = rows_of(text)
    assert done.stdout.decode().splitlines()[0].startswith('"ID","Process ID",')
    known = [column for column in ours[0] if column in set(theirs[0])]
    # All columns that the report's own reader knows, in the same order.
    assert known == [column for column in theirs[0] if column in set(ours[0])]
    assert len(known) > 250
    place = {column: (theirs[0].index(column), ours[0].index(column)) for column in known}
    renamed, unlike = set(), []
    for column, (there, here) in place.items():
        if column in {"Process Name", "Host Name", "Kernel Time"}:
            continue
        if theirs[1][there] != ours[1][here]:
            renamed.add(column)
            continue
        pairs = [(t[there], o[here]) for t, o in zip(theirs[2:], ours[2:], strict=True)]
        unlike += [(column, *pair) for pair in pairs if pair[0] != pair[1]]
    # Instances that are texts; neither the report's reader nor the builder has them.
    assert [(c, t, o) for c, t, o in unlike if (t, o) != ("", "no data")] == []
    # The report's library names the units of some metrics otherwise than ncu does.
    assert len(renamed) < 0.1 * len(known), renamed


def test_quoting_is_that_of_ncu(data_dir, ncu):
    report = data_dir / "ncu" / "scan_rtx3070_2020.3.ncu-rep"
    command = [ncu, "--import", str(report), "--csv", "--page", "details"]
    printed = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()
    kernel = Profiled(
        "k(int const*)",
        [Metric("a__b.sum", 5, "byte", section="GPU Speed Of Light Throughput", label="Label")],
        rules=[Rule("SOLBottleneck", "SOLBottleneck", 'It "says", so.')],
    )
    text = NcuCsv([kernel]).text(Form("details", "2022", preamble=False))
    ours, theirs = text.splitlines()[1:], printed.splitlines()
    assert ours[0] == theirs[0]

    metrics = {quoting(line) for line in theirs[1:] if line.endswith(",")}
    rules = {quoting(line) for line in theirs[1:] if not line.endswith(",")}
    assert {quoting(ours[1])} == metrics
    assert quoting(ours[2]) in rules


def quoting(line):
    return re.sub(r'"(?:[^"]|"")*"', '""', line)


@pytest.mark.parametrize("name", ["copy_blocked_details", "dsocr_kernel1_details"])
def test_the_newer_release_is_that_of_real_pages(data_dir, name):
    text = (data_dir / "ncu_csv" / f"{name}.csv").read_text(encoding="utf-8-sig")
    head, *theirs = text[text.index('"ID",') :].splitlines()
    kernel = Profiled("k(int)", [PROOF], rules=[Rule("Occupancy", "Occupancy", "text")])
    ours = NcuCsv([kernel]).text(Form("details", preamble=False)).splitlines()[1:]
    assert ours[0] == head
    assert quoting(ours[1]) in {quoting(line) for line in theirs}


@pytest.mark.parametrize("preamble", [False, True])
def test_averages_have_the_header_of_ncu(data_dir, ncu, tmp_path, preamble):
    report = data_dir / "ncu" / "selfjoin_a100_2022.4.ncu-rep"
    command = [ncu, "--import", str(report), "--csv", "--page", "raw"]
    command += ["--print-summary", "per-kernel"]
    printed = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()
    kernels = [Profiled("k", [PROOF, Metric("a__b.sum", n, "byte")]) for n in (1, 3)]
    text = NcuCsv(kernels).text(Form("summary", preamble=preamble))
    header = next(line for line in text.splitlines() if line.startswith('"'))
    assert header == printed.splitlines()[0]
    assert '"2","a__b.sum","byte","1.000000","3.000000","2.000000"' in text
    path = tmp_path / "averages.csv"
    path.write_text(text)
    with pytest.raises(InputUnsupported, match="averages"):
        read(path)


forms = st.builds(
    Form,
    page=st.sampled_from(["raw", "details"]),
    release=st.sampled_from(["2022", "2025"]),
    base_units=st.booleans(),
    grouped=st.booleans(),
    decimal=st.sampled_from([".", ","]),
    preamble=st.booleans(),
    ragged=st.booleans(),
    instances=st.booleans(),
    exact=st.just(True),
    nvtx=st.booleans(),
)
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1).map(str.strip)
# The reader takes a number of more than 300 places for none.
reals = st.floats(-1e18, 1e18, allow_subnormal=False).filter(lambda x: not 0 < abs(x) < 1e-280)
wholes = st.integers(0, 2**64 - 1)
words = st.from_regex(r"[A-Za-z][A-Za-z ]{0,20}[A-Za-z]", fullmatch=True)
units = st.sampled_from(["", "%", "byte", "byte/s", "ns", "hz", "inst", "sector/s", "byte/block"])


@st.composite
def kernels(draw):
    metrics = [PROOF]
    for number in range(draw(st.integers(0, 6))):
        value = draw(st.one_of(st.none(), reals, wholes, words.filter(str.strip)))
        numeric = not isinstance(value, str)
        listed = draw(st.lists(st.one_of(reals, st.integers(0, 2**40)), max_size=4))
        unit = draw(units) if numeric else ""
        metrics.append(Metric(f"m{number}__x.sum", value, unit, tuple(listed if numeric else ())))
    shape = st.tuples(*[st.integers(1, 2**31 - 1)] * 3)
    return Profiled(
        draw(names.filter(bool)),
        metrics,
        grid=draw(shape),
        block=draw(shape),
        context=draw(st.integers(0, 2**31 - 1)),
        stream=draw(st.integers(0, 2**40)),
        device=draw(st.integers(0, 7)),
        cc=draw(st.tuples(st.integers(1, 99), st.integers(0, 9))),
        pid=draw(st.integers(0, 2**24)),
        nvtx=draw(st.lists(words, max_size=2)),
    )


def same(given, planted, scaled):
    if planted is None:
        return given is None
    return given == float(planted) if not scaled else given == pytest.approx(planted, rel=1e-15)


@given(st.lists(kernels(), min_size=1, max_size=3), forms)
def test_what_is_planted_is_read_back(tmp_path_factory, planted, form):
    path = tmp_path_factory.mktemp("page") / "page.csv"
    # One name has one unit on a raw page.
    first = {m.name: m.unit for kernel in reversed(planted) for m in kernel.metrics}
    planted = [
        dataclasses.replace(
            kernel, metrics=[dataclasses.replace(m, unit=first[m.name]) for m in kernel.metrics]
        )
        for kernel in planted
    ]
    NcuCsv(planted).write(path, form)
    source = read(path)
    assert source.info.synthetic
    assert source.warnings == ()
    assert source.tables.rows("quarantine") == 0
    results = source.tables.get("ncu_results").to_pylist()
    assert [r["name"] for r in results] == [kernel.name for kernel in planted]
    found = {}
    for row in source.tables.get("metrics").to_pylist():
        found[row["result"], row["name"]] = row
    for result, kernel in zip(results, planted, strict=True):
        assert (result["context"], result["stream"]) == (kernel.context, kernel.stream)
        assert result["process_id"] == kernel.pid
        if form.release == "2025":
            for what in ("grid", "block"):
                shape = tuple(result[f"{what}_{axis}"] for axis in "xyz")
                assert shape == getattr(kernel, what)
        for metric in kernel.metrics:
            row = found[result["result"], metric.name]
            listed = form.instances and metric.instances
            if isinstance(metric.value, str):
                assert (row["text"], row["value"], row["integer"]) == (metric.value, None, None)
                continue
            assert row["unit"] == metric.unit
            assert same(row["value"], metric.value, not form.base_units), metric
            assert (row["instances"] or []) == (
                pytest.approx(list(metric.instances), rel=1e-15) if listed else []
            )
            if form.base_units and isinstance(metric.value, int):
                assert row["integer"] == metric.value
    text = str([table.to_pylist() for table in source.tables.tables.values()])
    assert not form.nvtx or "Push/Pop" not in text


def analyze(path, *options):
    command = [sys.executable, "-m", "graphtrace", "analyze", str(path), "--format", "json"]
    done = subprocess.run([*command, *options], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "form",
    [
        Form(),
        Form("details", "2022"),
        Form("details", grouped=True, base_units=True),
        Form("raw", "2022", decimal=",", grouped=True, nvtx=True, preamble=False),
    ],
    ids=["raw", "details", "grouped", "comma"],
)
def test_the_planted_stall_is_found_and_the_decoy_is_not(tmp_path, form):
    planted = planted_uncoalesced(tmp_path / "x.csv", form)
    result = analyze(planted.path)
    assert result["synthetic"] is True
    assert [i["kind"] for i in result["inputs"]] == ["ncu_csv"]
    (found,) = [f for f in result["findings"] if f["kind"] == "uncoalesced"]
    assert planted.stalled.partition("(")[0] in json.dumps(found)
    assert "24 sectors per request where 8" in found["why"]
    assert planted.decoy.partition("(")[0] not in json.dumps(result["findings"])
    evidence = {e["name"]: e["value"] for e in found["evidence"]}
    assert evidence["graphtrace__excess_sectors_share"] == pytest.approx(planted.excess)
    # Above the planted excess nothing is left.
    assert not analyze(planted.path, "--set", "cache_thrash.excess=0.7")["findings"]


def test_a_page_without_a_kernel(tmp_path):
    path = tmp_path / "none.csv"
    NcuCsv([]).write(path)
    source = read(path)
    assert source.info.synthetic
    assert isinstance(source.nothing, NoGpuWork)


def test_the_mark_is_not_believed_inside_a_cell(tmp_path):
    path = tmp_path / "page.csv"
    kernel = Profiled("k", [PROOF], rules=[Rule("S", "R", f"text\n{MARK}\nmore")])
    text = NcuCsv([kernel]).text(Form("details"))
    path.write_text(text.partition("\n")[2])
    assert not read(path).info.synthetic


def test_a_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "x.csv"
    planted_uncoalesced(path)
    before = path.read_bytes()
    with pytest.raises(OutputError):
        planted_uncoalesced(path, Form("details"))
    assert path.read_bytes() == before
    planted_uncoalesced(path, Form("details"), force=True)
    assert path.read_bytes() != before
    with pytest.raises(OutputError):
        planted_uncoalesced(tmp_path / "absent" / "x.csv")


def test_the_command(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "graphtrace.testing.ncu_csv", "uncoalesced"]
    arguments = [str(tmp_path / "x.csv"), "--page", "details"]
    done = subprocess.run([*command, *arguments], capture_output=True, check=True, timeout=120)
    assert done.stdout == b""
    assert read(tmp_path / "x.csv").tables.rows("ncu_results") == 2
    again = subprocess.run([*command, *arguments], capture_output=True, check=False, timeout=120)
    assert again.returncode == 2
    what, why, do = again.stderr.decode().splitlines()
    assert what.startswith("error: ") and what.endswith("x.csv exists already.")
    assert why.startswith("  why: ") and do.startswith("   do: ")
    assert b"Traceback" not in again.stderr
