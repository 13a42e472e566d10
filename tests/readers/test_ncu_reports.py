# SPDX-License-Identifier: Apache-2.0
"""Real reports: every value, its unit and its mode; and every way to damage them."""

import csv
import io
import random
import subprocess
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

import ncu_report
import pytest

from graphtrace.ingest.ncu_frames import walk
from graphtrace.ingest.ncu_rep import read
from graphtrace.ingest.source import Source
from graphtrace.model.errors import InputCorrupt, InputError, InputTruncated, InputUnsupported

SAMPLES = Path("/usr/share/doc/nsight-compute/examples/uncoalescedGlobalAccesses")

# Results, metrics of each, cache, clock, replay mode, version. Counts are those of INDEX.md.
FILES: dict[str, tuple[int, int, str, str, str, str]] = {
    "cutlass_nvtx_a100_2024.1": (2, 1220, "flushed", "base", "kernel", "2024.1.1.0"),
    "flashattn_full_rtx4060ti_2025.4": (1, 1485, "flushed", "unknown", "kernel", "2025.4.1.0"),
    "flashattn_rtx4060ti_2025.4": (1, 495, "flushed", "unknown", "kernel", "2025.4.1.0"),
    "mojo_gtx1660ti_2022.4": (4, 270, "flushed", "base", "kernel", "2022.4.0.0"),
    "ncar_v100_2022.2": (5, 676, "flushed", "base", "kernel", "2022.2.0.0"),
    "scan_rtx3070_2020.3": (1, 675, "unknown", "unknown", "unknown", "2020.3.1.0"),
    "selfjoin_a100_2022.4": (4, 798, "flushed", "base", "kernel", "2022.4.0.0"),
}
OLD = "mojo_gtx1660ti_2022.4", "ncar_v100_2022.2", "scan_rtx3070_2020.3", "selfjoin_a100_2022.4"

# Unit of `ncu --print-units base` of 2022.3, and what ncu-report calls it.
SPELLING = {
    "byte/second": "byte/s",
    "cycle/second": "hz",
    "nsecond": "ns",
    "sector/second": "sector/s",
}
# The metric database of ncu-report has become more exact, or dropped a unit, for whole families.
RENAMED = {
    ("", "branches"),
    ("", "pass"),
    ("%", "branches"),
    ("byte", ""),
    ("byte", "sector"),
    ("inst", ""),
    ("inst/cycle", "cycle"),
    ("inst/cycle", "inst"),
    ("request", ""),
    ("thread", "inst"),
    ("warp", "branches"),
}
NO_METRIC = {
    "ID": "ncu_id",
    "Process ID": "process_id",
    "Process Name": None,
    "Host Name": None,
    "Kernel Name": None,
    "Kernel Time": None,
    "Context": "context",
    "Stream": "stream",
}


def report(data_dir: Path, name: str) -> Path:
    return data_dir / "ncu" / f"{name}.ncu-rep"


def sample(name: str) -> Path:
    path = SAMPLES / f"{name}.ncu-rep"
    if not path.is_file():
        pytest.skip("Nsight Compute's samples are not installed")
    return path


@cache
def loaded(path: Path) -> Source:
    return read(path)


def metrics(path: Path) -> list[dict[str, dict[str, Any]]]:
    """Rows by result and name."""
    source = loaded(path)
    rows: list[dict[str, dict[str, Any]]] = [{} for _ in range(source.tables.rows("ncu_results"))]
    for row in source.tables.get("metrics").to_pylist():
        rows[row["result"]][row["name"]] = row
    return rows


@pytest.mark.parametrize("name", FILES)
def test_counts_and_modes(data_dir: Path, name: str) -> None:
    results, each, cache_mode, clock, replay, version = FILES[name]
    source = loaded(report(data_dir, name))
    rows = source.tables.get("ncu_results").to_pylist()
    assert len(rows) == results
    assert [len(m) for m in metrics(report(data_dir, name))] == [each] * results
    assert {r["cache"] for r in rows} == {cache_mode}
    assert {r["clock"] for r in rows} == {clock}
    assert {r["replay_mode"] for r in rows} == {replay}
    assert {r["workload"] for r in rows} == {"kernel"}
    assert all(r["passes"] >= 8 and r["duration_ns"] > 0 and r["grid_x"] > 0 for r in rows)
    assert source.info.tool_version == version
    assert source.warnings == ()
    assert source.nothing is None


def test_devices(data_dir: Path) -> None:
    devices = {
        name: loaded(report(data_dir, name)).tables.get("devices").to_pylist() for name in FILES
    }
    assert all(len(rows) == 1 for rows in devices.values())
    a100 = devices["cutlass_nvtx_a100_2024.1"][0]
    assert a100["name"] == "NVIDIA A100 80GB PCIe"
    assert (a100["sm_count"], a100["l2_bytes"], a100["max_warps_per_sm"]) == (108, 41943040, 64)
    assert (a100["cc_major"], a100["cc_minor"]) == (8, 0)
    assert a100["dram_bytes_per_s"] == pytest.approx(1935e9, rel=1e-3)
    assert devices["selfjoin_a100_2022.4"][0]["ordinal"] == 1
    ada = devices["flashattn_rtx4060ti_2025.4"][0]
    assert ada["dram_bytes_per_s"] == pytest.approx(288e9, rel=1e-3)
    assert ada["pci_bus_id"] == "00000000:01:00.0"


def printed(ncu: str, path: Path) -> list[list[str]]:
    command = [ncu, "--import", str(path), "--page", "raw", "--csv", "--print-units", "base"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return list(csv.reader(io.StringIO(done.stdout)))


def agrees(cell: str, unit: str, ours: dict[str, Any]) -> str | None:
    """What differs between a printed value and ours."""
    spelled = SPELLING.get(unit, unit)
    if spelled != ours["unit"] and (unit, ours["unit"]) not in RENAMED:
        return f"unit {unit} became {ours['unit']}"
    if ours["text"] is not None:
        return None if ours["text"] == cell else f"text {ours['text']!r}"
    if ours["value"] is None:
        return None if cell in ("", "no data") else "no value"
    try:
        shown = Decimal(cell.replace(",", ""))
    except InvalidOperation:
        return "not printed as a number"
    exact = Decimal(ours["integer"] if ours["integer"] is not None else ours["value"])
    rounded = exact.quantize(Decimal(1).scaleb(int(shown.as_tuple().exponent)))
    return None if rounded == shown else f"value {exact}"


def check_against_ncu(ncu: str, path: Path) -> int:
    names, units, *rows = printed(ncu, path)
    ours = metrics(path)
    results = loaded(path).tables.get("ncu_results").to_pylist()
    assert len(rows) == len(ours)
    compared = 0
    for row, by_name, result in zip(rows, ours, results, strict=True):
        for name, unit, cell in zip(names, units, row, strict=True):
            if name in NO_METRIC:
                column = NO_METRIC[name]
                assert column is None or str(result[column]) == cell, name
                continue
            differs = agrees(cell.split(" (")[0], unit, by_name[name])
            assert differs is None, f"{name}: printed {cell} {unit}, {differs}"
            compared += 1
        left = {n for n in by_name if n not in names}
        # Lists of other metrics, which the raw page has no column for.
        assert all(n.startswith(("breakdown:", "group:")) for n in left), left
    return compared


@pytest.mark.parametrize("name", OLD)
def test_every_value_is_the_one_ncu_prints(data_dir: Path, ncu: str, name: str) -> None:
    results, each, *_ = FILES[name]
    assert check_against_ncu(ncu, report(data_dir, name)) >= results * (each - 10)


@pytest.mark.parametrize("name", ["addConstDouble", "addConstDouble3"])
def test_every_value_of_the_samples(ncu: str, name: str) -> None:
    assert check_against_ncu(ncu, sample(name)) > 750


@pytest.mark.parametrize("name", [n for n in FILES if n not in OLD])
def test_every_value_is_the_one_ncu_report_gives(data_dir: Path, name: str) -> None:
    path = report(data_dir, name)
    context = ncu_report.load_report(str(path))
    section = context.range_by_idx(0)
    ours = metrics(path)
    assert section.num_actions() == len(ours)
    for index, by_name in enumerate(ours):
        action = section.action_by_idx(index)
        assert set(action.metric_names()) == set(by_name)
        for metric_name, row in by_name.items():
            metric = action.metric_by_name(metric_name)
            value = metric.value() if metric.has_value() else None
            got = row["text"] if row["integer"] is None else row["integer"]
            assert value == (row["value"] if got is None else got), metric_name
            assert row["unit"] == metric.unit(), metric_name
            instances = [metric.value(i) for i in range(metric.num_instances())]
            if instances and not isinstance(instances[0], str):
                assert row["instances"] == instances, metric_name
            else:
                assert row["instances"] is None


def test_known_figures_of_the_sample() -> None:
    path = sample("addConstDouble3")
    (by_name,) = metrics(path)
    achieved = by_name["sm__warps_active.avg.pct_of_peak_sustained_active"]
    assert achieved["value"] == pytest.approx(77.069, abs=5e-4)
    assert by_name["lts__t_sector_hit_rate.pct"]["value"] == pytest.approx(66.749, abs=5e-4)
    loads = "pipe_lsu_mem_global_op_ld.sum"
    sectors = by_name[f"l1tex__t_sectors_{loads}"]["value"]
    assert sectors / by_name[f"l1tex__t_requests_{loads}"]["value"] == 24
    (row,) = loaded(path).tables.get("ncu_results").to_pylist()
    assert (row["cache"], row["clock"], row["replay_mode"]) == ("unknown",) * 3
    assert row["duration_ns"] == 294336


def test_a_metric_without_a_value_is_null_not_zero(data_dir: Path) -> None:
    by_name = metrics(report(data_dir, "cutlass_nvtx_a100_2024.1"))[0]
    sampled = by_name["pmsampling:l1tex__t_sector_hit_rate.pct"]
    assert sampled["value"] is None
    assert len(sampled["instances"]) == 14


@pytest.mark.parametrize("name", FILES)
def test_nothing_of_host_command_or_environment_gets_out(data_dir: Path, name: str) -> None:
    source = loaded(report(data_dir, name))
    seen = repr(source.info) + repr(walk(report(data_dir, name)))
    for table in source.tables.tables.values():
        seen += str(table.to_pydict())
    for secret in ("GT_CANARY", "--set", "ncu ", "DESKTOP-MLNTJLR", "casper36", "Linux"):
        assert secret not in seen


def test_lfs_pointer_is_refused(data_dir: Path) -> None:
    with pytest.raises(InputUnsupported):
        read(data_dir / "ncu" / "lfs_pointer.ncu-rep")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.9999])
def test_truncation_is_seen(data_dir: Path, tmp_path: Path, name: str, share: float) -> None:
    content = report(data_dir, name).read_bytes()
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(content[: int(len(content) * share)])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputTruncated) as caught:
        read(cut)
    assert caught.value.exit_code == 3
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_end_in_a_table_or_an_error(
    data_dir: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of 40 single flips, those that break the structure are refused, without a word of others."""
    content = report(data_dir, name).read_bytes()
    chance = random.Random(name)
    place = tmp_path / "flipped.ncu-rep"
    for _ in range(40):
        flipped = bytearray(content)
        flipped[chance.randrange(4, len(content))] ^= 1 << chance.randrange(8)
        place.write_bytes(flipped)
        try:
            source = read(place)
        except InputError as error:
            assert error.exit_code == 3
        else:
            assert source.tables.rows("ncu_results") == FILES[name][0]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", FILES)
def test_flipped_sizes_are_refused(data_dir: Path, tmp_path: Path, name: str) -> None:
    """Every bit of the size words of the file's header and first block."""
    content = report(data_dir, name).read_bytes()
    place = tmp_path / "flipped.ncu-rep"
    for bit in range(32):
        for at in (4, 10):
            flipped = bytearray(content)
            flipped[at + bit // 8] ^= 1 << bit % 8
            place.write_bytes(flipped)
            with pytest.raises((InputCorrupt, InputTruncated)):
                read(place)
