# SPDX-License-Identifier: Apache-2.0
"""The example under `graphtrace capture`: the same results, and stages by its modules' names."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import graphtrace
from graphtrace.model.arrays import as_numpy

pytest.importorskip("torch")

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "infer.py"
STEPS: Final = 5
PROGRAM: Final = (
    *(sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--sizes", "48,96"),
    *("--slots", "4", "--device", "cpu"),
)


def run(command: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, graphtrace.Trace]:
    """Standard output of the recorded example, and the recording."""
    folder = tmp_path_factory.mktemp("recorded")
    capture = (sys.executable, "-m", "graphtrace", "capture", "-o", "run.gtrace", "--")
    done = run((*capture, *PROGRAM), folder)
    return done.stdout, graphtrace.load(folder / "run.gtrace")


def test_results_are_those_of_a_run_alone(
    recorded: tuple[str, graphtrace.Trace], tmp_path: Path
) -> None:
    assert recorded[0] == run(PROGRAM, tmp_path).stdout


def test_stages_have_the_names_of_the_modules(recorded: tuple[str, graphtrace.Trace]) -> None:
    paths = set(recorded[1].stages.column("path").to_pylist())
    expected = {"stem", "patch_embed", "blocks.0", "blocks.3", "blocks.0/attn", "blocks.3/mlp"}
    assert {*expected, "norm", "pool", "head"} <= paths
    assert max(path.count("/") for path in paths) == 1


def test_batches_carry_their_padding(recorded: tuple[str, graphtrace.Trace]) -> None:
    printed, trace = recorded
    batches = trace.table("batches")
    figures = re.search(r"tokens +(\d+) valid of (\d+) computed", printed)
    assert figures is not None
    assert batches.num_rows == STEPS
    assert as_numpy(batches.column("valid_tokens")).sum() == int(figures[1])
    assert as_numpy(batches.column("captured_tokens")).sum() == int(figures[2])


def test_its_analysis_closes(recorded: tuple[str, graphtrace.Trace]) -> None:
    budget = graphtrace.analyze(recorded[1]).budget
    assert budget is not None
    assert budget.scope == "batch"
    assert budget.busy_ns + budget.idle_ns == budget.wall_ns
    assert sum(row.busy_ns for row in budget.by_stage) == budget.busy_ns
    assert sum(row.idle_ns for row in budget.by_stage) == budget.idle_ns
