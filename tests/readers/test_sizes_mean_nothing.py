# SPDX-License-Identifier: Apache-2.0
"""Sizes that are there for speed or memory alone change no answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nsys_samples import edit, small

from graphtrace.analysis.engine import run
from graphtrace.attribute import activity_stages, sharing
from graphtrace.ingest import nsys_work, sqlite_pages
from graphtrace.ingest.load import load
from graphtrace.model import arrays
from graphtrace.report.json import render
from graphtrace.testing.nsys_presets import planted_vit

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
ODD = {
    "as it is": (),
    "streams and devices": (
        f"UPDATE {KERNELS} SET streamId = 9 WHERE rowid % 3 = 0",
        f"UPDATE {KERNELS} SET deviceId = 1 WHERE rowid % 5 = 0",
    ),
    "overlapping work": (
        f"UPDATE {KERNELS} SET end = end + 70000 WHERE rowid % 4 = 0",
        f"UPDATE {KERNELS} SET start = start - 40000 WHERE rowid % 7 = 0",
    ),
    "nodes twice in a replay": (
        f"UPDATE {KERNELS} SET correlationId = (SELECT max(correlationId) FROM {KERNELS}) "
        "WHERE rowid % 6 = 0 AND graphNodeId IS NOT NULL",
    ),
    "ids used again": (
        "INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT * FROM CUDA_GRAPH_NODE_EVENTS",
        "UPDATE CUDA_GRAPH_NODE_EVENTS SET start = start + 300000 WHERE rowid > "
        "(SELECT count(*) / 2 FROM CUDA_GRAPH_NODE_EVENTS)",
    ),
    "creations missing": ("DELETE FROM CUDA_GRAPH_NODE_EVENTS WHERE rowid % 3 = 0",),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Every such size as small as it may be, once this is asked to."""
    with monkeypatch.context() as patch:
        yield patch


def shrink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arrays, "_RUN", 4)
    patch.setattr(arrays, "_SAMPLE", 2)
    patch.setattr(arrays, "_SPAN", 8)
    patch.setattr(sharing.blocks, "__defaults__", (3,))
    patch.setattr(activity_stages, "_BLOCK", 3)
    patch.setattr(nsys_work, "_NEAR", 2)
    patch.setattr(sqlite_pages, "CHUNK_BYTES", 1)


def answer(path: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    analysis, trace = run(load(path))
    said = json.loads(render(analysis))
    del said["timing"]
    names = ("activities", "replays", "execs", "graphs", "nodes", "stages", "stage_times")
    return said, {name: trace.tables.get(name).to_pylist() for name in names}


@pytest.mark.parametrize("name", ODD)
def test_of_a_small_export(name: str, tmp_path: Path, tiny: pytest.MonkeyPatch) -> None:
    path = edit(small(tmp_path / "t.sqlite", replays=9), *ODD[name])
    usual = answer(path)
    shrink(tiny)
    assert answer(path) == usual


def test_of_a_planted_one(tmp_path: Path, tiny: pytest.MonkeyPatch) -> None:
    path = planted_vit(tmp_path / "t.sqlite", replays=20).path
    usual = answer(path)
    shrink(tiny)
    assert answer(path) == usual
