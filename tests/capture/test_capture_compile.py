# SPDX-License-Identifier: Apache-2.0
"""torch.compile sees nothing of ours: equal frames, no graph break, whole graphs stay whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from capture_helpers import capture_text, clean_environment, script

pytest.importorskip("torch")

# Run with and without stages and hooks; each case compiles with a counting backend.
TEXT = """
import json, sys
import torch, torch._dynamo as dynamo
from torch import nn
from torch._dynamo.testing import CompileCounter
import graphtrace

class Layer(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(8, 8)
    def forward(self, x): return torch.relu(self.l(x))
class Plain(nn.Module):
    def __init__(self):
        super().__init__(); self.layers = nn.Sequential(Layer(), Layer())
    def forward(self, x): return self.layers(x) + 1
class Staged(Plain):
    def forward(self, x):
        with graphtrace.batch(valid_tokens=2):
            with graphtrace.stage("a"):
                x = self.layers(x)
            return x + 1
class Nested(Plain):
    def forward(self, x):
        with graphtrace.stage("a"):
            with graphtrace.stage("b"):
                return self.layers(x) + 1
class Decorated(Plain):
    @graphtrace.stage("dec")
    def forward(self, x): return self.layers(x) + 1

def measure(make, fullgraph):
    dynamo.reset(); dynamo.utils.counters.clear(); torch.manual_seed(0)
    counter, model, x = CompileCounter(), make(), torch.ones(2, 8)
    compiled = torch.compile(model, backend=counter, fullgraph=fullgraph)
    for _ in range(3): y = compiled(x)
    expected = model(x)
    assert torch.equal(y, expected)
    return [counter.frame_count, counter.op_count,
            sum(dynamo.utils.counters["graph_break"].values())]

found = {}
def all_of(when):
    for make in (Plain, Staged, Nested, Decorated):
        for fullgraph in (False, True):
            found[f"{when} {make.__name__} {fullgraph}"] = measure(make, fullgraph)
"""


def test_frames_are_the_same_with_and_without(tmp_path: Path) -> None:
    text = TEXT + (
        "all_of('off')\n"
        "with graphtrace.record('own.gtrace'): all_of('on')\n"
        "json.dump(found, open('found.json', 'w'))\n"
    )
    path = script(tmp_path, text)
    subprocess.run([sys.executable, str(path)], cwd=tmp_path, check=True, env=clean_environment())
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) == 16
    assert set(map(tuple, found.values())) == {tuple(found["off Plain False"])}
    assert found["off Plain False"][0] == 1
    assert found["off Plain False"][2] == 0


def test_the_command_hooks_before_anything_is_compiled(tmp_path: Path) -> None:
    run = capture_text(tmp_path, TEXT + "all_of('on')\njson.dump(found, open('f', 'w'))\n")
    assert run.code == 0, run.said
    found = json.loads((tmp_path / "f").read_text())
    assert {tuple(value) for value in found.values()} == {(1, 5, 0)}


def test_hooks_that_come_and_go_compile_nothing_anew(tmp_path: Path) -> None:
    text = TEXT + (
        "counter, x = CompileCounter(), torch.ones(2, 8)\n"
        "compiled = torch.compile(Nested(), backend=counter); compiled(x)\n"
        "counts = [counter.frame_count]\n"
        "with graphtrace.record('own.gtrace'): compiled(x); counts.append(counter.frame_count)\n"
        "compiled(x); counts.append(counter.frame_count)\n"
        "print(counts)\n"
    )
    path = script(tmp_path, text)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        check=True,
        env=clean_environment(),
        capture_output=True,
    )
    assert done.stdout == b"[1, 1, 1]\n"


def test_a_compiled_region_is_one_stage(tmp_path: Path) -> None:
    text = TEXT + (
        "model = Plain()\n"
        "for n in range(2): model.layers[n] = torch.compile(model.layers[n], backend='eager')\n"
        "model(torch.ones(2, 8))\n"
        "torch.compile(Plain(), backend='eager')(torch.ones(2, 8))\n"
    )
    run = capture_text(tmp_path, text)
    assert run.paths() == ["layers", "layers/0", "layers/1"]
    assert run.source().tables.rows("batches") == 2
