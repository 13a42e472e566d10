# SPDX-License-Identifier: Apache-2.0
"""Printed pages of ncu: real files, the same figures as the report, and hostile text."""

import csv
import io
import math
import subprocess

import pytest

from graphtrace.analysis.engine import analyze
from graphtrace.ingest.load import load
from graphtrace.ingest.ncu_csv import read
from graphtrace.ingest.ncu_csv_values import base_unit
from graphtrace.ingest.ncu_rep import read as read_report
from graphtrace.model.errors import InputCorrupt, InputUnsupported, NoGpuWork

OLD = ("mojo_gtx1660ti_2022.4", "ncar_v100_2022.2", "scan_rtx3070_2020.3", "selfjoin_a100_2022.4")
HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def row(metric, unit, value, ident="0", name="k(int)"):
    cells = [ident, "7", "secret-program", "secret-host", name, "1", "7", "(32, 4, 1)"]
    cells += ["(224, 1, 1)", "0", "12.0", "Section", metric, unit, value]
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


def written(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "page.csv"
    path.write_bytes(text.encode(encoding))
    return path


def metrics(source):
    found = {}
    for one in source.tables.get("metrics").to_pylist():
        found.setdefault(one["result"], {})[one["name"]] = one
    return found


def printed(ncu, report, target, *options):
    command = [ncu, "--import", str(report), "--csv", *options]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    target.write_bytes(done.stdout)
    return target


# Read off the text of the files by eye.
REAL = {
    "copy_blocked_details.csv": {
        "dram__cycles_elapsed.avg.per_second": (4963609951.19, "hz"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": (96.30, "%"),
        "launch__waves_per_multiprocessor": (6.40, ""),
        "launch__sm_count": (40, "SM"),
    },
    "gemm_tiled.csv": {
        "dram__bytes_op_read.sum": (53261312, "byte"),
        "gpu__time_duration.sum": (10195552, "ns"),
        "lts__t_sector_hit_rate.pct": (87.50, "%"),
        "smsp__thread_inst_executed_per_inst_executed.ratio": (32, ""),
    },
    "transpose_naive.csv": {"sm__warps_active.avg.pct_of_peak_sustained_active": (41.2, "%")},
    "dsocr_kernel1_details.csv": {"sm__maximum_warps_per_active_cycle_pct": (16.67, "%")},
    "dsocr_kernel4_details.csv": {"sm__maximum_warps_per_active_cycle_pct": (100, "%")},
}


@pytest.mark.parametrize("name", REAL)
def test_real_pages(data_dir, name):
    path = data_dir / "ncu_csv" / name
    source = read(path)
    (result,) = source.tables.get("ncu_results").to_pylist()
    assert (result["cache"], result["clock"], result["passes"]) == ("unknown", "unknown", None)
    assert result["grid_x"] > 1
    assert result["block_x"] >= 32
    (device,) = source.tables.get("devices").to_pylist()
    assert (device["cc_major"], device["cc_minor"]) in {(7, 5), (12, 0)}
    found = metrics(source)[0]
    for metric, (value, unit) in REAL[name].items():
        assert found[metric]["value"] == pytest.approx(value, abs=0.05)
        assert found[metric]["unit"] == unit
    assert result["duration_ns"] == round(found["gpu__time_duration.sum"]["value"])
    text = str([table.to_pylist() for table in source.tables.tables.values()])
    assert "127.0.0.1" not in text
    assert "python3.1" not in text
    assert "roofline_profiler" not in text
    assert source.tables.rows("quarantine") == 0


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("name", OLD)
def test_a_raw_page_says_what_the_report_says(data_dir, ncu, tmp_path, name, base):
    report = data_dir / "ncu" / f"{name}.ncu-rep"
    options = ("--page", "raw", *(("--print-units", "base") if base else ()))
    path = printed(ncu, report, tmp_path / "raw.csv", *options)
    page = read(path)
    whole = read_report(report)
    ours, theirs = metrics(page), metrics(whole)
    assert ours.keys() == theirs.keys()
    header, units, *cells = csv.reader(io.StringIO(path.read_text()))
    compared = 0
    for result, named in theirs.items():
        for metric, true in named.items():
            given = ours[result].get(metric)
            if given is None or given["value"] is None or true["value"] is None:
                continue
            compared += 1
            column = header.index(metric)
            decimals = len(cells[result][column].partition(".")[2])
            slack = 0.51 * 10.0 ** (base_unit(units[column])[1] - decimals)
            assert math.isclose(given["value"], true["value"], rel_tol=1e-9, abs_tol=slack), metric
    assert compared > 200 * len(theirs)
    one, other = page.tables.get("ncu_results"), whole.tables.get("ncu_results")
    columns = ["ncu_id", "name", "grid_x", "block_x", "process_id", "context", "stream", "passes"]
    assert one.select(columns).to_pylist() == other.select(columns).to_pylist()
    facts = ["name", "ordinal", "sm_count", "l2_bytes", "cc_major", "max_warps_per_sm"]
    if base:
        assert (
            page.tables.get("devices").select(facts).to_pylist()
            == whole.tables.get("devices").select(facts).to_pylist()
        )


@pytest.mark.parametrize("name", OLD)
def test_a_details_page_says_what_the_report_says(data_dir, ncu, tmp_path, name):
    report = data_dir / "ncu" / f"{name}.ncu-rep"
    page = metrics(read(printed(ncu, report, tmp_path / "details.csv", "--page", "details")))
    whole = metrics(read_report(report))
    known = 0
    for result, named in page.items():
        for metric, given in named.items():
            true = whole[result].get(metric)
            if true is None or given["value"] is None or true["value"] is None:
                continue
            known += 1
            assert math.isclose(given["value"], true["value"], rel_tol=6e-3, abs_tol=6e-3), metric
            assert given["unit"] == true["unit"] or true["unit"] in {"", "branches"}, metric
    assert known >= 20 * len(page)


@pytest.mark.parametrize("name", OLD)
def test_printed_instances_are_those_of_the_report(data_dir, ncu, tmp_path, name):
    report = data_dir / "ncu" / f"{name}.ncu-rep"
    options = ("--page", "raw", "--print-units", "base", "--print-metric-instances", "values")
    page = metrics(read(printed(ncu, report, tmp_path / "raw.csv", *options)))
    whole = metrics(read_report(report))
    compared = 0
    for result, named in whole.items():
        for metric, true in named.items():
            given = page[result].get(metric)
            if given is None or true["instances"] is None:
                continue
            if given["instances"] is None:
                # What ncu has no separators for: texts, and lists of ports.
                assert given["value"] is None or given["value"] == true["value"]
                continue
            compared += 1
            assert given["instances"] == pytest.approx(true["instances"], abs=1e-6), metric
            if true["value"] is not None and given["value"] is not None:
                assert given["value"] == pytest.approx(true["value"], abs=1e-6), metric
    assert compared >= 3


@pytest.mark.parametrize("name", OLD)
def test_findings_of_a_raw_page_are_those_of_the_report(data_dir, ncu, tmp_path, name):
    report = data_dir / "ncu" / f"{name}.ncu-rep"
    page = printed(ncu, report, tmp_path / "raw.csv", "--page", "raw", "--print-units", "base")
    kinds = [
        sorted((f.kind, f.kernel, len(f.results)) for f in analyze(load(path)).findings)
        for path in (page, report)
    ]
    assert kinds[0] == kinds[1]


def test_averages_over_launches_are_refused(data_dir, ncu, tmp_path):
    report = data_dir / "ncu" / "selfjoin_a100_2022.4.ncu-rep"
    page = printed(ncu, report, tmp_path / "sum.csv", "--print-summary", "per-kernel")
    with pytest.raises(InputUnsupported, match="averages"):
        read(page)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_line_ends(tmp_path, encoding, end):
    text = "==PROF== Connected\nnoise, 1\n" + HEAD
    text += row("L2 Hit Rate", "%", "87.50") + row("Duration", "msecond", "1.5")
    text += "==PROF== Disconnected from process 7\n"
    source = read(written(tmp_path, text.replace("\n", end), encoding))
    found = metrics(source)[0]
    assert found["lts__t_sector_hit_rate.pct"]["value"] == 87.5
    assert found["gpu__time_duration.sum"]["value"] == 1_500_000
    assert source.tables.get("ncu_results")["duration_ns"].to_pylist() == [1_500_000]


def test_a_decimal_comma_is_proved_by_another_cell(tmp_path):
    text = HEAD + row("a__b.sum", "byte", "1.234") + row("L2 Hit Rate", "%", "87,5")
    found = metrics(read(written(tmp_path, text)))[0]
    assert found["a__b.sum"]["integer"] == 1234
    assert found["lts__t_sector_hit_rate.pct"]["value"] == 87.5


def test_what_nothing_proves_is_left_out_and_said(tmp_path):
    text = HEAD + row("a__b.sum", "byte", "1,234") + row("c__d.sum", "byte", "77")
    source = read(written(tmp_path, text))
    assert set(metrics(source)[0]) == {"c__d.sum"}
    assert "two ways" in source.warnings[0]
    assert source.tables.get("quarantine").to_pylist()[0]["count"] == 1


def test_two_locales_in_one_file_are_refused(tmp_path):
    text = HEAD + row("a__b.sum", "byte", "1,234.5") + row("c__d.sum", "byte", "1.234,5")
    with pytest.raises(InputCorrupt, match="two ways"):
        read(written(tmp_path, text))


def test_runs_one_after_another_stay_apart(tmp_path):
    text = HEAD + row("a__b.sum", "", "1") + "==PROF== x\n" + HEAD + row("a__b.sum", "", "2")
    source = read(written(tmp_path, text))
    assert [m["a__b.sum"]["integer"] for m in metrics(source).values()] == [1, 2]


def test_rule_rows_say_nothing_of_metrics(tmp_path):
    head = HEAD.rstrip("\n") + ',"Rule Name","Rule Type","Rule Description"\n'
    rule = row("", "", "").rstrip("\n") + ',"Bottleneck","WRN","two\nlines, ""quoted"""\n'
    source = read(
        written(tmp_path, head + row("a__b.sum", "", "5") + rule + row("c__d.sum", "", "6"))
    )
    assert set(metrics(source)[0]) == {"a__b.sum", "c__d.sum"}
    assert source.warnings == ()


def test_instances_are_a_list(tmp_path):
    found = metrics(read(written(tmp_path, HEAD + row("a__b", "Kbyte", "1.5;2;3"))))[0]
    assert found["a__b"]["instances"] == [1500.0, 2000.0, 3000.0]
    assert found["a__b"]["value"] is None


@pytest.mark.parametrize(
    ("cell", "value", "instances", "text"),
    [
        ("6 (1; 2; 3)", 6.0, [1.0, 2.0, 3.0], None),
        ("(1.5; 2)", None, [1.5, 2.0], None),
        ("7 (7)", 7.0, [7.0], None),
        ("1,250.5 (1,250.5)", 1250.5, [1250.5], None),
        ("(a; b)", None, None, None),
        ("(NVIDIA GeForce GTX 1660 Ti)", None, None, "(NVIDIA GeForce GTX 1660 Ti)"),
        ("(0,1,2; 3,4,5)", None, None, None),
    ],
)
def test_a_value_before_its_instances(tmp_path, cell, value, instances, text):
    page = HEAD + row("a__b", "", cell) + row("c__d.pct", "%", "87.5")
    found = metrics(read(written(tmp_path, page)))[0]["a__b"]
    assert (found["value"], found["instances"], found["text"]) == (value, instances, text)


def test_nvtx_columns_are_no_metrics(tmp_path):
    nvtx = ("thread Domain:Push/Pop_Range:PL_Type:PL_Value", "Id:Domain:Start/Stop_Range:PL_Type")
    head = ["ID", "Process ID", "Process Name", "Host Name", *nvtx, "Kernel Name", "a__b.sum"]
    lines = [head, [""] * 7 + ["Kbyte"], ["0", "7", "p", "h", "1 x:step", "", "k", "5"]]
    text = "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)
    assert set(metrics(read(written(tmp_path, text)))[0]) == {"a__b.sum"}


def test_a_file_that_breaks_off_says_so(tmp_path):
    text = HEAD + row("a__b.sum", "", "5") + row("c__d.sum", "", "6")[:-2]
    source = read(written(tmp_path, text))
    assert "breaks off" in source.warnings[0]
    assert set(metrics(source)[0]) == {"a__b.sum"}


def test_no_kernel_and_only_an_error_are_told_apart(tmp_path):
    source = read(written(tmp_path, "==PROF== Connected\n==WARNING== No kernels were profiled.\n"))
    assert isinstance(source.nothing, NoGpuWork)
    with pytest.raises(InputUnsupported, match="an error"):
        read(written(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - no permission\n"))


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        HEAD + '"0"\n' * 50,
        HEAD + row("a__b.sum", "", "9" * 400),
        HEAD + row("a__b.sum", "", "1e999"),
        HEAD + row("a__b.sum", "Gbyte/", "-1"),
        HEAD + row("\x1b[31m<script>", "\u202e", "=1+1", name="k\x1b[0m"),
        HEAD + row("a__b.sum", "", "x" * 2_000_000),
        HEAD + '"0",' * 100_000 + "\n",
        HEAD + '"0","' + "\n" * 5000,
        '"ID","Kernel Name",' + ",".join(f'"m{i}__x"' for i in range(20_000)) + "\n"
        '"0","k",' + ",".join(f'"{i}"' for i in range(20_000)) + "\n",
    ],
)
def test_hostile_pages_are_read_or_refused(tmp_path, text):
    source = read(written(tmp_path, text))
    for table in source.tables.tables.values():
        table.validate(full=True)


def test_the_file_is_recognised_by_its_content(tmp_path, data_dir):
    path = written(tmp_path, HEAD + row("a__b.sum", "", "5"))
    assert load(path.rename(tmp_path / "x.txt")).inputs[0].kind == "ncu_csv"
    for real in (data_dir / "ncu_csv").iterdir():
        assert load(real).inputs[0].kind == "ncu_csv"
