# SPDX-License-Identifier: Apache-2.0
"""The generated pages say what the code declares."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "make_docs.py"


def test_the_generated_pages_are_fresh():
    if not TOOL.exists():
        pytest.skip("no checkout: the pages are not part of the wheel")
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
