# SPDX-License-Identifier: Apache-2.0
"""Synthetic traces of the PyTorch profiler, as Kineto wrote them in 2021 to 2026, plain or gzip.

    trace = KinetoTrace("2026")
    with trace.step(), trace.range("decode"):
        trace.eager([Kernel("embed", 4_000)])
        graph = trace.graph([Stage("decoder", [Kernel("attention", 9_000)])])
        graph.replays(100, period_ns=50_000)
    trace.write(Path("run.json.gz"))

A file says of itself that it is synthetic: readers set `InputInfo.synthetic`, and its GPU is named
so. The same calls with the same seed give the same file.

From the shell: `python -m graphtrace.testing.kineto planted_vit run.json`.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from graphtrace.model.errors import GraphtraceError, OutputError
from graphtrace.testing.command import Failed
from graphtrace.testing.kineto_form import DIALECTS, Dialect, DialectName, call_of, facts_of
from graphtrace.testing.nsys_plan import Copy, Kernel, Node, Set, Stage, Timing, schedule

__all__ = [
    "DIALECTS",
    "GPU_NAME",
    "MARK",
    "Copy",
    "Dialect",
    "Graph",
    "Kernel",
    "KinetoTrace",
    "Set",
    "Stage",
]

GPU_NAME: Final = "Synthetic GPU (graphtrace.testing)"
MARK: Final = "graphtrace_synthetic"
"""Value of the header that tells readers what the file is; its value is a version."""
BASE_NS: Final = 1_767_189_312_000_000_000
"""What times count from, ns."""

_CALL_NS: Final = 4_000
_LAUNCH_NS: Final = 6_000
_LATENCY_NS: Final = 3_000
_BETWEEN_NS: Final = 500
_START_NS: Final = 5_000_000
_STREAM: Final = 7


@dataclass(slots=True)
class KinetoTrace:
    """A trace in the making, of one process with one host thread.

    Attributes:
        dialect: how it is written.
        pid: process id, and id of its only thread.
        device: ordinal of its GPU.
        rank: rank in a distributed run, None for none.
        seed: what deviations of times come from.
        sm_count: SMs of the GPU.
        now: host time since the base, ns; calls move it on.
        free: when the device has done all its work, ns.
        events: text of each event so far.
    """

    dialect: DialectName = "2026"
    pid: int = 4242
    device: int = 0
    rank: int | None = None
    seed: int = 0
    sm_count: int = 132
    now: int = _START_NS
    free: int = 0
    events: list[str] = field(default_factory=list)
    random: np.random.Generator = field(init=False)
    _correlation: int = 100
    _external: int = 0
    _graphs: int = 0
    _steps: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def form(self) -> Dialect:
        """The dialect's details."""
        return DIALECTS[self.dialect]

    def idle(self, duration_ns: int) -> None:
        """Let host time pass."""
        self.now += duration_ns

    @contextmanager
    def range(self, text: str) -> Iterator[None]:
        """A `record_function` range around what is done inside."""
        begin = self._tick()
        yield
        self._host(self.form.annotation, text, begin, self._tick(), {})

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step of the profiler's schedule around what is done inside."""
        number, self._steps = self._steps, self._steps + 1
        with self.range(f"ProfilerStep#{number}"):
            yield

    @contextmanager
    def operator(self, name: str, stack: Sequence[str] = ()) -> Iterator[None]:
        """An operator around what is done inside, below Python functions, the outermost first."""
        begins = [self._tick() for _ in stack]
        begin = self._tick()
        yield
        args = {"Input Dims": [[8, 197, 768], []], "Input type": ["float", "Scalar"]}
        self._host(self.form.operator, name, begin, self._tick(), args)
        for function, start in zip(reversed(stack), reversed(begins), strict=True):
            self._host("python_function", function, start, self._tick(), {"Python id": start})

    def call(self, name: str, duration_ns: int = _CALL_NS) -> int:
        """A call of the runtime that takes host time; returns its correlation id."""
        begin = self._tick()
        self.now = begin + duration_ns
        self._correlation += 1
        self.launched(name, begin, self.now, self._correlation)
        return self._correlation

    def launched(self, name: str, begin: int, end: int, correlation: int) -> None:
        """Write down a call at a given time; it moves no clock."""
        self._correlation = max(self._correlation, correlation)
        args = {"cid" if self.form.amd else "cbid": 211, "correlation": correlation}
        self._host(self.form.runtime, name, begin, end, args)
        flow = {"ph": "s", "id": correlation, "pid": self.pid, "tid": self._thread()}
        self._flow(flow, begin)

    def eager(self, nodes: Sequence[Node]) -> None:
        """Launch work outside of a graph, one call a node."""
        for node in nodes:
            correlation = self.call(call_of(node, self.form))
            begin = max(self.now + _LATENCY_NS, self.free + _BETWEEN_NS)
            self.free = begin + node.duration_ns
            self.work(node, begin, self.free, correlation)

    def graph(self, stages: Sequence[Stage], *, node_ids: bool | None = None) -> "Graph":
        """Capture a graph. A trace tells nothing of a capture but its calls.

        Args:
            stages: what it runs, in order; their paths are not in the trace.
            node_ids: whether its nodes carry ids; by default as the dialect does.
        """
        for name in ("StreamBeginCapture", "StreamEndCapture", "GraphInstantiateWithFlags"):
            self.call(f"{self.form.prefix}{name}")
        self._graphs += 2
        named = self.form.node_ids if node_ids is None else node_ids
        return Graph(self, tuple(stages), self._graphs, named)

    def work(
        self,
        node: Node,
        begin: int,
        end: int,
        correlation: int,
        *,
        node_id: int | None = None,
        in_graph: bool = False,
    ) -> None:
        """Write down device work at a given time; it moves no clock.

        Args:
            node: what ran.
            begin: when it begins, ns since the base.
            end: when it ends.
            correlation: id of the call that launched it.
            node_id: its graph node id, the upper 32 bits of which are the instantiated graph.
            in_graph: whether it ran in a graph; ROCm then leaves out its grid.
        """
        place: dict[str, Any] = {"device": self.device, "context": 1}
        if self.form.amd:
            del place["context"]
        place |= {"stream": _STREAM + node.stream, "correlation": correlation}
        category, name, facts = facts_of(node, self.form, self.sm_count, in_graph=in_graph)
        if node_id is not None:
            facts |= {"graph node id": node_id, "graph id": node_id >> 32}
        lane: int | str = _STREAM + node.stream
        lane = f"stream {lane}" if self.form.quoted else lane
        self._event(category, name, self.device, lane, begin, end, place | facts)
        self._flow({"ph": "f", "id": correlation, "pid": self.device, "tid": lane}, begin)

    def _thread(self) -> int | str:
        return str(self.pid) if self.form.quoted else self.pid

    def _tick(self) -> int:
        self.now += 1_000
        return self.now

    def _host(self, category: str, name: str, begin: int, end: int, args: dict[str, Any]) -> None:
        self._external += 1
        linked = {self.form.external: self._external, **args}
        self._event(category, name, self.pid, self._thread(), begin, end, linked)

    def _event(
        self,
        category: str,
        name: str,
        pid: int,
        tid: int | str,
        begin: int,
        end: int,
        args: dict[str, Any],
    ) -> None:
        self.events.append(
            f'  {{\n    "ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {pid}, '
            f'"tid": {json.dumps(tid)},\n    "ts": {self._time(begin)}, '
            f'"dur": {self._length(begin, end)},\n    "args": {{\n      {json.dumps(args)[1:-1]}\n'
            "    }\n  }"
        )

    def _flow(self, members: dict[str, Any], time: int) -> None:
        text = json.dumps(members)[:-1]
        category = self.form.flow
        self.events.append(
            f'  {text}, "ts": {self._time(time)}, "cat": "{category}", "name": "{category}"}}'
        )

    def _time(self, time: int) -> str:
        if self.form.fractions:
            return f"{time // 1000}.{time % 1000:03}"
        return str((BASE_NS + time) // 1000)

    def _length(self, begin: int, end: int) -> str:
        if self.form.fractions:
            return f"{(end - begin) // 1000}.{(end - begin) % 1000:03}"
        # Both ends were cut to whole microseconds, each on its own.
        return str((BASE_NS + end) // 1000 - (BASE_NS + begin) // 1000)

    def header(self) -> dict[str, Any]:
        """What stands before the events."""
        gpu: dict[str, Any] = {
            "id": self.device,
            "name": "" if self.form.amd else GPU_NAME,
            "totalGlobalMem": 85_018_279_936,
            "computeMajor": 9,
            "computeMinor": 4 if self.form.amd else 0,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerMultiprocessor": 2048,
            "warpSize": 64 if self.form.amd else 32,
            "numSms": self.sm_count,
        }
        header: dict[str, Any] = {"schemaVersion": 1, MARK: 1, "deviceProperties": [gpu]}
        if self.rank is not None:
            header["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": 8}
        if self.form.amd:
            header |= {"roctracer_version": 4.1, "hip_runtime_version": 70051831}
        if self.form.fractions:
            header |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
        return header

    def text(self, order: Sequence[int] | None = None) -> str:
        """The whole trace.

        Args:
            order: positions of the events in the order to write them in; as they came by default.
        """
        events = self.events if order is None else [self.events[place] for place in order]
        head = json.dumps(self.header(), indent=2)[:-2]
        listed = ",\n".join(events)
        return f'{head},\n  "traceEvents": [\n{listed}\n  ],\n  "traceName": "synthetic.json"\n}}\n'

    def write(self, path: Path, *, force: bool = False) -> None:
        """Write the file, compressed where its name ends in `.gz`.

        Raises:
            OutputError: it exists and `force` is not given, or it cannot be written.
        """
        if path.exists() and not force:
            raise OutputError(
                f"{path} exists already.",
                "It would be replaced.",
                "Choose another name, or say --force.",
            )
        data = self.text().encode()
        part = path.with_name(path.name + ".part")
        try:
            # No time inside: one seed gives one file.
            part.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise OutputError(
                f"{path} cannot be written.",
                f"The system says: {error}.",
                "Check that the folder exists, may be written to, and has space.",
            ) from error


@dataclass(frozen=True, slots=True)
class Graph:
    """An instantiated graph.

    Attributes:
        trace: where its replays are written down.
        stages: what it runs.
        exec_id: id of the instantiated graph.
        node_ids: whether its nodes carry ids.
    """

    trace: KinetoTrace
    stages: tuple[Stage, ...]
    exec_id: int
    node_ids: bool

    def replays(self, count: int, period_ns: int, *, jitter: float = 0.0) -> Timing:
        """Launch the graph again and again.

        Args:
            count: how often.
            period_ns: from launch to launch, ns; longer than a replay it plants a host-bound gap.
            jitter: see `graphtrace.testing.nsys_plan.schedule`.

        Returns:
            When nodes ran, relative to the first node of their replay.
        """
        trace = self.trace
        nodes = [node for stage in self.stages for node in stage.kernels]
        timing = schedule(self.stages, count, jitter, trace.random)
        name = f"{trace.form.prefix}GraphLaunch"
        for begin, end, wall in zip(
            timing.begin.tolist(), timing.end.tolist(), timing.wall.tolist(), strict=True
        ):
            next_launch = trace.now + period_ns
            correlation = trace.call(name, _LAUNCH_NS)
            start = max(trace.now + _LATENCY_NS, trace.free + _BETWEEN_NS)
            for number, node in enumerate(nodes):
                trace.work(
                    node,
                    start + begin[number],
                    start + end[number],
                    correlation,
                    node_id=self.exec_id << 32 | number + 1 if self.node_ids else None,
                    in_graph=True,
                )
            trace.free = start + wall
            trace.now = max(trace.now, next_launch)
        return timing


@click.group()
def main() -> None:
    """Write synthetic traces of the PyTorch profiler."""


@main.command("planted_vit")
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dialect", type=click.Choice(sorted(DIALECTS)), default="2026", show_default=True)
@click.option("--replays", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def _planted_vit(output: Path, dialect: DialectName, replays: int, seed: int, force: bool) -> None:
    """Replays of the ViT-hybrid encoder that `graphtrace.testing.nsys` plants too."""
    from graphtrace.testing.nsys_presets import vit_stages

    trace = KinetoTrace(dialect, seed=seed)
    stages = vit_stages()
    with trace.step():
        trace.graph(stages).replays(replays, period_ns=1_000_000, jitter=0.02)
    try:
        trace.write(output, force=force)
    except GraphtraceError as error:
        raise Failed(error) from error
    click.echo(f"{output}: {replays} synthetic replays", err=True)


if __name__ == "__main__":
    main()
