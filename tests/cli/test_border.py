# SPDX-License-Identifier: Apache-2.0
"""The border to the shell: three lines an error, documented exit codes, no traceback."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphtrace.testing import planted_vit

GRAPHTRACE = [sys.executable, "-m", "graphtrace"]


def run(*args, **kwargs):
    return subprocess.run(
        [*GRAPHTRACE, *args], capture_output=True, text=True, timeout=120, check=False, **kwargs
    )


def three_lines(stderr):
    lines = stderr.splitlines()
    assert len(lines) == 3, stderr
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("  why: ")
    assert lines[2].startswith("   do: ")
    return lines


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["anlyze"], "Did you mean 'analyze'?"),
        (["analyze"], "Missing argument 'INPUT...'"),
        (["analyze", "--onyl", "x", "y"], "Did you mean '--only'?"),
        (["analyze", "x", "--format", "yaml"], "'yaml' is not one of"),
        (["analyze", "x", "-o", "report.pdf"], "no ending that names a report"),
        (["analyze", "x", "--fail-over", "recoverable=500%"], "is no gate"),
        (["analyze", "x", "--fail-over", "recoverable=nan"], "is no gate"),
        (["analyze", "x", "--fail-over", "latency=5%"], "is no gate"),
        (["analyze", "x", "--set", "nonsense"], "nonsense"),
        (["analyze", "no-such-file.ncu-rep"], "no-such-file.ncu-rep"),
        (["analyze", "x\x1b[31m\nerror: forged"], r"x\x1b[31m"),
    ],
)
def test_wrong_usage_is_told_in_three_lines(args, says):
    done = run(*args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = three_lines(done.stderr)
    assert says in lines[0]
    assert "\x1b" not in done.stderr


def test_without_a_command_the_help_is_shown():
    done = run()
    assert done.returncode == 2
    assert "analyze" in done.stderr
    assert "capture" in done.stderr
    assert run("--help").returncode == 0
    assert run("analyze", "--help").returncode == 0


def test_errors_are_json_where_json_was_asked_for():
    done = run("analyze", "no-such-file", "--format", "json")
    error = json.loads(done.stdout)
    assert error["schema"] == "graphtrace.error/1"
    assert error["exit"] == done.returncode == 2
    assert "no-such-file" in error["what"]
    assert error["why"]
    assert error["do"]


def test_capture_answers_125_before_the_program_starts(tmp_path):
    assert run("capture", "--dept", "3", "--", "true").returncode == 125
    assert run("capture").returncode == 125
    (tmp_path / "there.gtrace").mkdir()
    done = run(
        "capture", "-o", str(tmp_path / "there.gtrace"), "--", "touch", str(tmp_path / "ran")
    )
    assert done.returncode == 125, done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_bug_of_ours_exits_with_70_and_hides_its_traceback():
    code = (
        "import sys\n"
        "from graphtrace.cli.border import run_guarded\n"
        "def run(args): raise ZeroDivisionError('a\\x1b[0m')\n"
        "sys.exit(run_guarded(run, []))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    three_lines(done.stderr)
    loud = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GRAPHTRACE_DEBUG": "1"},
    )
    assert loud.returncode == 70
    assert "Traceback" in loud.stderr


def test_an_interrupt_exits_with_130():
    code = (
        "import os, signal, sys, time\n"
        "from graphtrace.cli.border import run_guarded\n"
        "# A shell starts background jobs with interrupts ignored.\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def run(args):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(10)\n"
        "sys.exit(run_guarded(run, []))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130 == 128 + signal.SIGINT
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_ends_quietly():
    code = (
        "import sys\n"
        "from graphtrace.cli.border import run_guarded\n"
        "from graphtrace.cli.console import print_result\n"
        "def run(args):\n"
        "    for _ in range(10000): print_result('x' * 100)\n"
        "    return 0\n"
        "sys.exit(run_guarded(run, []))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.read(10)
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(30) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [
        ("> /dev/full", 2, "could not be printed"),
        (">&-", 2, "could not be printed"),
        ("2>&-", 0, ""),
        ("| head -0", 0, ""),
        ("--help | head -0", 0, ""),
        ("--format json > /dev/full", 2, "could not be printed"),
    ],
)
def test_where_the_result_cannot_go_is_told(tmp_path, redirection, code, says):
    export = tmp_path / "run.sqlite"
    planted_vit(export, replays=30)
    command = shlex.join([*GRAPHTRACE, "analyze", str(export)])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {redirection}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if says:
        assert says in three_lines(done.stderr)[0]
    else:
        assert done.stderr == ""


def test_an_encoding_with_few_characters_is_no_obstacle(tmp_path):
    export = tmp_path / "run.sqlite"
    planted_vit(export, replays=30)
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("analyze", str(export), env=narrow)
    assert done.returncode == 0, done.stderr
    assert "Verdict" in done.stdout
