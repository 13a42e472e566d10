# SPDX-License-Identifier: Apache-2.0
"""Programs to record, and the real command around them."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from graphtrace.ingest.gtrace import read
from graphtrace.ingest.source import Source

COMMAND = [sys.executable, "-c", "from graphtrace.cli.main import main; main()", "capture"]

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    def forward(self, x):
        return x + self.mlp(self.attn(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

torch.manual_seed(0)
net = Net().eval()
"""

PATHS = [
    "blocks.0",
    "blocks.0/attn",
    "blocks.0/mlp",
    "blocks.1",
    "blocks.1/attn",
    "blocks.1/mlp",
    "head",
    "stem",
]


@dataclass
class Run:
    """A program that was recorded."""

    process: subprocess.CompletedProcess
    recording: Path

    @property
    def code(self) -> int:
        return self.process.returncode

    @property
    def out(self) -> bytes:
        return self.process.stdout

    @property
    def said(self) -> str:
        return self.process.stderr.decode()

    def source(self) -> Source:
        return read(self.recording)

    def paths(self) -> list[str]:
        return sorted(self.source().tables.get("stages").column("path").to_pylist())


def clean_environment(**more: str) -> dict[str, str]:
    dropped = ("PYTHONPATH", "GRAPHTRACE_BOOT")
    return {**{k: v for k, v in os.environ.items() if k not in dropped}, **more}


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def capture(folder: Path, *command: str, options: tuple[str, ...] = (), **kwargs) -> Run:
    """Run `graphtrace capture` on a command in a folder."""
    kwargs.setdefault("env", clean_environment())
    process = subprocess.run(
        [*COMMAND, "-o", "run.gtrace", *options, "--", *command],
        cwd=folder,
        capture_output=True,
        timeout=120,
        check=False,
        **kwargs,
    )
    return Run(process, folder / "run.gtrace")


def capture_text(folder: Path, text: str, *arguments: str, **kwargs) -> Run:
    """Write a program and record it."""
    return capture(folder, sys.executable, str(script(folder, text)), *arguments, **kwargs)
