# SPDX-License-Identifier: Apache-2.0
"""The example runs, is repeatable, and computes the same through captured graphs as eagerly."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dispatch = pytest.importorskip("torch.utils._python_dispatch")
pytree = pytest.importorskip("torch.utils._pytree")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "infer.py"
FEW = ("--steps", "4", "--sizes", "48,96", "--slots", "4", "--device", "cpu")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def infer() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("graphtrace_example_infer", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class FakeGraph(dispatch.TorchDispatchMode):
    """Stands in for torch.cuda.CUDAGraph: records operations, repeats them over the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []
        self.replays = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        written = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.calls.append((func, args, kwargs or {}, written))
        return out

    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, written in self.calls:
            again = pytree.tree_leaves(func(*args, **kwargs))
            tensors = [leaf for leaf in again if isinstance(leaf, torch.Tensor)]
            for old, new in zip(written, tensors, strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    def pool(self) -> tuple[int, int]:
        return (0, 1)


class FakeStream:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def wait_stream(self, other: "FakeStream") -> None:
        self.log.append("wait")

    def __enter__(self) -> None:
        self.log.append("side stream")

    def __exit__(self, *error: object) -> None:
        self.log.append("main stream")


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []

    def capture(graph: FakeGraph, pool: object = None) -> FakeGraph:
        log.append(f"capture in pool {pool}")
        return graph

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: FakeStream(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: FakeStream(log))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    return log


def test_two_runs_print_the_same_and_another_seed_does_not() -> None:
    first, second, other = run(*FEW), run(*FEW), run(*FEW, "--seed", "1")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    lines = dict(line.split(maxsplit=1) for line in first.stdout.splitlines())
    assert lines["device"].startswith("cpu")
    assert lines["batches"].startswith("4: ")
    assert len(lines["checksum"]) == 16
    assert lines["checksum"] not in other.stdout
    assert "ms a batch" in first.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--sizes", "50"), "multiple of 16"),
        (("--sizes", "a,b"), "list of numbers"),
        (("--steps", "0"), "at least 1"),
        (("--slots", "many"), "not a number"),
    ],
)
def test_senseless_arguments_are_refused(arguments: tuple[str, str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert not done.stdout


def test_padding_does_not_change_a_result(infer: ModuleType) -> None:
    torch.manual_seed(3)
    model = infer.HybridEncoder(160).eval()
    with torch.inference_mode():
        for batch in infer.traffic(6, 4, (64, 96), seed=5):
            larger = torch.zeros(4, 3, 160, 160)
            larger[:, :, : batch.side, : batch.side] = batch.pixels
            exact = model(batch.pixels, batch.extents)
            padded = model(larger, batch.extents)
            assert torch.isfinite(padded).all()
            torch.testing.assert_close(exact, padded, rtol=1e-4, atol=1e-5)


def test_traffic_is_mixed_and_fits_its_captured_size(infer: ModuleType) -> None:
    batches = list(infer.traffic(40, 8, (96, 128, 224), seed=0))
    assert {batch.side for batch in batches} == {96, 128, 224}
    for batch in batches:
        assert sum(batch.tokens) <= batch.captured_tokens
        assert int(batch.extents.max()) * infer.PATCH <= batch.side
        assert tuple(batch.extents.prod(1)[: len(batch.tokens)].tolist()) == batch.tokens
        assert not batch.extents[len(batch.tokens) :].any()


def test_replayed_graphs_compute_what_the_eager_model_does(
    infer: ModuleType, fake_cuda: list[str]
) -> None:
    torch.manual_seed(0)
    cpu = torch.device("cpu")
    sizes = (48, 96)
    model = infer.HybridEncoder(max(sizes)).eval()
    with torch.inference_mode():
        eager = infer.EagerRunner(model, cpu)
        graphs = infer.GraphRunner(model, cpu, sizes, 4)
        batches = list(infer.traffic(6, 4, sizes, seed=2))
        results, served, _ = infer.serve(graphs, iter(batches), cpu)
        for batch, logits in zip(batches, results, strict=True):
            torch.testing.assert_close(logits, eager(batch)[: len(batch.tokens)])
    assert served == batches
    assert [line for line in fake_cuda if line.startswith("capture")] == [
        "capture in pool None",
        "capture in pool (0, 1)",
    ]
    replays = {side: size.graph.replays for side, size in graphs.captured.items()}
    assert sum(replays.values()) == len(batches)


def test_a_replayed_result_outlives_the_next_replay(
    infer: ModuleType, fake_cuda: list[str]
) -> None:
    torch.manual_seed(0)
    cpu = torch.device("cpu")
    model = infer.HybridEncoder(48).eval()
    with torch.inference_mode():
        graphs = infer.GraphRunner(model, cpu, (48,), 4)
        first, second = infer.traffic(2, 4, (48,), seed=2)
        kept = graphs(first)
        before = kept.clone()
        graphs(second)
        assert torch.equal(kept, before)


def test_modules_have_the_names_that_a_recording_shows(infer: ModuleType) -> None:
    names = {name for name, _ in infer.HybridEncoder(96).named_modules()}
    assert {"stem", "patch_embed", "blocks.0.attn", "blocks.0.mlp", "norm", "pool", "head"} <= names


def test_the_example_runs_without_graphtrace() -> None:
    script = (
        "import sys; sys.modules['graphtrace'] = None\n"
        f"sys.argv = [{str(EXAMPLE)!r}, *{FEW!r}]\n"
        "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(*FEW).stdout
