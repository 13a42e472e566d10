# SPDX-License-Identifier: Apache-2.0
"""What the whole suite shares: real files, tools that may be missing, quiet and quick settings."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One thread a process: the suite runs in parallel, and so do the programs that it starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

# No deadline: a time limit an example measures how busy the machine is, not the code.
settings.register_profile(
    "graphtrace", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.register_profile("ci", settings.get_profile("graphtrace"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "graphtrace")

_CHECKOUT = Path(__file__).resolve().parents[1]


def _data() -> Path:
    given = os.environ.get("GRAPHTRACE_DATA")
    return Path(given) if given else _CHECKOUT.parent / "shared" / "data"


def _tool(name: str, *others: str) -> str:
    for candidate in (name, *others):
        found = shutil.which(candidate)
        if found:
            return found
    pytest.skip(f"{name} is not installed")


def pytest_report_header() -> str:
    """Say which optional things this run has."""
    data = _data()
    tools = [tool for tool in ("ncu", "nsys", "chromium", "nvidia-smi") if shutil.which(tool)]
    real = str(data) if data.is_dir() else "none (tests on them skip; set GRAPHTRACE_DATA)"
    return f"real profiler files: {real}; tools: {', '.join(tools) or 'none'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report every skip of one reason at one place, so that the summary has one line for it."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of other people's profiler files: $GRAPHTRACE_DATA, else ../shared/data."""
    folder = _data()
    if not folder.is_dir():
        pytest.skip(f"no real profiler files at {folder}: set GRAPHTRACE_DATA")
    return folder


@pytest.fixture(scope="session")
def ncu() -> str:
    """Path of Nsight Compute's command line."""
    return _tool("ncu")


@pytest.fixture
def nsys() -> Iterator[str]:
    """Path of Nsight Systems' command line; one test at a time holds it, over all processes."""
    path = _tool("nsys")
    lock = Path(tempfile.gettempdir()) / f"graphtrace-nsys-{os.getuid()}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield path


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium that can run headless."""
    return _tool("chromium", "chromium-browser", "google-chrome")
