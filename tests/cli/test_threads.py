# SPDX-License-Identifier: Apache-2.0
"""No thread is left when a command ends: Arrow's, still running at exit, abort the process."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphtrace.testing import planted_vit

CODE = """
import os, sys
import numpy, pyarrow, pyarrow.parquet
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
from graphtrace.analysis.engine import run
from graphtrace.ingest.load import load
from graphtrace.report import html, json, text
analysis, trace = run(load(sys.argv[1]))
html.render(analysis, trace), json.render(analysis), text.render(analysis)
sys.exit(threads() - before)
"""


def left(path: Path) -> int:
    return subprocess.run([sys.executable, "-c", CODE, str(path)], check=False).returncode


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_no_thread_is_left_after_an_analysis(tmp_path, data_dir):
    program = tmp_path / "program.py"
    program.write_text(
        "import graphtrace\n"
        "for _ in range(3):\n"
        "    with graphtrace.batch(), graphtrace.stage('a'): sum(range(1000))\n"
    )
    recording = tmp_path / "run.gtrace"
    capture = [sys.executable, "-m", "graphtrace", "capture", "-o", str(recording), "--"]
    subprocess.run([*capture, sys.executable, str(program)], check=True, capture_output=True)
    export = tmp_path / "run.sqlite"
    planted_vit(export, replays=30)
    folder = tmp_path / "run_parquet"
    planted_vit(folder, replays=30, parquetdir=True)
    report = data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep"
    assert [left(path) for path in (recording, export, folder, report)] == [0] * 4
