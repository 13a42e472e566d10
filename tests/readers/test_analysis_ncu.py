# SPDX-License-Identifier: Apache-2.0
"""The engine and both analyzers on real reports: what an expert would say, and nothing else."""

import json
import math
from pathlib import Path

import pytest

from graphtrace.analysis.engine import analyze
from graphtrace.ingest.load import load

SAMPLES = Path("/usr/share/doc/nsight-compute/examples/uncoalescedGlobalAccesses")

# (kernel, kind, results) of every finding, by report: read and agreed with one by one.
EXPECTED = {
    "cutlass_nvtx_a100_2024.1": [
        ("ReferenceGemm_kernel", "uncoalesced", [1]),
        ("void cutlass::Kernel<", "small_grid", [0]),
    ],
    "flashattn_full_rtx4060ti_2025.4": [],
    "flashattn_rtx4060ti_2025.4": [],
    "mojo_gtx1660ti_2022.4": [],
    "ncar_v100_2022.2": [
        ("set_halo_values_x_419_gpu", "low_occupancy", [1]),
        ("set_halo_values_x_396_gpu", "low_occupancy", [0]),
        ("set_halo_values_x_419_gpu", "uncoalesced", [1]),
        ("set_halo_values_x_396_gpu", "uncoalesced", [0]),
    ],
    "scan_rtx3070_2020.3": [],
    "selfjoin_a100_2022.4": [
        ("nodeByPoint5", "tail", [0, 1, 2]),
        ("nodeByPoint5", "low_occupancy", [3]),
    ],
}


@pytest.fixture(scope="session")
def samples():
    if not SAMPLES.is_dir():
        pytest.skip("the samples of Nsight Compute are not installed")
    return SAMPLES


def summary(result):
    return [
        (f.kernel, f.kind, [int(name.split("#")[1]) for name in f.results]) for f in result.findings
    ]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_findings_of_real_reports(data_dir, name):
    result = analyze(load(data_dir / "ncu" / f"{name}.ncu-rep"))
    found, expected = summary(result), EXPECTED[name]
    assert len(found) == len(expected)
    for (kernel, kind, results), (begins, wanted, at) in zip(found, expected, strict=True):
        assert kernel.startswith(begins)
        assert (kind, results) == (wanted, at)
    assert result.verdict == (
        "findings" if expected else "cannot_tell" if result.abstentions else "clean"
    )
    assert (result.budget, result.coverage, result.replays) == (None, None, None)
    for finding in result.findings:
        assert finding.recoverable_ns is finding.claimed_ns is None
        assert finding.share_of == "kernel"
        assert 0.0 < finding.share <= 1.0
        assert finding.prove.startswith("ncu --kernel-name ")
    for said in result.abstentions:
        assert said.rerun.startswith("ncu ")
    assert "GT_CANARY" not in repr(result)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_kernel_rows_are_what_the_report_holds(data_dir, name):
    ncu_report = pytest.importorskip("ncu_report")
    path = data_dir / "ncu" / f"{name}.ncu-rep"
    result = analyze(load(path))
    context = ncu_report.load_report(str(path))
    actions = [
        context.range_by_idx(i).action_by_idx(j)
        for i in range(context.num_ranges())
        for j in range(context.range_by_idx(i).num_actions())
    ]
    assert len(result.kernels) == len(actions)
    for row in result.kernels:
        action = actions[int(row.result.split("#")[1])]
        for metric, held in row.metrics.items():
            if metric.startswith("graphtrace__"):
                continue
            theirs = action.metric_by_name(metric)
            assert held.unit == theirs.unit(), metric
            if held.value is not None:
                assert held.value == theirs.as_double(), metric
        assert "sm__warps_active.avg.pct_of_peak_sustained_active" in row.metrics
        assert row.metrics["gpu__time_duration.sum"].value == pytest.approx(row.total_ns, abs=1)
        assert all(value > 0 and math.isfinite(value) for value in row.stalls.values())


def test_the_sample_that_is_known(samples):
    """Records of three doubles, and the same as three arrays: what NVIDIA teaches with."""
    result = analyze(load(samples / "addConstDouble3.ncu-rep"))
    metrics = result.kernels[0].metrics
    shown = {name: round(metric.value, 3) for name, metric in metrics.items() if metric.unit == "%"}
    assert shown["sm__warps_active.avg.pct_of_peak_sustained_active"] == 77.069
    assert shown["lts__t_sector_hit_rate.pct"] == 66.749
    assert metrics["graphtrace__sectors_per_request_ld"].value == 24.0
    assert [f.kind for f in result.findings] == ["uncoalesced"]
    finding = result.findings[0]
    assert "24 sectors per request where 8 would do" in finding.why
    assert result.abstentions[0].analyzer == "cache_thrash"
    assert "--cache-control none" in result.abstentions[0].rerun
    # The mended kernel shows what came back: the bound has to hold.
    mended = analyze(load(samples / "addConstDouble.ncu-rep"))
    assert mended.findings == ()
    gained = 1.0 - mended.kernels[0].total_ns / result.kernels[0].total_ns
    assert gained == pytest.approx(0.188, abs=1e-3)
    assert gained <= finding.share <= gained + 0.1


def test_several_reports_are_told_apart(data_dir):
    folder = data_dir / "ncu"
    names = ("cutlass_nvtx_a100_2024.1", "selfjoin_a100_2022.4")
    result = analyze(load(*(folder / f"{name}.ncu-rep" for name in names)))
    assert sorted(kind for _, kind, _ in summary(result)) == sorted(
        kind for name in names for _, kind, _ in EXPECTED[name]
    )
    tail = next(f for f in result.findings if f.kind == "tail")
    assert tail.results[0] == "selfjoin_a100_2022.4.ncu-rep#0"
    alone = analyze(load(folder / "selfjoin_a100_2022.4.ncu-rep"))
    assert tail.id == next(f.id for f in alone.findings if f.kind == "tail")


def test_options_reach_the_analyzers(data_dir):
    report = load(data_dir / "ncu" / "selfjoin_a100_2022.4.ncu-rep")
    strict = analyze(report, options={"occupancy_launch": {"tail_idle": "0.4"}})
    assert "tail" not in {f.kind for f in strict.findings}
    assert strict.options["occupancy_launch"]["tail_idle"] == 0.4
    loose = analyze(report, only=["cache_thrash"], options={"cache_thrash": {"excess": 0.1}})
    assert {f.kind for f in loose.findings} == {"uncoalesced"}
    assert set(loose.options) == {"cache_thrash"}


@pytest.mark.parametrize(
    ("name", "small"), [("power_iteration_2025.3", 1740), ("jacobi", 1), ("two_kernels_2025", 2)]
)
def test_small_grids_of_real_timelines_that_cost_nothing(data_dir, name, small):
    """Grids of fewer blocks than SMs that are over in 1 to 3 us, or run once."""
    result, whole = _run(data_dir / "nsys" / f"{name}.sqlite")
    from graphtrace.model.arrays import as_numpy

    grid = [as_numpy(whole.table("activities").column(f"grid_{axis}")) for axis in "xyz"]
    blocks = grid[0] * grid[1] * grid[2]
    sms = result.devices[0].sm_count
    assert int(((blocks > 0) & (blocks < sms)).sum()) == small
    assert result.findings == ()
    assert {a.analyzer for a in result.abstentions} == {"cache_thrash", "occupancy_launch"}


def _run(path):
    from graphtrace.analysis.engine import run

    return run(load(path))


def test_a_planted_small_grid_in_a_replayed_graph(tmp_path):
    from graphtrace.testing.nsys_presets import planted_vit

    planted = planted_vit(tmp_path / "vit.sqlite", replays=40)
    result, _ = _run(planted.path)
    assert [(f.kind, f.stage) for f in result.findings] == [
        ("small_grid", planted.small_grid_stage)
    ]
    finding = result.findings[0]
    assert finding.replays == planted.replays
    assert 0 < finding.recoverable_ns <= finding.claimed_ns
    at = planted.stages.index(planted.small_grid_stage)
    assert finding.recoverable_ns <= planted.busy_ns[at]
    assert finding.share == pytest.approx(finding.recoverable_ns / result.budget.wall_ns)
    gate = analyze(load(planted.path), fail_over={"recoverable": 0.05}).gates[0]
    assert gate.passed is False
    json.dumps(result.timing)
