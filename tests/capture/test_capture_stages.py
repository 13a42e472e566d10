# SPDX-License-Identifier: Apache-2.0
"""Stages, batches and accesses of real programs under the real command."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from capture_helpers import MODEL, PATHS, capture_text, clean_environment, script

from graphtrace.model.arrays import as_numpy, codes_of, valid_of

pytest.importorskip("torch")

RUN = (
    MODEL
    + "\nwith torch.no_grad():\n    for _ in range(3):\n        y = net(torch.randn(2, 5, 8))\n"
)
RESULT = RUN + "import sys; sys.stdout.buffer.write(y.numpy().tobytes())\n"


def words(table, column: str) -> list:
    return table.column(column).to_pylist()


def test_modules_become_stages_and_calls_batches(tmp_path: Path) -> None:
    recorded = capture_text(tmp_path, RUN)
    tables = recorded.source().tables
    assert recorded.paths() == PATHS
    assert tables.rows("batches") == 3
    assert tables.rows("ranges") == 24
    assert set(words(tables.get("ranges"), "domain")) == {"graphtrace"}
    assert set(words(tables.get("stages"), "origin")) == {"module"}
    assert not words(tables.get("batches"), "valid_tokens")[0]
    ranges, batches = tables.get("ranges"), tables.get("batches")
    begin, end = as_numpy(ranges.column("begin_ns")), as_numpy(ranges.column("end_ns"))
    assert valid_of(ranges.column("end_ns")).all()
    assert (end >= begin).all()
    first = as_numpy(batches.column("begin_ns"))
    last = as_numpy(batches.column("end_ns"))
    inside = (begin[:, None] >= first) & (end[:, None] <= last)
    assert (inside.sum(1) == 1).all()
    cost = recorded.source().cost
    assert cost.records == 2 * (24 + 3)
    assert cost.lost == 0
    assert cost.hook_ns_per_border > 0
    assert cost.overhead_ns > 0


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        (("--depth", "0"), []),
        (("--depth", "1"), ["blocks.0", "blocks.1", "head", "stem"]),
        (("--depth", "0", "--stage", "blocks.*"), ["blocks.0", "blocks.1"]),
        (
            ("--depth", "0", "--stage", "blocks.*", "--stage", "blocks.?.attn"),
            ["blocks.0", "blocks.0/attn", "blocks.1", "blocks.1/attn"],
        ),
        (("--depth", "0", "--stage", "**.mlp.2"), ["blocks.0.mlp.2", "blocks.1.mlp.2"]),
    ],
)
def test_depth_and_patterns(tmp_path: Path, options: tuple[str, ...], paths: list[str]) -> None:
    recorded = capture_text(tmp_path, RUN, options=options)
    assert recorded.paths() == paths
    assert recorded.source().tables.rows("batches") == 3


def test_results_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    path = script(tmp_path, RESULT)
    alone = subprocess.run(
        [sys.executable, str(path)], capture_output=True, check=True, env=clean_environment()
    )
    recorded = capture_text(tmp_path, RESULT)
    assert len(alone.stdout) == 80
    assert recorded.out == alone.stdout


FAULTS = {
    "modules": "import graphtrace.capture.recorder as r\nr.Recorder.begin = boom",
    "module names": "import graphtrace.capture.modules as r\nr.Plan._scan = boom",
    "access": "import graphtrace.capture.access as r\nr._access_of = boom",
    "ends": "import graphtrace.capture.recorder as r\nr.Recorder.end = boom",
    "batches": "import graphtrace.capture.recorder as r\nr.Recorder.open_batch = boom\n"
    "r.Recorder.open_implicit = boom",
    "records": "import graphtrace.capture.writer as r\nr.Writer.put = boom",
    "definitions": "import graphtrace.capture.writer as r\nr.Writer.line = boom",
    "segments": "import graphtrace.capture.writer as r\nr._map_new = boom",
    "full": "import graphtrace.capture.writer as r\nr._map_new = full",
    "start": "import graphtrace.capture.child as r\nr.start = boom",
    "install": "import graphtrace.capture.modules as r\nr.install = boom",
    "stop": "import graphtrace.capture.modules as r\nr.uninstall = boom",
    "calibration": "import graphtrace.capture.calibrate as r\nr.border_costs = boom",
    "nvtx": "import graphtrace.capture.nvtx_ranges as r\nr.emitter = boom",
    "finder": "import graphtrace.capture.imports as r\nr._Finder.find_spec = boom",
    "everything": "import sys\nclass F:\n    def find_spec(self, n, p=None, t=None):\n"
    "        if n.startswith('graphtrace.capture'): raise ZeroDivisionError('planted')\n"
    "sys.meta_path.insert(0, F())",
}
ALSO = """
import graphtrace
with graphtrace.batch(valid_tokens=3):
    with graphtrace.stage("mine"):
        z = net(torch.ones(1, 5, 8))
@graphtrace.stage("function")
def double(x):
    return x * 2
sys.stdout.buffer.write(double(z).detach().numpy().tobytes())
"""


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"finder", "everything"}))
def test_no_fault_of_ours_reaches_the_program(tmp_path: Path, fault: str) -> None:
    (tmp_path / "lib").mkdir()
    planted = "def boom(*a, **k): raise ZeroDivisionError('planted')\n"
    planted += "def full(*a, **k): raise OSError(28, 'planted')\n" + FAULTS[fault]
    script(tmp_path / "lib", planted, "sitecustomize.py")
    text = RESULT + ALSO
    path = script(tmp_path, text)
    alone = subprocess.run(
        [sys.executable, str(path)], capture_output=True, check=True, env=clean_environment()
    )
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"))
    recorded = capture_text(tmp_path, text, env=env)
    assert recorded.out == alone.stdout
    assert recorded.code == 0
    assert all(line.startswith("graphtrace: ") for line in recorded.said.splitlines())
    source = recorded.source()
    if fault in ("modules", "module names", "access", "ends", "batches", "records", "segments"):
        assert any("switched off (ZeroDivisionError: planted)" in w for w in source.warnings)
    if fault == "full":
        assert source.cost.lost > 0


def test_an_import_hook_that_fails_reaches_nobody(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    # The launcher itself must stay whole.
    planted = "import os\nif os.environ.get('GRAPHTRACE_BOOT'):\n" + "".join(
        f"    {line}\n" for line in FAULTS["everything"].splitlines()
    )
    script(tmp_path / "lib", planted, "sitecustomize.py")
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"))
    recorded = capture_text(tmp_path, RESULT, env=env)
    assert recorded.code == 0
    assert len(recorded.out) == 80


def test_stages_and_batches_in_code(tmp_path: Path) -> None:
    text = """
        import graphtrace
        @graphtrace.stage("step")
        def step(n):
            with graphtrace.stage("inner/deep"):
                return n + 1
        for i in range(2):
            with graphtrace.batch(valid_tokens=7, captured_tokens=16, sizes=[3, 4], label="é/x"):
                assert step(i) == i + 1
        with graphtrace.batch():
            pass
    """
    recorded = capture_text(tmp_path, text)
    tables = recorded.source().tables
    assert recorded.paths() == ["step", "step/inner", "step/inner/deep"]
    batches = tables.get("batches")
    assert words(batches, "valid_tokens") == [7, 7, None]
    assert words(batches, "captured_tokens") == [16, 16, None]
    assert words(batches, "sizes") == [[3, 4], [3, 4], None]
    assert words(batches, "label") == ["é/x", "é/x", None]
    marks = tables.get("marks")
    assert words(marks, "batch").count(None) == 0
    assert words(marks, "border") == ["begin", "begin", "begin", "end", "end", "end"] * 2 + [
        "begin",
        "end",
    ]


def test_a_batch_of_the_program_owns_the_calls_inside(tmp_path: Path) -> None:
    text = MODEL + (
        "import graphtrace\n"
        "with graphtrace.batch(valid_tokens=3):\n"
        "    net(torch.ones(1, 5, 8)); net(torch.ones(1, 5, 8))\n"
        "net(torch.ones(1, 5, 8))\n"
    )
    batches = capture_text(tmp_path, text).source().tables.get("batches")
    assert words(batches, "valid_tokens") == [3, None]


def test_a_trainer_that_is_a_module_does_not_hide_its_batches(tmp_path: Path) -> None:
    text = MODEL + (
        "import graphtrace\n"
        "class Outer(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.net = net\n"
        "    def forward(self, x):\n"
        "        for n in (1, 2):\n"
        "            with graphtrace.batch(valid_tokens=n): self.net(x)\n"
        "Outer()(torch.ones(1, 5, 8))\n"
    )
    tables = capture_text(tmp_path, text).source().tables
    assert words(tables.get("batches"), "valid_tokens") == [1, 2]
    assert "net/blocks.0" in tables.get("stages").column("path").to_pylist()


@pytest.mark.parametrize("given", ["'many'", "2.5", "True", "-1", "torch.tensor(3)", "1 << 70"])
def test_a_count_that_is_none_is_left_out_and_said(tmp_path: Path, given: str) -> None:
    text = f"import torch, graphtrace\nwith graphtrace.batch(valid_tokens={given}): pass\n"
    recorded = capture_text(tmp_path, text)
    source = recorded.source()
    assert recorded.code == 0
    assert words(source.tables.get("batches"), "valid_tokens") == [None]
    assert any("Token counts" in warning for warning in source.warnings)


def test_numpy_counts_are_counts(tmp_path: Path) -> None:
    text = (
        "import numpy, graphtrace\n"
        "with graphtrace.batch(valid_tokens=numpy.int64(5), sizes=numpy.array([2, 3])): pass\n"
    )
    batches = capture_text(tmp_path, text).source().tables.get("batches")
    assert words(batches, "valid_tokens") == [5]
    assert words(batches, "sizes") == [[2, 3]]


def test_an_error_in_forward_closes_its_stages(tmp_path: Path) -> None:
    text = MODEL + (
        "class Bad(nn.Module):\n"
        "    def forward(self, x): raise ValueError('mine')\n"
        "net.blocks[1].mlp[1] = Bad()\n"
        "for _ in range(2):\n"
        "    try: net(torch.ones(1, 5, 8))\n"
        "    except ValueError as error: print(error)\n"
    )
    recorded = capture_text(tmp_path, text)
    tables = recorded.source().tables
    assert recorded.out == b"mine\nmine\n"
    assert valid_of(tables.get("ranges").column("end_ns")).all()
    assert tables.rows("batches") == 2
    assert "head" not in recorded.paths()
    assert all(line.startswith("graphtrace: ") for line in recorded.said.splitlines())


def test_an_interrupt_in_forward_does_not_shift_what_follows(tmp_path: Path) -> None:
    text = MODEL + (
        "class Bad(nn.Module):\n"
        "    def forward(self, x): raise KeyboardInterrupt\n"
        "good = net.blocks[1].mlp[1]\n"
        "net.blocks[1].mlp[1] = Bad()\n"
        "try: net(torch.ones(1, 5, 8))\n"
        "except KeyboardInterrupt: pass\n"
        "net.blocks[1].mlp[1] = good\n"
        "net(torch.ones(1, 5, 8))\n"
    )
    recorded = capture_text(tmp_path, text)
    assert recorded.paths() == PATHS
    assert recorded.source().tables.rows("batches") == 2


def test_a_module_that_calls_itself(tmp_path: Path) -> None:
    text = MODEL + (
        "class Tree(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.cell = nn.Linear(8, 8)\n"
        "    def forward(self, x, n):\n"
        "        return self.cell(x) + (self(x, n - 1) if n else 0)\n"
        "Tree()(torch.ones(1, 8), 3)\n"
    )
    recorded = capture_text(tmp_path, text)
    tables = recorded.source().tables
    assert recorded.paths() == ["cell"]
    assert tables.rows("ranges") == 4
    assert tables.rows("batches") == 1


def test_threads_have_stacks_of_their_own(tmp_path: Path) -> None:
    text = MODEL + (
        "import threading, graphtrace\n"
        "def work(n):\n"
        "    for _ in range(5):\n"
        "        with graphtrace.stage(f't{n}'): net(torch.ones(1, 5, 8))\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    recorded = capture_text(tmp_path, text)
    tables = recorded.source().tables
    expected = sorted(
        path for n in range(4) for path in (f"t{n}", *(f"t{n}/{path}" for path in PATHS))
    )
    assert recorded.paths() == expected
    assert tables.rows("ranges") == 4 * 5 * 9
    assert tables.rows("batches") == 20
    assert len(set(words(tables.get("ranges"), "thread"))) == 4


def test_tasks_that_take_turns_are_told_apart(tmp_path: Path) -> None:
    text = """
        import asyncio, graphtrace
        async def work(name, first, second):
            await asyncio.sleep(first)
            with graphtrace.stage(name):
                await asyncio.sleep(second)
        async def main():
            await asyncio.gather(work("a", 0, 0.1), work("b", 0.05, 0.1))
        asyncio.run(main())
    """
    recorded = capture_text(tmp_path, text)
    tables = recorded.source().tables
    codes, kinds = codes_of(tables.get("ranges").column("kind"))
    assert sorted(kinds[code] for code in codes) == ["push_pop", "start_end"]
    assert any("took turns" in warning for warning in recorded.source().warnings)


def test_coroutines_and_generators_are_stages_while_they_run(tmp_path: Path) -> None:
    text = """
        import asyncio, graphtrace
        @graphtrace.stage("coroutine")
        async def work():
            with graphtrace.stage("inside"): return 3
        @graphtrace.stage("generator")
        def count():
            got = yield 1
            with graphtrace.stage("inside"): return got
        print(asyncio.run(work()))
        g = count(); next(g)
        try: g.send(5)
        except StopIteration as end: print(end.value)
    """
    recorded = capture_text(tmp_path, text)
    assert recorded.out == b"3\n5\n"
    assert recorded.paths() == ["coroutine", "coroutine/inside", "generator", "generator/inside"]


def test_accesses_are_measured_once_a_layout(tmp_path: Path) -> None:
    text = MODEL + (
        "class Strided(nn.Module):\n"
        "    def forward(self, x, mask=None, pair=None): return x\n"
        "class Outer(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.s = Strided()\n"
        "    def forward(self, x):\n"
        "        wide = torch.zeros(4, 64)\n"
        "        for _ in range(3):\n"
        "            self.s(wide[:, :16], mask=torch.ones(1, 1).expand(4, 16), pair=(x, [x.t()]))\n"
        "        self.s(torch.zeros(2, 3))\n"
        "Outer()(torch.ones(3, 5))\n"
    )
    tables = capture_text(tmp_path, text).source().tables
    rows = {}
    for row in tables.get("access").to_pylist():
        rows.setdefault(row["tensor"], []).append(row)
    assert [len(rows[name]) for name in ("input[0]", "input.mask", "output")] == [2, 1, 2]
    strided = rows["input[0]"][0]
    assert strided["pattern"] == "strided"
    assert (strided["row_bytes"], strided["row_stride_bytes"]) == (64, 256)
    assert strided["working_set_bytes"] == 256
    assert rows["input.mask"][0]["pattern"] == "broadcast"
    assert rows["input.mask"][0]["working_set_bytes"] == 4
    assert rows["input.pair[0]"][0]["pattern"] == "contiguous"
    assert rows["input.pair[1][0]"][0]["pattern"] == "strided"
    assert rows["output"][0]["written"] is None, "a view of an input may not have been written"
    marks = tables.get("marks")
    keys = as_numpy(marks.column("access"))[valid_of(marks.column("access"))]
    assert len(keys) == 4
    assert len(np.unique(keys)) == 2


UNUSUAL = [
    "torch.jit.trace(net, torch.ones(1, 5, 8))",
    "torch.fx.symbolic_trace(net)(torch.ones(1, 5, 8))",
    "torch.func.vmap(net)(torch.ones(3, 5, 8))",
    "torch.func.grad(lambda x: net(x).sum())(torch.ones(1, 5, 8))",
    "torch.func.functional_call(net, dict(net.named_parameters()), torch.ones(1, 5, 8))",
    "torch.export.export(net, (torch.ones(1, 5, 8),)).module()(torch.ones(1, 5, 8))",
    "net(torch.ones(1, 5, 8)).sum().backward()",
    "hold(torch.eye(3).to_sparse())",
    "hold(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))",
    "hold(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))",
    "hold(torch.ones(0, 3))",
    "hold(torch.tensor(3.0))",
    "hold({'a': [torch.ones(2)] * 500, 3: None})",
    "torch.utils.checkpoint.checkpoint(net, torch.ones(1, 5, 8), use_reentrant=False)",
    "nn.DataParallel(net)(torch.ones(1, 5, 8))",
    "[m(torch.ones(8)) for m in [nn.Linear(8, 8) for _ in range(50)]]",
    "net(torch._lazy_clone(torch.ones(1, 5, 8)))",
    "net.to('meta')(torch.ones(1, 5, 8, device='meta'))",
]


def test_unusual_calls_work_as_without_us(tmp_path: Path) -> None:
    text = MODEL + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "hold = nn.Sequential(nn.Identity())\n"
        f"for call in {UNUSUAL!r}:\n"
        "    print(type(eval(call)).__name__)\n"
    )
    alone, recorded = both(tmp_path, text)
    assert recorded.code == 0, recorded.said
    assert recorded.out == alone.stdout
    assert not any("switched off" in warning for warning in recorded.source().warnings)


def both(tmp_path: Path, text: str):
    """The program alone and recorded."""
    path = script(tmp_path, text)
    alone = subprocess.run(
        [sys.executable, str(path)], capture_output=True, check=False, env=clean_environment()
    )
    return alone, capture_text(tmp_path, text)


def test_a_mode_of_the_program_sees_nothing_of_ours(tmp_path: Path) -> None:
    text = MODEL + (
        "from torch.overrides import TorchFunctionMode\n"
        "seen = []\n"
        "class Watch(TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, args=(), kwargs=None):\n"
        "        seen.append(getattr(f, '__name__', str(f))); return f(*args, **(kwargs or {}))\n"
        "x = torch.ones(1, 5, 8)\n"
        "with Watch(): net(x)\n"
        "print(sorted(seen))\n"
    )
    path = script(tmp_path, text)
    alone = subprocess.run(
        [sys.executable, str(path)], capture_output=True, check=True, env=clean_environment()
    )
    recorded = capture_text(tmp_path, text)
    assert recorded.out == alone.stdout
    assert recorded.source().tables.rows("access") > 0


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    options = ("--stage", "blocks.*.atn", "--stage", "blocks.*")
    recorded = capture_text(tmp_path, RUN, options=options)
    assert "No module has a name like 'blocks.*.atn'." in recorded.said
    assert "like 'blocks.*'." not in recorded.said
