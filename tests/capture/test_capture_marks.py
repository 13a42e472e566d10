# SPDX-License-Identifier: Apache-2.0
"""Marks in a captured graph: programs capture, run and order their work as they did without."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import graphtrace
from graphtrace.capture.cuda_port import KIND_MEMCPY, CudaError
from graphtrace.capture.drain import Block
from graphtrace.capture.graph_marks import Border, Inserted, Mode, Place, insert_marks, marks_of
from graphtrace.model.ring import block_bytes
from graphtrace.testing.fake_cuda import FakeCuda
from graphtrace.testing.fake_graphs import FakeGraph, run_graph

ROWS = 8
PROGRAMS = 5_000
IMAGE = b".visible .entry gt_mark(\n.visible .entry gt_nop()\n"


@dataclass
class Program:
    """A program that captures, with the stages that it opens."""

    gpu: FakeCuda
    origin: int
    borders: list[Border] = field(default_factory=list)
    stages: int = 0
    naive: bool = False
    inserted: Inserted | None = None
    memory: int = 0

    def border(self, stream: int, stage: int, *, begins: bool) -> None:
        if self.naive:
            self.gpu.user_launch(stream, "gt_mark")
            return
        info = self.gpu.capture_info(stream)
        count = self.gpu.node_count(info.graph)
        self.borders.append(Border(stage, begins, info.deps, count, info.edge_data))

    def stage(self, rng: random.Random, stream: int, depth: int = 0) -> None:
        self.stages += 1
        mine = self.stages
        self.border(stream, mine, begins=True)
        for _ in range(rng.randint(0, 3)):
            if depth < 2 and rng.random() < 0.2:
                self.stage(rng, stream, depth + 1)
            elif rng.random() < 0.1:
                self.gpu.user_node(stream, KIND_MEMCPY)
            else:
                self.gpu.user_launch(
                    stream, duration=rng.randint(100, 5_000), programmatic=rng.random() < 0.1
                )
        self.border(stream, mine, begins=False)

    def side(self, rng: random.Random) -> None:
        """A stage on a side stream; its last statement may come after the event that joins it."""
        stream = self.gpu.user_stream()
        self.gpu.wait_event(stream, self.gpu.record_event(self.origin))
        self.stages += 1
        mine = self.stages
        self.border(stream, mine, begins=True)
        for _ in range(rng.randint(1, 3)):
            self.gpu.user_launch(stream, duration=rng.randint(100, 5_000))
        last = rng.random() < 0.5
        joined = self.gpu.record_event(stream) if last else 0
        self.border(stream, mine, begins=False)
        joined = joined or self.gpu.record_event(stream)
        for _ in range(rng.randint(0, 2)):
            self.gpu.user_launch(self.origin)
        self.gpu.wait_event(self.origin, joined)

    def run(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 6)):
            choice = rng.random()
            if choice < 0.3:
                self.gpu.user_launch(self.origin, programmatic=rng.random() < 0.1)
            elif choice < 0.65:
                self.stage(rng, self.origin)
            else:
                self.side(rng)

    def insert(self, mode: Mode) -> None:
        """What the recorder does just before the capture ends."""
        info = self.gpu.capture_info(self.origin)
        function = self.gpu.functions_by_name()["gt_mark"]
        _, total = marks_of(self.borders)
        size = block_bytes(total, ROWS)
        self.memory, address = self.gpu.memory.host(size, None)
        place = Place(self.gpu.device_address(), address, ROWS, total * 32)
        self.inserted = insert_marks(self.gpu, info.graph, self.borders, function, place, mode=mode)


def captured(seed: int, mode: Mode | None, *, naive: bool = False) -> tuple[Program, FakeGraph]:
    """A random program, captured; `mode` None adds no marks."""
    gpu = FakeCuda(seed=seed)
    gpu.init()
    gpu.load(0, IMAGE)
    program = Program(gpu, gpu.user_stream(), naive=naive)
    gpu.begin_capture(program.origin)
    program.run(random.Random(seed))
    if mode is not None:
        program.insert(mode)
    handle = gpu.end_capture(program.origin)
    return program, gpu.graph_of(handle)


def users(graph: FakeGraph) -> list[int]:
    return [node.handle for node in graph.nodes if not node.explicit]


def order_of(graph: FakeGraph) -> set[tuple[int, int]]:
    """Pairs of the program's own nodes by place of which one runs before the other."""
    place = {handle: at for at, handle in enumerate(users(graph))}
    return {
        (place[first], place[node])
        for node in place
        for first in graph.ancestors([node])
        if first in place and first != node
    }


@pytest.mark.parametrize("mode", ["chain", "leaf"])
def test_no_legal_capture_fails_because_of_marks(mode: Mode) -> None:
    for seed in range(PROGRAMS):
        program, graph = captured(seed, mode)
        assert graph.acyclic()
        assert program.inserted is not None
        assert len(program.inserted.nodes) == marks_of(program.borders)[1]


def test_launching_marks_instead_breaks_legal_captures() -> None:
    """Why nothing is launched at a border: this test fails if the fake forgot the rule."""
    broken = 0
    for seed in range(500):
        captured(seed, None)
        try:
            captured(seed, None, naive=True)
        except CudaError as error:
            assert error.code == 904
            broken += 1
    assert broken > 100


@pytest.mark.parametrize("mode", ["chain", "leaf"])
def test_what_the_program_ordered_stays_ordered(mode: Mode) -> None:
    for seed in range(300):
        _, plain = captured(seed, None)
        _, marked = captured(seed, mode)
        assert len(users(plain)) == len(users(marked))
        assert order_of(plain) <= order_of(marked)
        if mode == "leaf":
            assert order_of(plain) == order_of(marked)


def test_chained_marks_order_nothing_but_what_follows_their_border() -> None:
    """What a chain adds: work captured after the border, behind what the border waited for."""
    for seed in range(300):
        _, plain = captured(seed, None)
        program, marked = captured(seed, "chain")
        starts = {b.count for b in program.borders if b.begins}
        for first, second in order_of(marked) - order_of(plain):
            assert any(first < count <= second for count in starts)


def test_marks_tell_when_the_stage_ran() -> None:
    """An end is at the end of the last work before it, a chained begin before what follows."""
    for seed in range(200):
        program, graph = captured(seed, "chain")
        gpu = program.gpu
        assert program.inserted is not None
        times = run_graph(graph, gpu.clock, gpu.memory)
        reader = Block(
            memoryview(gpu.memory.block(program.memory)), len(program.inserted.nodes), ROWS
        )
        found = reader.step(final=True)
        assert reader.lost == 0
        shown = dict(zip(found.mark.tolist(), found.t_ns.tolist(), strict=True))
        for border, mark in zip(program.borders, program.inserted.mark_of_border, strict=True):
            begin = times[program.inserted.nodes[mark]][0]
            assert shown[mark] == gpu.clock.timer(begin)
            root_ended = times[program.inserted.nodes[0]][1]
            assert begin == max((times[dep][1] for dep in border.deps), default=root_ended)


def test_a_programmatic_launch_is_left_alone() -> None:
    gpu = FakeCuda()
    gpu.init()
    gpu.load(0, IMAGE)
    program = Program(gpu, gpu.user_stream())
    gpu.begin_capture(program.origin)
    gpu.user_launch(program.origin)
    program.border(program.origin, 1, begins=True)
    gpu.user_launch(program.origin, programmatic=True)
    program.border(program.origin, 1, begins=False)
    program.insert("chain")
    graph = gpu.graph_of(gpu.end_capture(program.origin))
    assert program.inserted is not None
    assert program.inserted.programmatic == {1}
    assert 1 in program.inserted.leaves
    first, second = users(graph)
    assert graph.edges[first, second] == 1


def test_an_empty_graph_gets_a_root_and_an_end() -> None:
    gpu = FakeCuda()
    gpu.init()
    gpu.load(0, IMAGE)
    program = Program(gpu, gpu.user_stream())
    gpu.begin_capture(program.origin)
    program.insert("chain")
    graph = gpu.graph_of(gpu.end_capture(program.origin))
    assert len(graph.nodes) == 2
    assert graph.acyclic()


@pytest.mark.parametrize("call", ["cuGraphAddKernelNode", "cuGraphAddDependencies"])
def test_a_failure_half_way_leaves_a_graph_that_runs(call: str) -> None:
    for nth in range(1, 12):
        left = nth

        def fail(name: str) -> int:
            nonlocal left
            left -= name == call
            return 2 if left == 0 and name == call else 0

        gpu = FakeCuda(fail=fail)
        gpu.init()
        gpu.load(0, IMAGE)
        program = Program(gpu, gpu.user_stream())
        gpu.begin_capture(program.origin)
        program.run(random.Random(7))
        try:
            program.insert("chain")
        except CudaError as error:
            assert error.code == 2
        graph = gpu.graph_of(gpu.end_capture(program.origin))
        assert graph.acyclic()
        run_graph(graph, gpu.clock, gpu.memory)


def test_borders_at_one_place_share_a_mark() -> None:
    borders = [
        Border(1, begins=True, deps=(), count=0),
        Border(1, begins=False, deps=(5,), count=1),
        Border(2, begins=True, deps=(5,), count=1),
        Border(2, begins=False, deps=(6, 5), count=2),
        Border(3, begins=True, deps=(5, 6), count=2),
    ]
    assert marks_of(borders) == ((1, 2, 2, 3, 3), 5)
    assert marks_of([]) == ((), 2)


def test_the_kernel_that_ships_has_the_parameters_that_are_passed() -> None:
    """Sizes and order of the parameters in the PTX against those that `Place` gives."""
    image = (Path(graphtrace.__file__).parent / "capture" / "gt_mark.ptx").read_text()
    head = image.split(".entry gt_mark(", 1)[1].split(")", 1)[0]
    sizes = [line.split()[1] for line in head.strip().splitlines()]
    passed = [{"Q": ".u64", "I": ".u32"}[kind] for kind, _ in Place(1, 2, 8, 32).params(0)]
    assert sizes == passed
