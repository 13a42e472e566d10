# SPDX-License-Identifier: Apache-2.0
"""Chromium, where it is installed, and pages to load in it."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# The hand-made analyses are shared with the unit tests of the reports.
sys.path.append(str(Path(__file__).parents[1] / "unit"))

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--hide-scrollbars",
    "--virtual-time-budget=10000",
)


@pytest.fixture(scope="session")
def chromium():
    """The path of chromium or Chrome."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("chromium is not installed")


@pytest.fixture
def browse(chromium, tmp_path) -> Callable[..., tuple[str, str]]:
    """Load a page from disk; the document after its scripts ran, and what the console said."""

    def load(page: str, *flags: str) -> tuple[str, str]:
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags]
        done = subprocess.run(
            [*command, "--dump-dom", path.as_uri()],
            capture_output=True,
            timeout=120,
            check=True,
        )
        errors = done.stderr.decode("utf-8", "replace")
        console = "\n".join(line for line in errors.splitlines() if "CONSOLE" in line)
        return done.stdout.decode("utf-8", "replace"), console

    return load
