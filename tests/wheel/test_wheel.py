# SPDX-License-Identifier: Apache-2.0
"""The built wheel, installed outside of the checkout: what is in it, and that it is what runs.

Runs under `make wheel-test`, which names the wheel in GRAPHTRACE_WHEEL.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import graphtrace
import graphtrace_analyzers

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.skipif("GRAPHTRACE_WHEEL" not in os.environ, reason="runs under make wheel-test"),
]


@pytest.fixture(scope="module")
def members() -> list[str]:
    with zipfile.ZipFile(os.environ["GRAPHTRACE_WHEEL"]) as wheel:
        return wheel.namelist()


def test_the_installed_package_runs_and_not_a_checkout() -> None:
    for package in (graphtrace, graphtrace_analyzers):
        assert "site-packages" in Path(package.__path__[0]).parts
    elsewhere = [
        entry
        for entry in sys.path
        if (Path(entry) / "graphtrace").exists() and "site-packages" not in Path(entry).parts
    ]
    assert elsewhere == []


def test_the_wheel_holds_the_two_packages_and_nothing_else(members: list[str]) -> None:
    tops = {name.split("/")[0] for name in members}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "graphtrace",
        "graphtrace_analyzers",
    }
    assert not [name for name in members if "__pycache__" in name or name.endswith(".pyc")]


def test_what_is_not_python_is_there(members: list[str]) -> None:
    assert {
        "graphtrace/py.typed",
        "graphtrace_analyzers/py.typed",
        "graphtrace/capture/boot/sitecustomize.py",
        "graphtrace/report/schema/analysis-1.json",
        "graphtrace/report/schema/info-1.json",
    } <= set(members)
    assert [name for name in members if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_command_runs_in_an_empty_folder(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("graphtrace")
    done = subprocess.run(
        [str(command), "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(graphtrace.__version__)


def test_a_program_that_uses_it_passes_strict_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import graphtrace\n\n\n"
        '@graphtrace.stage("encoder")\n'
        "def encode(count: int) -> int:\n"
        "    with graphtrace.batch(valid_tokens=count, captured_tokens=8):\n"
        '        with graphtrace.stage("inner"):\n'
        "            return 2 * count\n\n\n"
        'reveal_type(encode)\nreveal_type(graphtrace.load("run.gtrace"))\n',
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(tmp_path / "c"),
            "program.py",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "def (count: int) -> int" in done.stdout.replace("builtins.", "")
    assert "graphtrace.model.trace.Trace" in done.stdout
