# SPDX-License-Identifier: Apache-2.0
"""Real traces of the PyTorch profiler, 2021 to 2026, on NVIDIA and AMD GPUs."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kineto_oracle import expected, read_as

from graphtrace.attribute.attribute import attribute
from graphtrace.ingest.kineto import read
from graphtrace.ingest.load import load
from graphtrace.model.errors import NoGpuWork

V100 = "v100_12_replays_x_429_kernels.json.gz"
RTX = "rtx5080_7_replays_x_34_kernels.json"
FULL = "vllm_decode_full_graph_mi300x.json.gz"
PIECES = "vllm_piecewise_25_x_15_mi300x.json.gz"
VIT = "vit_eager_h100.json.gz"
OLD = "resnet50_2021.json.gz"
CPU = "cpu_only.json.gz"
WITH_WORK = (V100, RTX, FULL, PIECES, VIT, OLD)

# Of each file: how many replays have so many kernels, memsets and copies, then the eager ones.
FIGURES: dict[str, tuple[dict[tuple[int, int, int], int], tuple[int, int, int]]] = {
    V100: ({(429, 72, 1): 6, (315, 24, 0): 6}, (5412, 324, 4850)),
    RTX: ({(34, 2, 0): 7}, (83, 4, 16)),
    FULL: ({(421, 0, 0): 1}, (4, 0, 9)),
    PIECES: ({(15, 0, 0): 23, (4, 0, 0): 1, (12, 0, 0): 1}, (52, 0, 10)),
    VIT: ({}, (154, 2, 0)),
    OLD: ({}, (8772, 312, 12)),
}


def sizes(kinds: Counter[str]) -> tuple[int, int, int]:
    return kinds["kernel"], kinds["memset"], kinds["memcpy"]


@pytest.mark.parametrize("name", WITH_WORK)
def test_figures(data_dir: Path, name: str) -> None:
    activities = read(data_dir / "kineto" / name).tables.get("activities")
    by_replay: dict[int | None, Counter[str]] = {}
    for row in activities.select(["replay", "kind"]).to_pylist():
        by_replay.setdefault(row["replay"], Counter())[row["kind"]] += 1
    eager = by_replay.pop(None)
    replays, outside = FIGURES[name]
    assert Counter(map(sizes, by_replay.values())) == Counter(replays)
    assert sizes(eager) == outside


@pytest.mark.parametrize("name", WITH_WORK)
def test_every_row_is_what_json_says(data_dir: Path, name: str) -> None:
    place = data_dir / "kineto" / name
    assert read_as(read(place)) == expected(place.read_bytes())


@pytest.mark.parametrize("name", WITH_WORK)
def test_coverage_and_budget_sum_up(data_dir: Path, name: str) -> None:
    found = attribute(load(data_dir / "kineto" / name))
    assert found.coverage is not None and found.budget is not None
    for split in (found.coverage.activities, found.coverage.time_ns):
        assert split.exact + split.inferred + split.unattributed == split.total
    assert found.budget.busy_ns + found.budget.idle_ns == found.budget.wall_ns
    assert sum(row.busy_ns for row in found.budget.by_stage) == found.budget.busy_ns
    assert sum(found.budget.idle_by_kind.values()) == found.budget.idle_ns


def test_launches_are_found_with_their_calls(data_dir: Path) -> None:
    source = read(data_dir / "kineto" / V100)
    replays = source.tables.get("replays").to_pylist()
    assert all(row["launch_begin_ns"] < row["launch_end_ns"] for row in replays)
    assert all(row["launch_begin_ns"] <= row["begin_ns"] for row in replays)
    threads = {
        row["thread"]
        for row in source.tables.get("api_calls").to_pylist()
        if row["name"] == "cudaGraphLaunch"
    }
    assert len(threads) == 2
    assert any("without ids of the nodes" in warning for warning in source.warnings)
    assert any("whole microseconds" in warning for warning in source.warnings)


def test_processes_ranks_devices(data_dir: Path) -> None:
    def facts(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        tables = read(data_dir / "kineto" / name).tables
        (process,) = tables.get("processes").to_pylist()
        (device,) = tables.get("devices").to_pylist()
        return process, device

    process, device = facts(V100)
    assert (process["pid"], process["rank"]) == (2568503, 1)
    assert (device["ordinal"], device["sm_count"], device["cc_major"]) == (1, 80, 7)
    assert device["name"] is None or "V100" in device["name"]
    process, device = facts(VIT)
    assert process["rank"] is None
    assert device["max_warps_per_sm"] is None or device["max_warps_per_sm"] == 64
    assert (device["sm_count"], device["cc_major"], device["cc_minor"]) == (132, 9, 0)
    assert device["l2_bytes"] is None
    _, device = facts(FULL)
    assert (device["ordinal"], device["sm_count"], device["cc_major"]) == (2, 304, None)
    assert device["name"] is None


def test_steps_are_batches_and_annotations_ranges(data_dir: Path) -> None:
    tables = read(data_dir / "kineto" / RTX).tables
    assert tables.get("batches").column("label").to_pylist() == [
        f"ProfilerStep#{step}" for step in range(3, 10)
    ]
    texts = Counter(tables.get("ranges").column("text").to_pylist())
    assert sum(texts.values()) == 14
    assert "## graph.replay ##" in texts


def test_times_are_on_the_clock_of_the_host(data_dir: Path) -> None:
    begin = read(data_dir / "kineto" / RTX).tables.get("activities").column("begin_ns")
    # The first event of the file: ts 919730532...., base 1767189312000000000.
    assert 1_768_109_042_000_000_000 < begin[0].as_py() < 1_768_109_043_000_000_000


def test_no_gpu_work(data_dir: Path) -> None:
    source = read(data_dir / "kineto" / CPU)
    assert isinstance(source.nothing, NoGpuWork)
    assert "11 annotations" in source.nothing.why
    assert source.tables.get("processes").to_pylist()[0]["rank"] == 34
    with pytest.raises(NoGpuWork):
        load(data_dir / "kineto" / CPU).require_work()


def run(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "graphtrace", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", (*WITH_WORK, CPU))
def test_the_command_says_nothing_of_hosts(data_dir: Path, name: str) -> None:
    place = str(data_dir / "kineto" / name)
    for form in ("text", "json"):
        code, out, err = run("analyze", place, "--format", form)
        assert code == (4 if name == CPU else 0), err
        for secret in ("must-not-appear", "mojif", "pyper", "undefined", "libkineto_activities"):
            assert secret not in out + err
    if name != CPU:
        report = json.loads(out)
        assert report["inputs"][0]["kind"] == "kineto"
        assert report["inputs"][0]["tool"] == "PyTorch profiler"
        assert report["coverage"]["activities"]["total"] == sum(
            sum(size) * count for size, count in FIGURES[name][0].items()
        ) + sum(FIGURES[name][1])
