# SPDX-License-Identifier: Apache-2.0
"""`graphtrace analyze` on real files and on damaged ones, by the real command."""

import gzip
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

SAMPLE = Path(
    "/usr/share/doc/nsight-compute/examples/uncoalescedGlobalAccesses/addConstDouble3.ncu-rep"
)
CANARY = "GT_CANARY"

# Figures of data/INDEX.md: results in each readable report.
REPORTS = {
    "ncar_v100_2022.2.ncu-rep": 5,
    "selfjoin_a100_2022.4.ncu-rep": 4,
    "cutlass_nvtx_a100_2024.1.ncu-rep": 2,
    "flashattn_rtx4060ti_2025.4.ncu-rep": 1,
    "flashattn_full_rtx4060ti_2025.4.ncu-rep": 1,
    "scan_rtx3070_2020.3.ncu-rep": None,
    "mojo_gtx1660ti_2022.4.ncu-rep": None,
}
NO_GPU_WORK = {"dynamicvit.sqlite", "gtls.sqlite", "weatherbench2.sqlite"}


def analyze(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "graphtrace", "analyze", *map(str, args)],
        capture_output=True,
        timeout=300,
        check=False,
        cwd=cwd,
    )


def refusal(done, code):
    """The three lines of a refusal; nothing else was printed."""
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert done.stdout == b""
    lines = text.splitlines()
    assert len(lines) == 3, text
    assert "Traceback" not in text
    return lines


@pytest.fixture(scope="session")
def validator():
    schema = resources.files("graphtrace.report") / "schema" / "analysis-1.json"
    return jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", REPORTS)
def test_every_real_report_gives_an_answer(data_dir, tmp_path, validator, name):
    page = tmp_path / "report.html"
    done = analyze(data_dir / "ncu" / name, "--format", "json", "-o", page)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    validator.validate(result)
    kernels = result["kernels"]
    assert len(kernels) == (REPORTS[name] or len(kernels)) > 0
    assert result["coverage"] is None
    assert result["budget"] is None
    assert result["inputs"][0]["kind"] == "ncu_rep"
    for finding in result["findings"]:
        assert finding["recoverable_ns"] is None
        assert 0 < finding["share"] <= 1
    for abstention in result["abstentions"]:
        assert abstention["reason"]
        assert abstention["rerun"]
    text = analyze(data_dir / "ncu" / name)
    assert text.returncode == 0
    for output in (done.stdout, text.stdout, page.read_bytes()):
        assert CANARY.encode() not in output


def test_the_sample_of_the_profiler_shows_its_known_figures(tmp_path):
    if not SAMPLE.exists():
        pytest.skip("ncu is not installed: its sample report is missing")
    result = json.loads(analyze(SAMPLE, "--format", "json").stdout)
    (kernel,) = result["kernels"]
    metrics = kernel["metrics"]
    achieved = metrics["sm__warps_active.avg.pct_of_peak_sustained_active"]
    assert round(achieved["value"], 3) == 77.069
    assert round(metrics["lts__t_sector_hit_rate.pct"]["value"], 3) == 66.749
    (found,) = [f for f in result["findings"] if f["kind"] == "uncoalesced"]
    assert "24" in found["why"]
    assert "8" in found["why"]
    text = analyze(SAMPLE).stdout.decode()
    assert "77.07" in text or "77.1" in text
    assert "66.75" in text or "66.7" in text


@pytest.mark.parametrize("share", [0.10, 0.50, 0.90, 0.9999])
@pytest.mark.parametrize("name", REPORTS)
def test_a_truncated_report_is_refused_and_nothing_is_written(data_dir, tmp_path, name, share):
    whole = (data_dir / "ncu" / name).read_bytes()
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(whole[: int(len(whole) * share)])
    lines = refusal(analyze(cut, "-o", tmp_path / "report.html", cwd=tmp_path), 3)
    assert "cut.ncu-rep" in lines[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.ncu-rep"]


def test_what_is_no_report_is_told_apart(data_dir, tmp_path):
    whole = (data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep").read_bytes()
    files = {
        "empty": b"",
        "text": b"hello, this is a note and no report\n" * 9,
        "page": b"<!DOCTYPE html><html><body>404</body></html>",
        "binary": os.urandom(4096),
        "packed": gzip.compress(b"something else"),
        "truncated": whole[: len(whole) // 2],
        "flipped": whole[:4] + bytes(b ^ 0xFF for b in whole[4:400]) + whole[400:],
    }
    told = {}
    for name, content in files.items():
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(content)
        told[name] = refusal(analyze(path), 3)[0:2]
    told["pointer"] = refusal(analyze(data_dir / "ncu" / "lfs_pointer.ncu-rep"), 3)[0:2]
    told["missing"] = refusal(analyze(tmp_path / "nowhere.ncu-rep"), 2)[0:2]
    told["folder"] = refusal(analyze(tmp_path), 2)[0:2]
    whys = [lines[1] for lines in told.values()]
    assert len(set(whys)) == len(whys), told


@pytest.mark.parametrize("kind", ["nsys", "ncu"])
def test_no_output_repeats_an_environment(data_dir, tmp_path, kind):
    for path in sorted((data_dir / kind).iterdir()):
        page = tmp_path / f"{path.name}.html"
        done = analyze(path, "--format", "json", "-o", page)
        assert done.returncode in {0, 3, 4}
        assert CANARY.encode() not in done.stdout + done.stderr
        if page.exists():
            assert CANARY.encode() not in page.read_bytes()


def test_every_real_export_gives_an_answer_or_says_that_it_has_no_gpu_work(data_dir, validator):
    for path in sorted((data_dir / "nsys").glob("*.sqlite")):
        done = analyze(path, "--format", "json")
        if path.name in NO_GPU_WORK:
            assert done.returncode == 4, done.stderr.decode()
            assert json.loads(done.stdout)["schema"] == "graphtrace.error/1"
            continue
        assert done.returncode == 0, done.stderr.decode()
        result = json.loads(done.stdout)
        validator.validate(result)
        for whole in (result["coverage"]["activities"], result["coverage"]["time_ns"]):
            assert whole["exact"] + whole["inferred"] + whole["unattributed"] == whole["total"]


def test_two_reports_are_joined(data_dir, validator):
    names = ["ncar_v100_2022.2.ncu-rep", "selfjoin_a100_2022.4.ncu-rep"]
    done = analyze(*(data_dir / "ncu" / name for name in names), "--format", "json")
    result = json.loads(done.stdout)
    validator.validate(result)
    assert len(result["inputs"]) == 2
    assert len(result["kernels"]) == 9


def test_a_hostile_name_stays_text(data_dir, tmp_path):
    hostile = tmp_path / "a\x1b[31m<script>alert(1)<!--\u202e.ncu-rep"
    hostile.write_bytes((data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep").read_bytes())
    page = tmp_path / "page.html"
    done = analyze(hostile, "-o", page)
    assert done.returncode == 0, done.stderr.decode()
    assert b"\x1b" not in done.stdout + done.stderr
    assert "\u202e".encode() not in done.stdout + done.stderr
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


def test_outputs_are_refused_before_work_is_done(data_dir, tmp_path):
    report = data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep"
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert "exists" in refusal(analyze(report, "-o", page), 2)[0]
    assert page.read_text() == "mine"
    assert analyze(report, "-o", page, "--force").returncode == 0
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_a_gate_that_cannot_be_decided_exits_with_4(data_dir):
    report = data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep"
    done = analyze(report, "--fail-over", "recoverable=5%", "--format", "json")
    assert done.returncode == 4
    (gate,) = json.loads(done.stdout)["gates"]
    assert gate["passed"] is None


def test_only_and_set_reach_the_analyzers(data_dir):
    report = data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep"
    only = json.loads(analyze(report, "--only", "cache_thrash", "--format", "json").stdout)
    assert list(only["options"]) == ["cache_thrash"]
    refusal(analyze(report, "--only", "cache_trash"), 2)
    refusal(analyze(report, "--set", "cache_thrash.no_such_option=1"), 2)
