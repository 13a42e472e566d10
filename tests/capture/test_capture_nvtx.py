# SPDX-License-Identifier: Apache-2.0
"""Stages reach an attached profiler as NVTX ranges, and cost nothing without one."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from capture_helpers import COMMAND, capture_text, clean_environment, script

TEXT = """
import graphtrace, sys
for n in range(2):
    with graphtrace.stage("outer"):
        with graphtrace.stage("inner"):
            pass
print("nvtx" in sys.modules, "numpy" in sys.modules)
"""
REGISTERED = 3  # NVTX_MESSAGE_TYPE_REGISTERED


@pytest.fixture(scope="module")
def injection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("nvtx")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    library = tmp_path_factory.mktemp("injection") / "injection.so"
    source = Path(__file__).parent / "nvtx_injection.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def listen(tmp_path: Path, injection: Path, text: str) -> list[list[str]]:
    log = tmp_path / "log"
    log.touch()
    env = clean_environment(NVTX_INJECTION64_PATH=str(injection), NVTX_TEST_LOG=str(log))
    run = capture_text(tmp_path, text, env=env)
    assert run.code == 0, run.said
    assert run.source().cost.profiler == "nvtx"
    return [line.split("|") for line in log.read_text().splitlines()]


def test_a_profiler_is_told_each_stage_in_our_domain(tmp_path: Path, injection: Path) -> None:
    heard = listen(tmp_path, injection, TEXT)
    registered = str(REGISTERED)
    once = [
        ["push", "graphtrace", "outer", registered],
        ["push", "graphtrace", "inner", registered],
        ["pop", "graphtrace", "", "0"],
        ["pop", "graphtrace", "", "0"],
    ]
    assert heard == [["domain", "graphtrace", "", "0"], *once, *once]


def test_an_error_closes_its_ranges(tmp_path: Path, injection: Path) -> None:
    pytest.importorskip("torch")
    text = """
        import torch
        class Bad(torch.nn.Module):
            def forward(self, x): raise ValueError
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__(); self.bad = Bad()
            def forward(self, x):
                return self.bad(x)
        for _ in range(2):
            try: Net()(1)
            except ValueError: pass
    """
    heard = listen(tmp_path, injection, text)
    assert [line[0] for line in heard] == ["domain", "push", "pop", "push", "pop"]


def test_without_a_profiler_nvtx_is_not_even_imported(tmp_path: Path) -> None:
    run = capture_text(tmp_path, TEXT)
    assert run.out == b"False False\n"


def test_a_failing_nvtx_costs_the_ranges_alone(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    script(tmp_path / "lib", "raise RuntimeError('planted')", "nvtx.py")
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"), NVTX_INJECTION64_PATH="/nowhere")
    run = capture_text(tmp_path, TEXT, env=env)
    assert run.paths() == ["outer", "outer/inner"]
    assert "Recording of NVTX ranges failed" in run.said


def test_an_nvtx_without_ranges_of_domains(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    old = """
        import sys
        class Domain: pass
        def get_domain(name): return Domain()
        def push_range(message, domain): print("push", message, domain)
        def pop_range(domain): print("pop", domain)
    """
    script(tmp_path / "lib", old, "nvtx.py")
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"), NVTX_INJECTION64_PATH="/nowhere")
    out = capture_text(tmp_path, TEXT, env=env).out.decode().splitlines()
    assert out[:3] == ["push outer graphtrace", "push inner graphtrace", "pop graphtrace"]


def end_agent(launcher: int) -> None:
    """End the agent that an nsys left behind: it is a daemon that spins, named after its parent."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        ours = any(w.startswith("--session-name=") and w.endswith(f"-{launcher}") for w in words)
        if ours and "--start-agent" in words:
            os.kill(int(path.parent.name), signal.SIGKILL)


def profiled(tmp_path: Path, command: list) -> str:
    """Output of a run under nsys; it is known to hang before it starts anything."""
    for _ in range(2):
        with (tmp_path / "said").open("wb") as said:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=tmp_path,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            try:
                assert process.wait(timeout=45) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                end_agent(process.pid)
                shutil.rmtree(tmp_path / "run.gtrace", ignore_errors=True)
                continue
        return (tmp_path / "said").read_text(errors="replace")
    pytest.skip("nsys hung twice")


def test_nsys_records_the_stages_or_the_person_is_told(tmp_path: Path, nsys: str) -> None:
    pytest.importorskip("nvtx")
    path = script(tmp_path, TEXT)
    profile = [nsys, "profile", "-t", "nvtx", "-o", str(tmp_path / "report"), "--stats=false"]
    said = profiled(tmp_path, [*profile, *COMMAND, "-o", "run.gtrace", "--", sys.executable, path])
    sqlite = tmp_path / "report.sqlite"
    subprocess.run(
        [nsys, "export", "--type", "sqlite", "-o", str(sqlite), str(tmp_path / "report.nsys-rep")],
        capture_output=True,
        timeout=120,
        check=True,
    )
    connection = sqlite3.connect(sqlite)
    rows = connection.execute(
        "select coalesce(text, value), count(*) from NVTX_EVENTS left join StringIds "
        "on StringIds.id = textId where eventType = 59 group by 1 order by 1"
    ).fetchall()
    connection.close()
    if rows:
        assert rows == [("inner", 2), ("outer", 2)]
    else:
        expected = f"records no range of nvtx {version('nvtx')}"
        assert expected in said
