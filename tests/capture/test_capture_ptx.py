# SPDX-License-Identifier: Apache-2.0
"""The kernel of the in-graph clock assembles for every architecture, to what was designed."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import graphtrace

PTX = Path(graphtrace.__file__).parent / "capture" / "gt_mark.ptx"
OLDEST = 75


def tool(name: str) -> str | None:
    """A tool of CUDA: on the path, or in NVIDIA's packages."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations or () if spec else ()
    packaged = [str(p) for place in places for p in sorted(Path(place).glob(f"*/bin/{name}"))]
    return next(iter(packaged), None) or shutil.which(name)


def architectures() -> list[str]:
    """All real architectures that the assembler knows, from sm_75 on."""
    assembler = tool("ptxas")
    if assembler is None:
        return []
    said = subprocess.run(
        [assembler, "--help"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    known = set(re.findall(r"'sm_(\d+)([af]?)'", said))
    return [f"sm_{number}{kind}" for number, kind in sorted(known) if int(number) >= OLDEST]


ARCHITECTURES = architectures()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[str]:
    """Instructions of gt_mark in the machine code of an architecture."""
    assembler, disassembler = tool("ptxas"), tool("nvdisasm")
    assert assembler is not None
    image = tmp_path_factory.mktemp("ptx") / "mark.cubin"
    command = [assembler, f"-arch={request.param}", "-v", "-o", str(image), str(PTX)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    assert re.findall(r"(\d+) bytes spill", done.stderr) == ["0"] * 4
    if disassembler is None:
        pytest.skip("no disassembler")
    shown = subprocess.run(
        [disassembler, "-c", str(image)], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    body = shown.split(".text.gt_mark", 1)[1].split(".text.gt_nop", 1)[0]
    return re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]+[^;]*);", body)


@pytest.mark.skipif(not ARCHITECTURES, reason="no ptxas: pip install nvidia-cuda-nvcc")
@pytest.mark.parametrize("code", ARCHITECTURES, indirect=True)
def test_the_time_is_read_first_and_nothing_waits(code: list[str]) -> None:
    special = [line for line in code if "SR_" in line]
    assert "GLOBALTIMER" in special[0]
    before = code[: code.index(special[0])]
    assert not any(line.startswith(("LDG", "STG", "LD.", "ST.", "ATOM")) for line in before)
    assert not any(line.startswith(("MEMBAR", "FENCE", "ATOM", "RED", "BAR")) for line in code)
    assert sum(line.startswith("LDG") and "STRONG.GPU" in line for line in code) == 1
    wide = [line for line in code if line.startswith("STG") and ".128" in line]
    assert len(wide) == 2
    assert all("STRONG.SYS" in line for line in wide)


def test_the_assembler_knows_the_chips_that_we_name() -> None:
    if not ARCHITECTURES:
        pytest.skip("no ptxas: pip install nvidia-cuda-nvcc")
    assert {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"} <= set(ARCHITECTURES)
