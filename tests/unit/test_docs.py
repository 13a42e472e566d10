# SPDX-License-Identifier: Apache-2.0
"""The generated pages say what the code declares."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphtrace

README = Path(__file__).resolve().parents[2] / "README.md"
TOOL = Path(__file__).resolve().parents[2] / "tools" / "make_docs.py"


def test_the_generated_pages_are_fresh():
    if not TOOL.exists():
        pytest.skip("no checkout: the pages are not part of the wheel")
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_builds_a_file_that_can_be_analyzed(tmp_path, monkeypatch):
    if not README.exists():
        pytest.skip("no checkout: the readme is not part of the wheel")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "NsysExport" in block)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    analysis = graphtrace.analyze(graphtrace.load("mine.sqlite"))
    assert analysis.synthetic
    assert {row.stage for row in analysis.budget.by_stage} == {"attn", "mlp"}
    assert [found.stage for found in analysis.findings] == ["mlp"]


def test_the_readme_names_commands_that_write_files(tmp_path):
    if not README.exists():
        pytest.skip("no checkout: the readme is not part of the wheel")
    found = re.findall(
        r"^python -m (graphtrace\.testing\.\w+ \w+) (\S+)", README.read_text("utf-8"), re.MULTILINE
    )
    assert len(found) == 3
    for command, name in found:
        path = tmp_path / name
        subprocess.run(
            [sys.executable, "-m", *command.split(), str(path)], check=True, capture_output=True
        )
        assert graphtrace.load(path).synthetic
