# SPDX-License-Identifier: Apache-2.0
"""Capture, instantiation and replays of a synthetic graph."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from graphtrace.testing.nsys_file import Cells
from graphtrace.testing.nsys_plan import Copy, Kernel, Node, Set, Stage, Timing, schedule

if TYPE_CHECKING:
    from graphtrace.testing.nsys import Process

__all__ = ["BETWEEN_NS", "CALL_NS", "LATENCY_NS", "PUSH_POP", "Capture", "Graph", "call_of"]

Ints = npt.NDArray[np.int64]
_Open = list[tuple[str, ExitStack]]

CALL_NS: Final = 4_000
"""Host time of a call."""
LATENCY_NS: Final = 3_000
"""From the end of a launching call to the start of its work on an idle device."""
BETWEEN_NS: Final = 500
"""Least time between two pieces of work of one stream."""
PUSH_POP: Final = 59
_LAUNCH_NS: Final = 6_000
_NODE_CREATION, _EXEC_CREATION, _GRAPH_CREATION, _GRAPH_CLONE = 77, 94, 95, 96
"""Event classes of nsys (its table ENUM_NSYS_EVENT_CLASS)."""


def call_of(node: Node) -> str:
    """The call that launches a node, or captures it."""
    match node:
        case Kernel():
            return "cudaLaunchKernel_v7000"
        case Copy():
            return "cudaMemcpyAsync_v3020"
        case Set():
            return "cudaMemsetAsync_v3020"


class Capture:
    """Writes down the capture and the instantiation of a graph."""

    def __init__(
        self,
        process: "Process",
        stages: Sequence[Stage],
        domain: str,
        hops: int,
    ) -> None:
        self.process = process
        self.stages = tuple(stages)
        self.domain = domain
        self.hops = hops
        self.node_numbers = range(1, 1 + sum(len(stage.kernels) for stage in stages))

    def graph(self) -> "Graph":
        """The graph, ready to be replayed."""
        process = self.process
        ids = process.new_graphs(self.hops + 1)
        process.call("cudaStreamBeginCapture_v10000")
        self._capture(ids[0])
        process.call("cudaStreamEndCapture_v10000")
        self._graph_event(_GRAPH_CREATION, "Graph Creation", graph=ids[0])
        process.call("cudaGraphInstantiateWithFlags_v11040", 40_000)
        self._clone(ids)
        return Graph(process, self.stages, ids[0], ids[-1], list(self.node_numbers))

    def _capture(self, graph: int) -> None:
        process, numbers = self.process, iter(self.node_numbers)
        open_ranges: list[tuple[str, ExitStack]] = []
        for stage in self.stages:
            names = stage.path.split("/")
            same = 0
            while same < min(len(names), len(open_ranges)) and open_ranges[same][0] == names[same]:
                same += 1
            self._close(open_ranges, same)
            for name in names[same:]:
                opened = ExitStack()
                opened.enter_context(process.range(name, domain=self.domain))
                open_ranges.append((name, opened))
            for node in stage.kernels:
                process.call(call_of(node))
                # The node comes to be inside the call that was captured.
                self._node_event(process.now - CALL_NS // 2, graph << 32 | next(numbers), None)
        self._close(open_ranges, 0)

    def _close(self, open_ranges: _Open, keep: int) -> None:
        while len(open_ranges) > keep:
            _, opened = open_ranges.pop()
            opened.close()

    def _clone(self, ids: list[int]) -> None:
        moment = self.process.now - 30_000
        for hop, (origin, copy) in enumerate(pairwise(ids)):
            for number in self.node_numbers:
                time = moment + hop * 10_000 + number
                self._node_event(time, copy << 32 | number, origin << 32 | number)
        for origin, copy in pairwise(ids[:-1]):
            self._graph_event(_GRAPH_CLONE, "Graph Clone", graph=copy, original=origin)
        self._graph_event(_EXEC_CREATION, "GraphExec Creation", graph=ids[0], instance=ids[-1])

    def _event(self, time: int, event_class: int, name: str) -> dict[str, Cells]:
        return {
            "start": time,
            "end": time,
            "eventClass": event_class,
            "globalTid": self.process.global_tid,
            "nameId": self.process.export.strings.id(name),
        }

    def _node_event(self, time: int, node: int, origin: int | None) -> None:
        columns = self._event(time, _NODE_CREATION, "Graph Node Creation")
        columns |= {"graphNodeId": node, "originalGraphNodeId": origin}
        self.process.export.rows.add(self.process.export.dialect.node_events, 1, columns)

    def _graph_event(
        self,
        event_class: int,
        name: str,
        *,
        graph: int,
        original: int | None = None,
        instance: int | None = None,
    ) -> None:
        if self.process.export.dialect.node_events == "CUDA_GRAPH_EVENTS":
            return
        columns = self._event(self.process.now, event_class, name)
        columns |= {"graphId": graph, "originalGraphId": original, "graphExecId": instance}
        self.process.export.rows.add("CUDA_GRAPH_EVENTS", 1, columns)


@dataclass(slots=True)
class Graph:
    """An instantiated graph.

    Attributes:
        stages: what it runs.
        graph_id, exec_id: ids of the captured and the instantiated graph.
        replayed: how often it was launched.
    """

    process: "Process"
    stages: tuple[Stage, ...]
    graph_id: int
    exec_id: int
    node_numbers: list[int]
    replayed: int = 0

    def replays(
        self,
        count: int,
        period_ns: int,
        *,
        jitter: float = 0.0,
        granularity: Literal["node", "graph"] = "node",
        labels: Sequence[str] = (),
        upload: Copy | None = None,
    ) -> Timing:
        """Launch the graph again and again.

        Args:
            count: how often.
            period_ns: from launch to launch, ns; longer than a replay it plants a host-bound gap.
            jitter: see `graphtrace.testing.nsys_plan.schedule`.
            granularity: what is recorded: each node, or the replay as a whole.
            labels: messages of an NVTX range around each step, in turn.
            upload: a copy into the graph's input, in front of each launch.

        Returns:
            When nodes ran, relative to the first node of their replay.
        """
        process = self.process
        timing = schedule(self.stages, count, jitter, process.export.random)
        steps = process.now + 1_000 + period_ns * np.arange(count, dtype=np.int64)
        lead = 0 if upload is None else CALL_NS + 200
        launches = steps + 200 + lead
        # The copy into the graph's input runs between two replays, on the same stream.
        copied = BETWEEN_NS + (0 if upload is None else upload.duration_ns + BETWEEN_NS)
        ready = launches + _LAUNCH_NS + LATENCY_NS + copied
        begin = _one_after_another(ready, timing.wall + copied, process.free + copied)
        if upload is not None:
            self._uploads(upload, steps + 100, begin)
        correlation = self._calls("cudaGraphLaunch_v10000", launches, _LAUNCH_NS)
        self._record(granularity, timing, begin, correlation)
        if labels:
            self._steps(steps, launches + _LAUNCH_NS + 100, labels)
        if count:
            process.now = int(launches[-1]) + _LAUNCH_NS + 1_000
            process.free = int((begin + timing.wall).max())
        self.replayed += count
        return timing

    def _calls(self, name: str, begin: Ints, duration_ns: int) -> Ints:
        process = self.process
        correlation = process.new_correlations(len(begin))
        columns: dict[str, Cells] = {
            "start": begin,
            "end": begin + duration_ns,
            "eventClass": 0,
            "globalTid": process.global_tid,
            "correlationId": correlation,
            "nameId": process.export.strings.id(name),
            "returnValue": 0,
        }
        process.export.rows.add("CUPTI_ACTIVITY_KIND_RUNTIME", len(begin), columns)
        return correlation

    def _uploads(self, upload: Copy, begin: Ints, replay: Ints) -> None:
        correlation = self._calls(call_of(upload), begin, CALL_NS)
        # It ends before the replay that needs it starts.
        end = replay - BETWEEN_NS
        start = end - upload.duration_ns
        self.process.activities(upload, start, end, correlation, None)

    def _record(self, granularity: str, timing: Timing, begin: Ints, correlation: Ints) -> None:
        process = self.process
        if granularity == "node":
            nodes = [node for stage in self.stages for node in stage.kernels]
            for position, (node, number) in enumerate(zip(nodes, self.node_numbers, strict=True)):
                process.activities(
                    node,
                    begin + timing.begin[:, position],
                    begin + timing.end[:, position],
                    correlation,
                    self.exec_id << 32 | number,
                )
            return
        if not process.export.dialect.graph_trace:
            return
        columns: dict[str, Cells] = {
            "start": begin,
            "end": begin + timing.wall,
            "deviceId": process.device,
            "contextId": 1,
            "streamId": 7,
            "correlationId": correlation,
            "globalPid": process.global_pid,
            "graphId": self.graph_id,
            "graphExecId": self.exec_id,
        }
        process.export.rows.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", len(begin), columns)

    def _steps(self, begin: Ints, end: Ints, labels: Sequence[str]) -> None:
        ids = np.asarray([self.process.export.strings.id(label) for label in labels])
        columns: dict[str, Cells] = {
            "start": begin,
            "end": end,
            "eventType": PUSH_POP,
            "globalTid": self.process.global_tid,
            "textId": np.resize(ids, len(begin)),
            "domainId": 0,
        }
        self.process.export.rows.add("NVTX_EVENTS", len(begin), columns)


def _one_after_another(ready: Ints, lengths: Ints, free: int) -> Ints:
    """Begin of each replay: when it is ready and the one before it is done."""
    done = np.cumsum(lengths)
    before = done - lengths
    # begin[i] - before[i] never falls: a replay that waits keeps the distance of the one before.
    start: Ints = np.maximum.accumulate(np.maximum(ready - before, free)) + before
    return start
