# SPDX-License-Identifier: Apache-2.0
"""Exports of 2020 and 2021: before graph nodes were named, without meta data and later columns."""

from pathlib import Path

import pytest
from nsys_samples import NODES, edit, kinds, small

from graphtrace.analysis.engine import run
from graphtrace.ingest.load import load
from graphtrace.ingest.nsys_sqlite import read

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    """What releases before 2022 lack is taken out of the oldest dialect that we build."""
    path = small(tmp_path / "t.sqlite", dialect="2022")
    return edit(
        path,
        "DROP TABLE CUDA_GRAPH_EVENTS",
        "DROP TABLE EXPORT_META_DATA",
        "DROP TABLE ANALYSIS_DETAILS",
        *(
            f"ALTER TABLE {table} DROP COLUMN graphNodeId"
            for table in (
                KERNELS,
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                "CUPTI_ACTIVITY_KIND_MEMSET",
            )
        ),
        "ALTER TABLE NVTX_EVENTS RENAME COLUMN domainId TO DomainId",
        f"ALTER TABLE {KERNELS} RENAME COLUMN deviceId TO DEVICEID",
    )


def test_all_work_is_read_and_none_is_said_to_be_of_a_graph(oldest: Path) -> None:
    source = read(oldest)
    assert kinds(source)["kernel"] == 7 * 3 + 1
    assert source.info.tool_version is None
    assert source.tables.get("activities").column("node_native_id").null_count == sum(
        kinds(source).values()
    )


def test_launches_of_graphs_are_replays_whose_nodes_have_no_id(oldest: Path) -> None:
    analysis, trace = run(load(oldest))
    assert analysis.replays is not None and analysis.replays.count == 7
    rows = trace.activities.to_pylist()
    inside = [row for row in rows if row["replay"] is not None]
    assert len(inside) == 7 * NODES
    assert {row["reason"] for row in inside} == {"no node id in the trace"}
    assert {row["stage"] for row in inside} == {None}
    assert [
        row for row in rows if row["replay"] is None and "node id" in (row["reason"] or "")
    ] == []
    assert any("without ids of the nodes" in sentence for sentence in trace.warnings)
    assert not any("creation of the graph nodes" in sentence for sentence in trace.warnings)


def test_replays_are_those_that_node_ids_show(tmp_path: Path, oldest: Path) -> None:
    newer = small(tmp_path / "n.sqlite", dialect="2022")
    columns = ["begin_ns", "end_ns", "launch_begin_ns", "correlation"]
    with_ids = read(newer).tables.get("replays").select(columns).to_pylist()
    assert read(oldest).tables.get("replays").select(columns).to_pylist() == with_ids
