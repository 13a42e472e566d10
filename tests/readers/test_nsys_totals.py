# SPDX-License-Identifier: Apache-2.0
"""Totals are those of `nsys stats`, on every real export and on synthetic ones."""

import csv
import io
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from graphtrace.ingest.load import load
from graphtrace.model.arrays import as_numpy, codes_of
from graphtrace.testing.nsys_presets import planted_vit
from graphtrace.testing.nsys_schema import DIALECTS

SECONDS = 60
WITH_KERNELS = (
    "graph_granularity_rtx3060_2025.5",
    "h100_2gpu_2026.2",
    "jacobi",
    "power_iteration_2025.3",
    "two_kernels_2025",
)
Totals = dict[str, tuple[int, int]]
"""Launches and ns by kernel name."""


def theirs(path: Path, report: str = "gpukernsum") -> list[dict[str, str]]:
    command = ["nsys", "stats", "--report", report, "--format", "csv", str(path)]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=path.parent
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"nsys stats ran longer than {SECONDS} s")
    if ran.returncode:
        pytest.skip(f"this nsys cannot read the file: {ran.stderr.strip()[-200:]}")
    lines = ran.stdout.splitlines()
    head = next((n for n, line in enumerate(lines) if line.startswith("Time (%)")), len(lines))
    return list(csv.DictReader(io.StringIO("\n".join(lines[head:]))))


def ours(path: Path, *kinds: str) -> Totals:
    activities = load(path).activities
    words, names = codes_of(activities.column("kind"))[1], codes_of(activities.column("name"))
    kind = codes_of(activities.column("kind"))[0]
    spent = as_numpy(activities.column("end_ns")) - as_numpy(activities.column("begin_ns"))
    rows = np.flatnonzero(np.isin(kind, [words.index(k) for k in kinds if k in words]))
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for code, ns in zip(names[0][rows].tolist(), spent[rows].tolist(), strict=True):
        count[names[1][code]] += 1
        total[names[1][code]] += ns
    return {name: (count[name], total[name]) for name in count}


def by_name(rows: list[dict[str, str]], name: str, count: str) -> Totals:
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        before = found.get(row[name], (0, 0))
        spent = int(row["Total Time (ns)"])
        found[row[name]] = (before[0] + int(row[count]), before[1] + spent)
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Where a file is copied to: nsys may write beside what it reads."""
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not installed")
    return tmp_path / "trace.sqlite"


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_real_kernels_add_up_as_in_nsys_stats(data_dir: Path, name: str, copy: Path) -> None:
    shutil.copy(data_dir / "nsys" / f"{name}.sqlite", copy)
    assert ours(copy, "kernel", "collective") == by_name(theirs(copy), "Name", "Instances")


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_synthetic_kernels_and_copies_add_up_as_in_nsys_stats(dialect: str, copy: Path) -> None:
    planted_vit(copy, dialect=dialect, replays=20)  # type: ignore[arg-type]  # one of its names
    assert ours(copy, "kernel", "collective") == by_name(theirs(copy), "Name", "Instances")
    copies = by_name(theirs(copy, "gpumemtimesum"), "Operation", "Count")
    mine = ours(copy, "memcpy", "memset")
    assert sorted(mine.values()) == sorted(copies.values())
