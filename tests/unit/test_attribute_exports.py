# SPDX-License-Identifier: Apache-2.0
"""Attribution from exports on disk: synthetic ones of every dialect, and real ones."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from graphtrace.attribute.attribute import Attributed, attribute
from graphtrace.ingest.load import load
from graphtrace.testing.nsys import Copy, Kernel, NsysExport, Set, Stage
from graphtrace.testing.nsys_presets import Planted, planted_vit
from graphtrace.testing.nsys_schema import DIALECTS

DIALECT_NAMES = sorted(DIALECTS)


def in_another_order(path: Path, seed: int) -> Path:
    """A copy of an export whose tables have their rows in another order."""
    target = path.with_name(f"shuffled-{seed}-{path.name}")
    shutil.copyfile(path, target)
    target.chmod(0o600)
    random = np.random.default_rng(seed)
    with sqlite3.connect(target) as db:
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            rows = db.execute(f'SELECT * FROM "{name}"').fetchall()
            if not rows:
                continue
            db.execute(f'DELETE FROM "{name}"')
            marks = ",".join("?" * len(rows[0]))
            order = random.permutation(len(rows)).tolist()
            db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [rows[i] for i in order])
    db.close()
    return target


def same(left: Attributed, right: Attributed) -> None:
    assert left.coverage == right.coverage
    assert left.replays == right.replays
    assert left.budget == right.budget
    assert left.trace.stages.to_pylist() == right.trace.stages.to_pylist()
    assert left.trace.stage_times.to_pylist() == right.trace.stage_times.to_pylist()


def sums_close(found: Attributed) -> None:
    budget, coverage = found.budget, found.coverage
    assert budget is not None
    assert coverage is not None
    for part in (budget, *budget.by_device):
        assert part.busy_ns + part.idle_ns == part.wall_ns
        assert sum(s.busy_ns for s in part.by_stage) == part.busy_ns
        assert sum(s.idle_ns for s in part.by_stage) == part.idle_ns
        assert sum(part.idle_by_kind.values()) == part.idle_ns
    for split in (coverage.activities, coverage.time_ns):
        assert split.exact + split.inferred + split.unattributed == split.total


@pytest.fixture(scope="module", params=DIALECT_NAMES)
def planted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    path = tmp_path_factory.mktemp("planted") / f"{request.param}.sqlite"
    return planted_vit(path, dialect=request.param, replays=40)


def test_every_node_of_a_planted_export_finds_its_stage(planted: Planted) -> None:
    found = attribute(load(planted.path))
    sums_close(found)
    assert found.coverage is not None
    assert found.coverage.activities.in_graphs == planted.replays * planted.nodes
    assert found.coverage.reasons == {"no range open at launch": planted.replays}
    assert found.replays is not None
    assert found.replays.count == planted.replays
    assert found.budget is not None
    budget = {stage.stage: stage for stage in found.budget.by_stage}
    assert set(planted.stages) == set(budget)
    for stage, busy in zip(planted.stages, planted.busy_ns, strict=True):
        # In one stage two streams work at the same time, and share it.
        if stage == "patch_embed":
            assert budget[stage].busy_ns < busy
        else:
            assert budget[stage].busy_ns == busy
    worst = max(found.budget.by_stage, key=lambda s: s.idle_ns)
    assert worst.stage == planted.gap_stage
    assert worst.idle_ns >= planted.replays * planted.gap_ns


def test_order_of_rows_in_a_planted_export_means_nothing(planted: Planted) -> None:
    same(attribute(load(planted.path)), attribute(load(in_another_order(planted.path, 1))))


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_hops_copies_two_processes_and_what_was_not_recorded(dialect: str, tmp_path: Path) -> None:
    export = NsysExport(dialect)  # type: ignore[arg-type]  # a name of DIALECTS
    stages = [
        Stage("embed", [Kernel("a", 4_000), Set(64, 1_000)]),
        Stage("block", [Kernel("b", 5_000), Copy(64, 900)]),
    ]
    for pid, device in ((10, 0), (11, 1)):
        process = export.process(pid, device=device)
        process.graph(stages, hops=3).replays(5, 40_000)
        process.graph(stages, recorded=False).replays(2, 40_000)
    path = tmp_path / "run.sqlite"
    export.write(path)
    found = attribute(load(path))
    sums_close(found)
    assert found.coverage is not None
    assert found.coverage.activities.exact == 2 * 5 * 4
    assert found.coverage.reasons == {"creation not recorded": 2 * 2 * 4}
    assert found.replays is not None
    assert found.replays.count == 14
    assert found.budget is not None
    assert [s.stage for s in found.budget.by_stage] == ["block", "embed", None]
    assert [device.wall_ns for device in found.budget.by_device] == [
        found.budget.wall_ns // 2,
        found.budget.wall_ns // 2,
    ]
    assert not found.trace.warnings or "None of" not in found.trace.warnings[0]
    same(found, attribute(load(in_another_order(path, 2))))


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_graph_granularity_is_busy_and_named(dialect: str, tmp_path: Path) -> None:
    export = NsysExport(dialect)  # type: ignore[arg-type]  # a name of DIALECTS
    process = export.process(7)
    process.eager([Kernel("eager", 1_000)])
    process.graph([Stage("s", [Kernel("a", 4_000)])]).replays(3, 30_000, granularity="graph")
    path = tmp_path / "run.sqlite"
    export.write(path)
    found = attribute(load(path))
    sums_close(found)
    assert found.coverage is not None
    if not DIALECTS[dialect].graph_trace:
        assert found.coverage.activities.in_graphs == 0
        return
    assert found.coverage.reasons["opaque replay"] == 3
    assert found.budget is not None
    assert (found.budget.scope, found.budget.idle_ns) == ("replay", 0)
    assert "--cuda-graph-trace=node" in found.trace.warnings[0]


REAL = {
    # Kernels, device activities with a stage, replays, scope.
    "graph_granularity_rtx3060_2025.5.sqlite": (3, 0, 2, "replay"),
    "h100_2gpu_2026.2.sqlite": (3_442, 2_092, 0, "range"),
    "jacobi.sqlite": (1_001, 5_001, 0, "range"),
    "power_iteration_2025.3.sqlite": (3_689, 3_770, 0, "range"),
    "two_kernels_2025.sqlite": (2, 0, 0, "range"),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_exports(data_dir: Path, tmp_path: Path, name: str) -> None:
    kernels, exact, replays, scope = REAL[name]
    found = attribute(load(data_dir / "nsys" / name))
    sums_close(found)
    assert found.coverage is not None
    assert found.replays is not None
    assert found.budget is not None
    kinds = found.trace.activities.column("kind").to_pylist()
    assert kinds.count("kernel") == kernels
    assert found.coverage.activities.exact == exact
    assert (found.replays.count, found.budget.scope) == (replays, scope)
    copy = tmp_path / name
    shutil.copyfile(data_dir / "nsys" / name, copy)
    same(found, attribute(load(in_another_order(copy, 3))))


def test_opaque_replays_of_a_real_export_are_busy(data_dir: Path) -> None:
    found = attribute(load(data_dir / "nsys" / "graph_granularity_rtx3060_2025.5.sqlite"))
    assert found.budget is not None
    assert (found.budget.wall_ns, found.budget.busy_ns, found.budget.idle_ns) == (3_104, 3_104, 0)
    assert found.budget.eager.kernels == 3
    assert found.trace.warnings[0].startswith("None of the 2 activities inside CUDA graphs")


@pytest.mark.parametrize("name", ["dynamicvit.sqlite", "gtls.sqlite", "weatherbench2.sqlite"])
def test_real_exports_without_gpu_work_have_no_budget(data_dir: Path, name: str) -> None:
    found = attribute(load(data_dir / "nsys" / name))
    assert (found.coverage, found.replays, found.budget) == (None, None, None)
