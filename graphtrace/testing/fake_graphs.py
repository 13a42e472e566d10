# SPDX-License-Identifier: Apache-2.0
"""Graphs of the fake driver, and what running one does: time passes, and marks are written."""

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from graphtrace.model.ring import MARK, RING_VERSION, TAG_MASK

__all__ = ["FakeClock", "FakeGraph", "FakeMemory", "FakeNode", "run_graph"]

_MARK: Final = "gt_mark"
_BASE: Final = 0x7F00_0000_0000
_LAUNCH_NS: Final = 2_000


@dataclass(slots=True)
class FakeClock:
    """Time of a device.

    Attributes:
        now_ns: true time.
        tick_ns: the device's timer moves in steps of this.
        offset_ns: what the timer is ahead of the host's clock.
        drift_ppb: how much faster it runs, in 10^-9.
    """

    now_ns: int = 1_000_000_000
    tick_ns: int = 32
    offset_ns: int = 0
    drift_ppb: int = 0

    def advance(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns

    def timer(self, at_ns: int) -> int:
        """What the device's timer shows at a time."""
        shown = at_ns + self.offset_ns + at_ns * self.drift_ppb // 1_000_000_000
        return shown - shown % self.tick_ns


@dataclass(frozen=True, slots=True)
class FakeNode:
    """A node; `explicit` where it was added by hand and not captured."""

    handle: int
    kind: int
    name: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared: int | None = None
    params: tuple[tuple[str, int], ...] = ()
    explicit: bool = False
    duration: int = 1_000
    tools_id: int = 0


@dataclass(slots=True)
class FakeGraph:
    """Nodes in order of creation, and edges with their data."""

    ident: int
    nodes: list[FakeNode] = field(default_factory=list)
    edges: dict[tuple[int, int], int] = field(default_factory=dict)
    runs: int = 0

    def __contains__(self, handle: int) -> bool:
        return self.get(handle) is not None

    def get(self, handle: int) -> FakeNode | None:
        """A node by handle."""
        return next((node for node in self.nodes if node.handle == handle), None)

    def add(self, node: FakeNode, deps: Iterable[int], kind: int) -> None:
        """Add a node behind others."""
        named = replace(node, tools_id=(self.ident << 32) | (len(self.nodes) + 1))
        self.nodes.append(named)
        for dep in deps:
            self.edges[dep, node.handle] = kind

    def before(self) -> dict[int, list[int]]:
        """Nodes that each node waits for."""
        found: dict[int, list[int]] = {node.handle: [] for node in self.nodes}
        for first, second in self.edges:
            found[second].append(first)
        return found

    def ancestors(self, roots: Iterable[int]) -> set[int]:
        """Nodes that some nodes wait for, these among them."""
        before = self.before()
        seen: set[int] = set()
        left = list(roots)
        while left:
            node = left.pop()
            if node not in seen:
                seen.add(node)
                left += before[node]
        return seen

    def order(self) -> list[FakeNode]:
        """Nodes such that each comes after what it waits for; fewer where there is a cycle."""
        waits = {handle: len(firsts) for handle, firsts in self.before().items()}
        after: dict[int, list[int]] = {}
        for first, second in self.edges:
            after.setdefault(first, []).append(second)
        by_handle = {node.handle: node for node in self.nodes}
        ready = deque(handle for handle, count in waits.items() if not count)
        done = []
        while ready:
            handle = ready.popleft()
            done.append(by_handle[handle])
            for follower in after.get(handle, ()):
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        return done

    def acyclic(self) -> bool:
        """Whether it can run."""
        return len(self.order()) == len(self.nodes)

    def copied(self, handle: Callable[[], int]) -> "FakeGraph":
        """A copy with handles of its own."""
        new = {node.handle: handle() for node in self.nodes}
        nodes = [replace(node, handle=new[node.handle]) for node in self.nodes]
        edges = {(new[first], new[second]): kind for (first, second), kind in self.edges.items()}
        return FakeGraph(self.ident, nodes, edges)

    def instantiated(self, ident: int) -> "FakeGraph":
        """What an instantiation holds: later changes of the graph do not reach it."""
        return FakeGraph(ident, list(self.nodes), dict(self.edges))


class FakeMemory:
    """Memory that host and device see at different addresses."""

    def __init__(self) -> None:
        self._next = _BASE
        self._blocks: list[tuple[int, int, mmap.mmap]] = []
        self.counters: dict[int, int] = {}

    def host(self, size: int, descriptor: int | None) -> tuple[int, int]:
        """Memory that both see: the number of the block, and its address on the device."""
        backing = -1 if descriptor is None else os.dup(descriptor)
        block = mmap.mmap(backing, size)
        address, self._next = self._next, self._next + size + 4096
        self._blocks.append((address, size, block))
        return len(self._blocks) - 1, address

    def device(self, size: int) -> int:
        """Memory of the device alone, which holds zeros."""
        address, self._next = self._next, self._next + size + 4096
        return address

    def block(self, number: int) -> mmap.mmap:
        """Host memory by the address that `host` gave."""
        return self._blocks[number][2]

    def write(self, address: int, data: bytes) -> None:
        """Write from the device.

        Raises:
            ValueError: there is no such memory, as a kernel with a bad address finds.
        """
        for begin, size, block in self._blocks:
            if begin <= address and address + len(data) <= begin + size:
                block[address - begin : address - begin + len(data)] = data
                return
        raise ValueError(f"no memory at {address:#x}")


def run_graph(graph: FakeGraph, clock: FakeClock, memory: FakeMemory) -> dict[int, tuple[int, int]]:
    """Run a graph: each node begins when those it waits for have ended.

    Returns:
        True begin and end of each node by handle, ns.
    """
    graph.runs += 1
    before = graph.before()
    start = clock.now_ns + _LAUNCH_NS
    times: dict[int, tuple[int, int]] = {}
    for node in graph.order():
        begin = max((times[first][1] for first in before[node.handle]), default=start)
        times[node.handle] = (begin, begin + node.duration)
        if node.name == _MARK:
            _write_mark(node, clock.timer(begin), begin, memory)
    clock.now_ns = max((end for _, end in times.values()), default=start)
    return times


def _write_mark(node: FakeNode, t_ns: int, cycles: int, memory: FakeMemory) -> None:
    """What the kernel does with its parameters."""
    counter, base, row_bytes, row_mask, mark, flags = (value for _, value in node.params)
    replay = (memory.counters.get(counter, 0) + (flags & 1)) & TAG_MASK
    memory.counters[counter] = replay
    at = base + (replay & row_mask) * row_bytes
    memory.write(at, MARK.pack(t_ns, replay, mark, cycles, replay, 0, RING_VERSION))
