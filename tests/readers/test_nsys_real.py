# SPDX-License-Identifier: Apache-2.0
"""The nsys reader on other people's exports: the figures that are known of them hold."""

import subprocess
import sys
from pathlib import Path

import pytest
from nsys_samples import kinds, sql

from graphtrace.ingest.nsys_sqlite import read
from graphtrace.model.trace import Trace

CANARY = "GT_CANARY"
FILES = {
    "graph_granularity_rtx3060_2025.5": {"kernel": 3, "memcpy": 1, "opaque_replay": 2},
    "h100_2gpu_2026.2": {"kernel": 3442, "memcpy": 904, "memset": 22},
    "jacobi": {"kernel": 1001, "memcpy": 3001, "memset": 1002},
    "power_iteration_2025.3": {"kernel": 3689, "memcpy": 89},
    "two_kernels_2025": {"kernel": 2, "memcpy": 1},
}
WITHOUT_WORK = ("dynamicvit", "gtls", "weatherbench2")


def export(data_dir: Path, name: str) -> Path:
    return data_dir / "nsys" / f"{name}.sqlite"


@pytest.mark.parametrize("name", FILES)
def test_activities_are_as_many_as_known(data_dir: Path, name: str) -> None:
    source = read(export(data_dir, name))
    assert kinds(source) == FILES[name]
    assert source.nothing is None
    assert source.tables.rows("quarantine") == 0


@pytest.mark.parametrize("name", FILES)
def test_columns_equal_those_of_sql(data_dir: Path, name: str) -> None:
    path = export(data_dir, name)
    rows = sql(
        path,
        "SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, k.gridX, k.blockZ, "
        "k.registersPerThread, k.staticSharedMemory + k.dynamicSharedMemory, s.value, "
        "(k.globalPid >> 24) & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "LEFT JOIN StringIds s ON s.id = k.demangledName",
    )
    tables = read(path).tables
    pids = {r["process"]: r["pid"] for r in tables.get("processes").to_pylist()}
    ordinals = {r["device"]: r["ordinal"] for r in tables.get("devices").to_pylist()}
    ours = [
        (
            row["begin_ns"],
            row["end_ns"],
            ordinals[row["device"]],
            row["stream"],
            row["correlation"],
            row["grid_x"],
            row["block_z"],
            row["registers"],
            row["shared_bytes"],
            row["name"],
            pids[row["process"]],
        )
        for row in tables.get("activities").to_pylist()
        if row["kind"] == "kernel"
    ]
    assert sorted(ours) == sorted(rows)


def test_opaque_replays_are_busy_and_launched(data_dir: Path) -> None:
    source = read(export(data_dir, "graph_granularity_rtx3060_2025.5"))
    replays = source.tables.get("replays").to_pylist()
    assert [r["end_ns"] - r["begin_ns"] for r in replays] == [1728, 1376]
    assert [r["correlation"] for r in replays] == [141, 142]
    assert [r["launch_begin_ns"] for r in replays] == [339395196, 339410087]
    assert source.tables.get("graphs").column("native_id").to_pylist() == [1]
    (one,) = source.tables.get("execs").to_pylist()
    assert (one["exec"], one["graph"], one["process"], one["native_id"]) == (0, 0, 0, 2)
    assert "--cuda-graph-trace=node" in source.warnings[0]


def test_two_processes_on_two_devices(data_dir: Path) -> None:
    source = read(export(data_dir, "h100_2gpu_2026.2"))
    assert source.tables.rows("processes") == 2
    devices = source.tables.get("devices").to_pylist()
    assert [d["ordinal"] for d in devices] == [0, 1]
    assert all(d["sm_count"] is None and d["l2_bytes"] is None for d in devices)
    assert source.tables.rows("ranges") == 16782
    assert any("TARGET_INFO_GPU" in sentence for sentence in source.warnings)
    per_device = source.tables.get("activities").column("device").to_pylist()
    assert per_device.count(0) == per_device.count(1)


def test_device_facts(data_dir: Path) -> None:
    (device,) = read(export(data_dir, "power_iteration_2025.3")).tables.get("devices").to_pylist()
    assert (device["name"], device["sm_count"], device["l2_bytes"]) == ("Tesla T4", 40, 4 << 20)
    assert (device["dram_bytes_per_s"], device["cc_major"]) == (320_064_000_000, 7)


def test_registered_strings_and_domains(data_dir: Path) -> None:
    ranges = read(export(data_dir, "power_iteration_2025.3")).tables.get("ranges").to_pylist()
    assert len(ranges) == 786
    assert {r["domain"] for r in ranges} == {"", "CCCL"}
    assert all(r["text"] and r["kind"] == "push_pop" for r in ranges)


def test_plain_strings(data_dir: Path) -> None:
    ranges = read(export(data_dir, "jacobi")).tables.get("ranges").to_pylist()
    assert [r["text"] for r in ranges] == ["Init boundaries", "Jacobi Solve"]


@pytest.mark.parametrize("name", WITHOUT_WORK)
def test_whole_but_without_work(data_dir: Path, name: str) -> None:
    source = read(export(data_dir, name))
    assert source.nothing is not None
    assert source.nothing.exit_code == 4
    assert "CUPTI_ACTIVITY_KIND_KERNEL" in source.nothing.why
    assert "nsys profile" in source.nothing.do
    trace = Trace((source.info,), source.tables, nothing=(source.nothing,))
    with pytest.raises(type(source.nothing)):
        trace.require_work()


def test_nothing_of_the_environment_is_read(data_dir: Path) -> None:
    for path in sorted((data_dir / "nsys").glob("*.sqlite")):
        source = read(path)
        said = [str(source.info), *source.warnings, str(source.nothing)]
        said += [str(table.to_pylist()) for table in source.tables.tables.values()]
        everything = "\n".join(said)
        assert CANARY not in everything
        hosts = sql(path, "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name LIKE '%ost%name%'")
        for (host,) in hosts:
            assert not host or str(host) not in everything


def test_pandas_stays_unloaded(data_dir: Path) -> None:
    code = (
        "import sys, pathlib; from graphtrace.ingest.nsys_sqlite import read; "
        "read(pathlib.Path(sys.argv[1])); sys.exit('pandas' in sys.modules)"
    )
    path = export(data_dir, "power_iteration_2025.3")
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=120)
