# SPDX-License-Identifier: Apache-2.0
"""Synthetic nsys exports with the schema of real ones and stalls at known places.

    export = NsysExport(dialect="2025")
    process = export.process(pid=4242)
    graph = process.graph([Stage("encoder.layers.0/attn", [Kernel("softmax", 9_000)])])
    graph.replays(100, period_ns=50_000)
    export.write(Path("run.sqlite"))
    export.write_parquetdir(Path("run_parquet"))

A file says of itself that it is synthetic: readers set `InputInfo.synthetic`, and its GPU is named
so. The same calls with the same seed give the same rows.

From the shell: `python -m graphtrace.testing.nsys planted_vit run.sqlite`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import click
import numpy as np
import numpy.typing as npt

from graphtrace.model.errors import GraphtraceError
from graphtrace.model.vocabulary import STAGE_DOMAIN
from graphtrace.testing.command import Failed
from graphtrace.testing.nsys_file import Cells, Rows, Strings, write_database
from graphtrace.testing.nsys_graph import (
    BETWEEN_NS,
    CALL_NS,
    LATENCY_NS,
    PUSH_POP,
    Capture,
    Graph,
    call_of,
)
from graphtrace.testing.nsys_nvtx import Categories, Payload
from graphtrace.testing.nsys_plan import Copy, Kernel, Node, Set, Stage
from graphtrace.testing.nsys_schema import DIALECTS, Dialect, DialectName

__all__ = [
    "GPU_NAME",
    "MARK",
    "Copy",
    "Graph",
    "Kernel",
    "NsysExport",
    "Payload",
    "Process",
    "Set",
    "Stage",
]

GPU_NAME: Final = "Synthetic GPU (graphtrace.testing)"
MARK: Final = "GRAPHTRACE_SYNTHETIC"
"""Name of the meta data record that tells readers what the file is; its value is a version."""

_MACHINE: Final = 1 << 48
_START_NS: Final = 1_000_000_000
_START_END, _DOMAIN = 60, 75

Ints = npt.NDArray[np.int64]


class NsysExport:
    """An export in the making.

    Args:
        dialect: whose schema it has.
        seed: what deviations of times come from.
        sm_count, l2_bytes: facts of its GPUs.
    """

    def __init__(
        self,
        dialect: DialectName = "2025",
        *,
        seed: int = 0,
        sm_count: int = 132,
        l2_bytes: int = 50 << 20,
    ) -> None:
        self.dialect: Dialect = DIALECTS[dialect]
        self.rows = Rows()
        self.strings = Strings()
        self.random = np.random.default_rng(seed)
        self.sm_count = sm_count
        self.l2_bytes = l2_bytes
        self._processes: list[Process] = []

    def process(self, pid: int, *, device: int = 0) -> "Process":
        """Add a process that uses one GPU.

        Args:
            pid: process id, below 2**24.
            device: ordinal of the GPU, in the process and in the machine.
        """
        process = Process(self, pid, device)
        self._processes.append(process)
        return process

    def write(self, path: Path, *, force: bool = False) -> None:
        """Write the file.

        Raises:
            OutputError: it exists and `force` is not given, or it cannot be written.
        """
        write_database(path, self.dialect, *self._final(), force=force)

    def write_parquetdir(self, path: Path, *, force: bool = False) -> None:
        """Write the same as a folder of Parquet files, as `nsys export --type parquetdir` does.

        Raises:
            OutputError: it exists and `force` is not given, or it cannot be written.
        """
        from graphtrace.testing.nsys_folder import write_folder

        write_folder(path, self.dialect, *self._final(), force=force)

    def _final(self) -> tuple[Rows, list[str]]:
        """All rows in order of time, and the tables that have one.

        As in a lazy export, others are absent.
        """
        final = Rows({table: list(blocks) for table, blocks in self.rows.blocks.items()})
        self._describe(final)
        final = final.ordered("start")
        return final, [table for table in self.dialect.tables if final.count(table)]

    def _describe(self, rows: Rows) -> None:
        last = max((process.last_ns for process in self._processes), default=_START_NS)
        details: dict[str, Cells] = {"globalVid": _MACHINE, "startTime": 0}
        rows.add("ANALYSIS_DETAILS", 1, details | {"duration": last + 1, "stopTime": last + 1})
        for number, device in enumerate(sorted({p.device for p in self._processes})):
            rows.add("TARGET_INFO_GPU", 1, self._gpu(number, device))
        for process in self._processes:
            names: dict[str, Cells] = {
                "globalPid": process.global_pid,
                "pid": process.pid,
                "name": "synthetic",
            }
            rows.add("PROCESSES", 1, names)
            if "TARGET_INFO_CUDA_DEVICE" in self.dialect.tables:
                link: dict[str, Cells] = {
                    "gpuId": process.device,
                    "cudaId": process.device,
                    "pid": process.pid,
                }
                rows.add("TARGET_INFO_CUDA_DEVICE", 1, link)
        records = {
            "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
            "EXPORT_PRODUCT_VERSION": self.dialect.version,
            "EXPORT_SCHEMA_VERSION": self.dialect.schema_version,
            MARK: "1",
        }
        for name, value in records.items():
            rows.add(self.dialect.meta, 1, {"name": name, "value": value})
        for text, number in self.strings.ids.items():
            rows.add("StringIds", 1, {"id": number, "value": text})

    def _gpu(self, number: int, device: int) -> dict[str, Cells]:
        return {
            "vmId": _MACHINE,
            "id": device,
            "name": GPU_NAME,
            "busLocation": f"0000:{number + 1:02x}:00.0",
            "isDiscrete": 1,
            "l2CacheSize": self.l2_bytes,
            "memoryBandwidth": 3_352_320_000_000,
            "smCount": self.sm_count,
            "uuid": f"00000000-0000-0000-0000-{device:012x}",
            "cuDevice": device,
            "threadsPerWarp": 32,
            "maxWarpsPerSm": 64,
            "maxBlocksPerSm": 32,
            "computeMajor": 9,
            "computeMinor": 0,
        }


class Process:
    """A process with one host thread, whose clock `now` its calls move on.

    Attributes:
        now: host time, ns.
        free: when the device has done all its work, ns.
    """

    def __init__(self, export: NsysExport, pid: int, device: int) -> None:
        self.export = export
        self.pid = pid
        self.device = device
        self.global_pid = _MACHINE | pid << 24
        self.global_tid = self.global_pid | pid & 0xFFFFFF
        self.now = _START_NS
        self.free = 0
        self._correlation = 100
        self._graph_id = 0
        self._domains: dict[str, int] = {"": 0}
        self._categories = Categories()

    @property
    def last_ns(self) -> int:
        """Time after which nothing happens."""
        return max(self.now, self.free)

    def idle(self, duration_ns: int) -> None:
        """Let host time pass."""
        self.now += duration_ns

    @contextmanager
    def range(
        self,
        text: str,
        *,
        domain: str = "",
        kind: Literal["push_pop", "start_end"] = "push_pop",
        registered: bool = True,
        category: str | int | None = None,
        payload: Payload | None = None,
    ) -> Iterator[None]:
        """An NVTX range around what is done inside.

        Args:
            text: message.
            domain: its domain; the default one by default.
            kind: push and pop, or start and end.
            registered: whether the message is a registered string.
            category: a name, or a number that nobody gave a name.
            payload: a number that goes with it.
        """
        number = self._domain(domain)
        beside = self._categories.columns(self, number, category)
        beside |= {} if payload is None else payload.columns()
        begin = self._tick()
        yield
        columns: dict[str, Cells] = {
            "start": begin,
            "end": self._tick(),
            "eventType": PUSH_POP if kind == "push_pop" else _START_END,
            "globalTid": self.global_tid,
            "domainId": number,
        }
        columns |= {"textId": self.export.strings.id(text)} if registered else {"text": text}
        columns |= beside
        self.export.rows.add("NVTX_EVENTS", 1, columns)

    def _domain(self, name: str) -> int:
        if name not in self._domains:
            self._domains[name] = number = len(self._domains)
            columns: dict[str, Cells] = {
                "start": self.now,
                "eventType": _DOMAIN,
                "text": name,
                "globalTid": self.global_tid,
                "domainId": number,
            }
            self.export.rows.add("NVTX_EVENTS", 1, columns)
        return self._domains[name]

    def _tick(self) -> int:
        self.now += 100
        return self.now

    def call(self, name: str, duration_ns: int = CALL_NS, *, driver: bool = False) -> int:
        """A call into CUDA that takes host time; returns its correlation id."""
        begin = self._tick()
        self.now += duration_ns
        self._correlation += 1
        columns: dict[str, Cells] = {
            "start": begin,
            "end": self.now,
            "eventClass": int(driver),
            "globalTid": self.global_tid,
            "correlationId": self._correlation,
            "nameId": self.export.strings.id(name),
            "returnValue": 0,
        }
        self.export.rows.add("CUPTI_ACTIVITY_KIND_RUNTIME", 1, columns)
        return self._correlation

    def eager(self, nodes: Sequence[Node]) -> None:
        """Launch work outside of a graph, one call a node."""
        for node in nodes:
            correlation = self.call(call_of(node))
            begin = max(self.now + LATENCY_NS, self.free + BETWEEN_NS)
            self.free = begin + node.duration_ns
            self.activities(node, np.asarray([begin]), np.asarray([self.free]), correlation, None)

    def graph(
        self,
        stages: Sequence[Stage],
        *,
        hops: int = 1,
        domain: str = STAGE_DOMAIN,
        recorded: bool = True,
    ) -> "Graph":
        """Capture and instantiate a graph: its stages are NVTX ranges open at the capture.

        Args:
            stages: what is captured, in order.
            hops: clonings from captured node to replayed node, at least 1.
            domain: NVTX domain of the ranges.
            recorded: whether the profiler saw it; else the nodes have no lineage.
        """
        if recorded:
            return Capture(self, stages, domain, hops).graph()
        rows, domains = self.export.rows, dict(self._domains)
        self.export.rows = Rows()
        try:
            return Capture(self, stages, domain, hops).graph()
        finally:
            self.export.rows, self._domains = rows, domains

    def new_graphs(self, count: int) -> list[int]:
        """Graph ids that were not used yet."""
        self._graph_id += count
        return list(range(self._graph_id - count + 1, self._graph_id + 1))

    def new_correlations(self, count: int) -> Ints:
        """Correlation ids that were not used yet."""
        self._correlation += count
        return self._correlation + 1 - count + np.arange(count, dtype=np.int64)

    def activities(
        self,
        node: Node,
        begin: Ints,
        end: Ints,
        correlation: Ints | int,
        node_id: int | None,
    ) -> None:
        """Work of one node, run once for each begin."""
        place: dict[str, Cells] = {
            "start": begin,
            "end": end,
            "deviceId": self.device,
            "contextId": 1,
            "streamId": 7 + node.stream,
            "correlationId": correlation,
            "globalPid": self.global_pid,
            "graphNodeId": node_id,
        }
        table, facts = self._facts(node, node_id)
        self.export.rows.add(table, len(begin), place | facts)

    def _facts(self, node: Node, node_id: int | None) -> tuple[str, dict[str, Cells]]:
        match node:
            case Kernel():
                return "CUPTI_ACTIVITY_KIND_KERNEL", self._kernel(node, node_id)
            case Copy():
                facts: dict[str, Cells] = {"bytes": node.bytes, "copyKind": node.kind}
                return "CUPTI_ACTIVITY_KIND_MEMCPY", facts
            case Set():
                return "CUPTI_ACTIVITY_KIND_MEMSET", {"bytes": node.bytes, "value": 0}

    def _kernel(self, kernel: Kernel, node_id: int | None) -> dict[str, Cells]:
        name = kernel.name.split("(", 1)[0].split("<", 1)[0].rsplit("::", 1)[-1]
        columns: dict[str, Cells] = {
            "demangledName": self.export.strings.id(kernel.name),
            "shortName": self.export.strings.id(name),
            "launchType": 1,
            "registersPerThread": kernel.registers,
            "staticSharedMemory": kernel.static_bytes,
            "dynamicSharedMemory": kernel.dynamic_bytes,
            "localMemoryPerThread": 0,
            "localMemoryTotal": 0,
            "gridId": 0,
        }
        for what, sizes in (("grid", kernel.grid), ("block", kernel.block)):
            columns |= {f"{what}{axis}": size for axis, size in zip("XYZ", sizes, strict=True)}
        have = {name for name, _ in self.export.dialect.tables["CUPTI_ACTIVITY_KIND_KERNEL"]}
        if "graphId" in have:
            columns |= {"graphId": None if node_id is None else node_id >> 32}
            columns |= {"tensorSizeMinusOneElements": ""}
        return columns


@click.group()
def main() -> None:
    """Write synthetic nsys exports."""


@main.command("planted_vit")
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--dialect", type=click.Choice(sorted(DIALECTS)), default="2025", show_default=True)
@click.option("--replays", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--parquetdir", is_flag=True, help="Write a folder of Parquet files, not SQLite.")
@click.option("--force", is_flag=True, help="Replace what exists.")
def _planted_vit(
    output: Path, dialect: DialectName, replays: int, seed: int, parquetdir: bool, force: bool
) -> None:
    """A ViT-hybrid encoder with a small-grid stage, an idle gap and host-bound launches."""
    from graphtrace.testing.nsys_presets import planted_vit

    try:
        planted = planted_vit(
            output,
            dialect=dialect,
            replays=replays,
            seed=seed,
            force=force,
            parquetdir=parquetdir,
        )
    except GraphtraceError as error:
        raise Failed(error) from error
    click.echo(f"{output}: {planted.replays} synthetic replays of {planted.nodes} nodes", err=True)


if __name__ == "__main__":
    main()
