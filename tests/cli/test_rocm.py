# SPDX-License-Identifier: Apache-2.0
"""A trace of a device on which none of NVIDIA's tools runs, on the real command line."""

import json
import subprocess
import sys

import pytest

import graphtrace
from graphtrace.testing.kineto import KinetoTrace
from graphtrace.testing.nsys_presets import vit_stages


def written(path, dialect):
    trace = KinetoTrace(dialect)
    trace.graph(vit_stages()).replays(30, period_ns=1_400_000)
    trace.write(path)
    return path


def printed(*args):
    done = subprocess.run(
        [sys.executable, "-m", "graphtrace", *map(str, args)], capture_output=True, check=True
    )
    return done.stdout.decode()


@pytest.fixture(scope="module")
def rocm(tmp_path_factory):
    return written(tmp_path_factory.mktemp("rocm") / "run.json", "rocm")


def test_no_command_of_a_tool_that_cannot_run_there(rocm):
    told = json.loads(printed("analyze", rocm, "--format", "json"))
    assert told["abstentions"]
    assert not any(row["rerun"] for row in told["abstentions"])
    assert all("do not run on this device" in row["reason"] for row in told["abstentions"])
    assert not any(row["prove"] for row in told["findings"])
    text = printed("analyze", rocm)
    assert "stay open." in text and "another run" not in text
    assert "$ ncu" not in text and "$ nsys" not in text
    assert "$ n" not in printed("info", rocm)


def test_cuda_devices_get_the_commands(tmp_path):
    analysis = graphtrace.analyze(graphtrace.load(written(tmp_path / "run.json", "2026")))
    assert all(row.rerun.startswith(("ncu ", "nsys ")) for row in analysis.abstentions)


def test_named_nodes_without_their_creation_are_said(tmp_path):
    path = written(tmp_path / "run.json", "2026")
    (told,) = json.loads(printed("info", path, "--format", "json"))["files"]
    gaps = {gap["what"]: gap for gap in told["missing"]}
    assert "stay without a stage" in gaps["creation of the graph nodes"]["why"]
    assert graphtrace.analyze(graphtrace.load(path)).coverage.reasons == {
        "creation not recorded": told["graphs"]["replays"] * 40
    }
