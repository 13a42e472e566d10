# SPDX-License-Identifier: Apache-2.0
"""The builder of synthetic exports: schemas of real ones, planted facts, one seed one file."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import graphtrace.testing
from graphtrace.ingest.nsys_sqlite import read
from graphtrace.model.errors import OutputError
from graphtrace.testing.nsys import GPU_NAME, Kernel, NsysExport, Stage
from graphtrace.testing.nsys_plan import schedule
from graphtrace.testing.nsys_presets import planted_vit, vit_stages
from graphtrace.testing.nsys_schema import DIALECTS, DialectName

SAME = {
    "jacobi": (
        "2022",
        "CUPTI_ACTIVITY_KIND_KERNEL CUPTI_ACTIVITY_KIND_MEMCPY CUPTI_ACTIVITY_KIND_MEMSET "
        "CUPTI_ACTIVITY_KIND_RUNTIME NVTX_EVENTS StringIds TARGET_INFO_GPU PROCESSES "
        "ANALYSIS_DETAILS TARGET_INFO_SESSION_START_TIME",
    ),
    "power_iteration_2025.3": (
        "2025",
        "CUPTI_ACTIVITY_KIND_KERNEL CUPTI_ACTIVITY_KIND_MEMCPY CUPTI_ACTIVITY_KIND_RUNTIME "
        "NVTX_EVENTS StringIds TARGET_INFO_GPU TARGET_INFO_CUDA_DEVICE PROCESSES ANALYSIS_DETAILS "
        "META_DATA_EXPORT TARGET_INFO_SESSION_START_TIME",
    ),
    "graph_granularity_rtx3060_2025.5": (
        "2025",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE CUDA_GRAPH_EVENTS CUPTI_ACTIVITY_KIND_MEMCPY",
    ),
    "weatherbench2": ("2025", "CUPTI_ACTIVITY_KIND_MEMSET"),
    "h100_2gpu_2026.2": (
        "2026",
        "CUPTI_ACTIVITY_KIND_KERNEL CUPTI_ACTIVITY_KIND_MEMCPY CUPTI_ACTIVITY_KIND_MEMSET "
        "CUPTI_ACTIVITY_KIND_RUNTIME NVTX_EVENTS StringIds PROCESSES ANALYSIS_DETAILS "
        "META_DATA_EXPORT TARGET_INFO_SESSION_START_TIME",
    ),
    "two_kernels_2025": ("2026", "TARGET_INFO_GPU TARGET_INFO_CUDA_DEVICE"),
}


def declared(connection: sqlite3.Connection, table: str) -> list[tuple[str, str, int, int]]:
    rows = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [(name, kind, needed, key) for _, name, kind, needed, _, key in rows]


def ours(dialect: str, table: str) -> list[tuple[str, str, int, int]]:
    columns = next(d for name, d in DIALECTS.items() if name == dialect).tables[table]
    with closing(sqlite3.connect(":memory:")) as connection:
        body = ", ".join(f'"{name}" {kind}' for name, kind in columns)
        connection.execute(f'CREATE TABLE "{table}" ({body})')
        return declared(connection, table)


@pytest.mark.parametrize("name", SAME)
def test_schemas_are_those_of_real_exports(data_dir: Path, name: str) -> None:
    dialect, tables = SAME[name]
    uri = f"file:{data_dir}/nsys/{name}.sqlite?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        for table in tables.split():
            assert ours(dialect, table) == declared(connection, table), table


def test_the_oldest_schema_is_that_of_the_installed_nsys(tmp_path: Path, nsys: str) -> None:
    report, out = tmp_path / "r.nsys-rep", tmp_path / "r.sqlite"
    profile = [nsys, "profile", "-t", "none", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
    export = [nsys, "export", "--type", "sqlite", "--lazy=false", "-o", str(out), str(report)]
    try:
        for command in ([*profile, "true"], export):
            subprocess.run(command, timeout=90, check=True, capture_output=True, cwd=tmp_path)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        pytest.skip("nsys does not record here")
    with closing(sqlite3.connect(out)) as connection:
        if not declared(connection, "EXPORT_META_DATA"):
            pytest.skip("this nsys is newer than 2022")
        for table in DIALECTS["2022"].tables:
            assert ours("2022", table) == declared(connection, table), table


def test_what_an_installed_nsys_exports_without_work_says_so(tmp_path: Path, nsys: str) -> None:
    report, out = tmp_path / "r.nsys-rep", tmp_path / "r.sqlite"
    profile = [nsys, "profile", "-t", "none", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
    export = [nsys, "export", "--type", "sqlite", "--lazy=false", "-o", str(out), str(report)]
    try:
        for command in ([*profile, "true"], export):
            subprocess.run(command, timeout=90, check=True, capture_output=True, cwd=tmp_path)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        pytest.skip("nsys does not record here")
    source = read(out)
    assert source.nothing is not None
    assert source.info.tool_version in source.nothing.why
    assert not source.info.synthetic


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_planted_is_there(tmp_path: Path, dialect: DialectName) -> None:
    planted = planted_vit(tmp_path / "v.sqlite", dialect=dialect, replays=20)
    source = read(planted.path)
    tables = source.tables
    assert source.info.synthetic
    assert source.nothing is None
    assert tables.rows("quarantine") == 0
    assert tables.get("devices").column("name").to_pylist() == [GPU_NAME]
    assert tables.rows("replays") == planted.replays
    activities = tables.get("activities").to_pylist()
    inside = [a for a in activities if a["replay"] is not None]
    assert len(inside) == planted.replays * planted.nodes
    # Node numbers are in capture order, so that a stage's are a run of them.
    first = 1
    for stage, busy in zip(vit_stages(), planted.busy_ns, strict=True):
        numbers = range(first, first + len(stage.kernels))
        rows = [a for a in inside if a["node_native_id"] & 0xFFFFFFFF in numbers]
        assert sum(a["end_ns"] - a["begin_ns"] for a in rows) == busy
        blocks = [a["grid_x"] * a["grid_y"] * a["grid_z"] for a in rows if a["grid_x"]]
        assert (min(blocks) < 132) == (stage.path == planted.small_grid_stage)
        if stage.path == planted.gap_stage:
            start = [a for a in rows if a["node_native_id"] & 0xFFFFFFFF == first]
            for row in start:
                ended = [a["end_ns"] for a in activities if a["end_ns"] <= row["begin_ns"]]
                assert row["begin_ns"] - max(ended) == planted.gap_ns + 800
        first += len(stage.kernels)


def test_launches_come_later_than_replays_end(tmp_path: Path) -> None:
    planted = planted_vit(tmp_path / "v.sqlite", replays=20)
    replays = read(planted.path).tables.get("replays").to_pylist()
    for one, other in pairwise(replays):
        assert other["launch_begin_ns"] > one["end_ns"]
        assert other["launch_begin_ns"] - one["launch_begin_ns"] == planted.period_ns


def test_one_seed_one_file(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        planted_vit(tmp_path / name, replays=5, seed=seed)
    contents = [(tmp_path / name).read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]


def test_a_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    planted_vit(path, replays=1)
    before = path.read_bytes()
    with pytest.raises(OutputError):
        planted_vit(path, replays=2)
    assert path.read_bytes() == before
    planted_vit(path, replays=2, force=True)
    assert path.read_bytes() != before
    with pytest.raises(OutputError):
        planted_vit(tmp_path / "absent" / "a.sqlite", replays=1)


def test_streams_run_side_by_side_and_join() -> None:
    stages = [
        Stage("a", [Kernel("x", 100, gap_ns=10), Kernel("y", 500, stream=1, gap_ns=20)]),
        Stage("b", [Kernel("z", 50, gap_ns=0)], gap_ns=7),
    ]
    timing = schedule(stages, 2, 0.0, np.random.default_rng(0))
    assert timing.begin.tolist() == [[0, 10, 517]] * 2
    assert timing.end.tolist() == [[100, 510, 567]] * 2
    assert timing.wall.tolist() == [567, 567]


def test_replays_wait_for_one_another(tmp_path: Path) -> None:
    export = NsysExport()
    export.process(9).graph([Stage("a", [Kernel("x", 50_000)])]).replays(6, 10_000)
    export.write(tmp_path / "s.sqlite")
    replays = read(tmp_path / "s.sqlite").tables.get("replays").to_pylist()
    for one, other in pairwise(replays):
        assert other["begin_ns"] - one["end_ns"] == 500


def test_the_command_writes_to_the_file_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "graphtrace.testing.nsys", "planted_vit"]
    arguments = [str(tmp_path / "v.sqlite"), "--replays", "3", "--dialect", "2026"]
    done = subprocess.run([*command, *arguments], capture_output=True, check=True, timeout=120)
    assert done.stdout == b""
    assert read(tmp_path / "v.sqlite").tables.rows("replays") == 3
    again = subprocess.run([*command, *arguments], capture_output=True, check=False, timeout=120)
    assert again.returncode == 2
    heads = [line[:7] for line in again.stderr.decode().splitlines()]
    assert heads == ["error: ", "  why: ", "   do: "]


def test_names_are_loaded_when_used() -> None:
    for name in graphtrace.testing.__all__:
        assert getattr(graphtrace.testing, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = graphtrace.testing.nothing
