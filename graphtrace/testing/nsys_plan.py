# SPDX-License-Identifier: Apache-2.0
"""What a synthetic graph runs, and when its nodes run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Copy", "Kernel", "Node", "Set", "Stage", "Timing", "schedule"]

Dim3 = tuple[int, int, int]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel.

    Attributes:
        name: demangled name.
        duration_ns: how long it runs.
        grid, block: launch geometry.
        registers: registers a thread.
        static_bytes, dynamic_bytes: shared memory a block.
        stream: 0 is the launch stream; another one runs beside it within its stage.
        gap_ns: idle time of its stream before it.
    """

    name: str
    duration_ns: int
    grid: Dim3 = (1056, 1, 1)
    block: Dim3 = (256, 1, 1)
    registers: int = 32
    static_bytes: int = 0
    dynamic_bytes: int = 0
    stream: int = 0
    gap_ns: int = 800


@dataclass(frozen=True, slots=True)
class Copy:
    """A memory copy; `kind` is CUPTI's: 1 host to device, 2 device to host, 8 on the device."""

    bytes: int
    duration_ns: int
    kind: int = 8
    stream: int = 0
    gap_ns: int = 800


@dataclass(frozen=True, slots=True)
class Set:
    """A memset."""

    bytes: int
    duration_ns: int
    stream: int = 0
    gap_ns: int = 800


Node = Kernel | Copy | Set


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: the nodes that were captured while its ranges were open.

    Attributes:
        path: names from the outermost, joined by `/`; each is an NVTX range.
        kernels: its nodes, in capture order.
        gap_ns: idle time before its first node: a planted stall.
        join: whether the next stage waits for all streams, or for the launch stream alone.
    """

    path: str
    kernels: Sequence[Node]
    gap_ns: int = 0
    join: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """When nodes run within replays, ns since the first node of the replay starts.

    `begin` and `end` have a row a replay and a column a node; `wall` is the end of the last node,
    by replay.
    """

    begin: Ints
    end: Ints
    wall: Ints


def schedule(
    stages: Sequence[Stage], replays: int, jitter: float, random: np.random.Generator
) -> Timing:
    """Times of the nodes of a graph in each of its replays.

    A node starts `gap_ns` after its stream is free; a stage starts after its own gap. Streams other
    than 0 start with the stage.

    Args:
        stages: the graph.
        replays: how many replays.
        jitter: largest deviation of a duration, as a ratio of it; 0 makes all replays equal.
        random: where deviations come from.
    """
    nodes = [node for stage in stages for node in stage.kernels]
    begin = np.zeros((replays, len(nodes)), dtype=np.int64)
    end = np.zeros_like(begin)
    free = {0: np.zeros(replays, dtype=np.int64)}
    position = 0
    for stage in stages:
        start = free[0] + stage.gap_ns
        for node in stage.kernels:
            ready = np.maximum(free.get(node.stream, start), start)
            begin[:, position] = ready + node.gap_ns
            deviation = random.uniform(-jitter, jitter, replays) if jitter else np.zeros(replays)
            length = np.maximum(np.rint(node.duration_ns * (1 + deviation)), 1).astype(np.int64)
            end[:, position] = free[node.stream] = begin[:, position] + length
            position += 1
        if stage.join:
            free[0] = np.maximum.reduce(list(free.values()))
    first = begin.min(axis=1, keepdims=True)
    begin, end = begin - first, end - first
    return Timing(begin, end, end.max(axis=1))
