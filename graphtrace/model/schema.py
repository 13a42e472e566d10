# SPDX-License-Identifier: Apache-2.0
"""Every table of a trace, declared once: columns, types, units and meaning.

Times are int64 nanoseconds. Strings that repeat are dictionary encoded. Rows carry keys, never
positions: a column with `key` set holds a member of that key space, and joining files shifts whole
key spaces, so that keys stay unique in a trace. Null means not measured, never zero.
"""

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

__all__ = ["TABLES", "Column", "KeySpace", "Table", "empty_table"]

KeySpace = Literal[
    "source",
    "process",
    "device",
    "stage",
    "access",
    "graph",
    "node",
    "exec",
    "batch",
    "replay",
    "activity",
    "result",
]

TEXT: Final = pa.dictionary(pa.int32(), pa.string())
I64: Final = pa.int64()
I32: Final = pa.int32()
I16: Final = pa.int16()
BOOL: Final = pa.bool_()


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Arrow type, its unit and what a value means."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = False
    key: KeySpace | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is, and its columns in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with doc and unit as field metadata."""
        return pa.schema(
            [
                pa.field(c.name, c.type, c.nullable, metadata={"doc": c.doc, "unit": c.unit})
                for c in self.columns
            ]
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(c.name for c in self.columns)


def _key(space: KeySpace, doc: str, *, nullable: bool = False, name: str | None = None) -> Column:
    return Column(name or space, I32, doc, nullable=nullable, key=space)


def _time(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, I64, doc, "ns", nullable)


def _text(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, TEXT, doc, "", nullable)


def _int(
    name: str,
    doc: str,
    unit: str = "",
    *,
    nullable: bool = True,
    type: pa.DataType = I64,  # noqa: A002 - the word of the schema
) -> Column:
    return Column(name, type, doc, unit, nullable)


_LAUNCH: Final = tuple(
    _int(f"{what}_{axis}", f"{what} size in {axis}", "blocks" if what == "grid" else "threads")
    for what in ("grid", "block")
    for axis in "xyz"
)

_DECLARED: Final[tuple[Table, ...]] = (
    Table(
        "processes",
        "a process that was recorded",
        (
            _key("process", "key"),
            _key("source", "input the process was read from"),
            _int("pid", "process id"),
            _int("rank", "rank in a distributed run", type=I32),
        ),
    ),
    Table(
        "devices",
        "a device that did work, or the host of a run without one",
        (
            _key("device", "key"),
            _key("source", "input the device was read from"),
            _text("kind", "gpu or host"),
            _int("ordinal", "device ordinal as the process saw it", type=I32),
            _text("name", "marketing name", nullable=True),
            Column("uuid", pa.string(), "device uuid", nullable=True),
            Column("pci_bus_id", pa.string(), "PCI bus id", nullable=True),
            _int("sm_count", "streaming multiprocessors", type=I32),
            _int("l2_bytes", "size of the L2 cache", "byte"),
            _int("dram_bytes_per_s", "peak DRAM bandwidth", "byte/s"),
            _int("cc_major", "compute capability, major", type=I16),
            _int("cc_minor", "compute capability, minor", type=I16),
            _int("max_warps_per_sm", "resident warps an SM can hold", type=I32),
            Column("mig", BOOL, "whether this is a MIG instance", nullable=True),
        ),
    ),
    Table(
        "stages",
        "a stage of the program; one row a path, shared by all processes",
        (
            _key("stage", "key"),
            _key("stage", "enclosing stage", nullable=True, name="parent"),
            Column("path", pa.string(), "names from the outermost, joined by /"),
            Column("name", pa.string(), "last element of the path"),
            _text("origin", "where the name comes from: module, code, nvtx"),
        ),
    ),
    Table(
        "access",
        "how a stage touches one tensor",
        (
            _key("access", "key"),
            _key("stage", "the stage"),
            Column("tensor", pa.string(), "argument or result, as in input[0]"),
            _text("pattern", "contiguous, strided, gather, broadcast, unknown"),
            _text("dtype", "element type", nullable=True),
            Column("shape", pa.list_(I64), "extent per dimension", "elements", nullable=True),
            _int("row_bytes", "bytes of one innermost row", "byte"),
            _int("row_stride_bytes", "distance between two rows", "byte"),
            _int("working_set_bytes", "unique bytes spanned", "byte"),
            _int("offset_bytes", "address modulo the 128-byte line", "byte"),
            Column("read", BOOL, "the stage reads it", nullable=True),
            Column("written", BOOL, "the stage writes it", nullable=True),
        ),
    ),
    Table(
        "graphs",
        "a captured graph",
        (
            _key("graph", "key"),
            _key("process", "process that captured it"),
            _int("native_id", "the driver's graph id"),
            Column("fingerprint", pa.string(), "structural hash", nullable=True),
            Column("internal", BOOL, "captured by the framework for itself", nullable=True),
        ),
    ),
    Table(
        "nodes",
        "a node of a captured graph",
        (
            _key("node", "key"),
            _key("graph", "its graph"),
            _int("ordinal", "position in capture order", nullable=False, type=I32),
            _int("native_id", "the profiler's node id at capture"),
            _time("created_ns", "when the node was created", nullable=True),
            _key("stage", "stage open when it was created", nullable=True),
        ),
    ),
    Table(
        "execs",
        "an instantiation of a graph",
        (
            _key("exec", "key"),
            _key("graph", "the graph it came from", nullable=True),
            _key("process", "process that owns it"),
            _int("native_id", "the driver's exec id"),
        ),
    ),
    Table(
        "batches",
        "a step of the program; it owns every launch inside it",
        (
            _key("batch", "key"),
            _key("process", "process that ran it"),
            _int("thread", "thread that ran it"),
            _time("begin_ns", "first instruction of the step"),
            _time("end_ns", "last instruction of the step"),
            _int("valid_tokens", "tokens that carry data", "tokens"),
            _int("captured_tokens", "tokens computed, padding included", "tokens"),
            Column("sizes", pa.list_(I64), "tokens of each sample", "tokens", nullable=True),
            _text("label", "task or shape, in the program's own words", nullable=True),
        ),
    ),
    Table(
        "replays",
        "one launch of an instantiated graph",
        (
            _key("replay", "key"),
            _key("exec", "what was launched", nullable=True),
            _key("graph", "the graph it came from", nullable=True),
            _key("batch", "step that launched it", nullable=True),
            _key("process", "process that launched it"),
            _key("device", "device it ran on"),
            _int("stream", "stream it was launched on"),
            _int("correlation", "correlation id of the launch, unique within its process"),
            _time("launch_begin_ns", "launch call begins", nullable=True),
            _time("launch_end_ns", "launch call returns", nullable=True),
            _time("begin_ns", "first node starts"),
            _time("end_ns", "last node ends"),
        ),
    ),
    Table(
        "api_calls",
        "a host call into CUDA",
        (
            _key("process", "process"),
            _int("thread", "calling thread", nullable=False),
            _text("name", "function"),
            _int("correlation", "correlation id, unique within its process"),
            _time("begin_ns", "call begins"),
            _time("end_ns", "call returns"),
        ),
    ),
    Table(
        "marks",
        "a tracer event: a stage or batch border as the program crossed it",
        (
            _key("process", "process"),
            _int("thread", "thread", nullable=False),
            _key("graph", "graph being captured or replayed", nullable=True),
            _key("replay", "replay it belongs to", nullable=True),
            _key("batch", "batch it lies in", nullable=True),
            _key("stage", "stage; null at a batch border", nullable=True),
            _text("border", "begin or end"),
            _int("ordinal", "device ordinal; null on the host", type=I32),
            _time("time_ns", "time on that clock"),
            _text("clock", "host or gpu"),
            _int("sm", "SM that wrote it", type=I32),
            _key("access", "first access row measured here", nullable=True),
        ),
    ),
    Table(
        "activities",
        "work on a device: a kernel, copy, memset, collective, opaque replay or mark of ours",
        (
            _key("activity", "key; orders rows of equal time"),
            _key("process", "process that launched it"),
            _key("device", "device it ran on"),
            _int("context", "CUDA context", type=I32),
            _int("stream", "CUDA stream", nullable=False),
            _text("kind", "kernel, memcpy, memset, collective, opaque_replay, mark"),
            _text("name", "demangled kernel name, or what was copied", nullable=True),
            _time("begin_ns", "starts"),
            _time("end_ns", "ends"),
            _int("correlation", "correlation id of the launching call"),
            *_LAUNCH,
            _int("registers", "registers per thread", type=I32),
            _int("shared_bytes", "static and dynamic shared memory of a block", "byte"),
            _int("bytes", "bytes copied or set", "byte"),
            _key("graph", "graph of a replayed node", nullable=True),
            _int("node_native_id", "the profiler's graph node id in the exec graph"),
            _key("node", "node of the captured graph", nullable=True),
            _key("replay", "replay it ran in", nullable=True),
            _key("stage", "stage it belongs to", nullable=True),
            _text("method", "how the stage was found", nullable=True),
            _text("reason", "why no stage was found", nullable=True),
        ),
    ),
    Table(
        "graph_events",
        "creation or cloning of a graph node, as the profiler saw it",
        (
            _key("process", "process"),
            _int("thread", "thread that created it", nullable=False),
            _time("time_ns", "when"),
            _int("node_native_id", "the node that came to be", nullable=False),
            _int("origin_native_id", "the node it was made from; null at a creation"),
        ),
    ),
    Table(
        "ranges",
        "an NVTX range or mark, or a stage as the host ran it",
        (
            _key("process", "process"),
            _int("thread", "thread that opened it", nullable=False),
            _int("end_thread", "thread that closed it, where it is another"),
            _text("domain", "NVTX domain; empty for the default one"),
            _text("text", "message"),
            _text("kind", "push_pop, start_end or mark"),
            _time("begin_ns", "opens"),
            _time("end_ns", "closes; null while open at the end of the recording", nullable=True),
            _key("stage", "stage that it is", nullable=True),
            _text("category", "NVTX category, as #7 where it has no name", nullable=True),
            _int("payload_int", "NVTX payload that is an integer"),
            Column("payload_real", pa.float64(), "NVTX payload that is a real", nullable=True),
        ),
    ),
    Table(
        "ncu_results",
        "one result of Nsight Compute: a kernel that was profiled",
        (
            _key("result", "key"),
            _key("source", "input it was read from"),
            _key("device", "device it ran on", nullable=True),
            _int("ncu_id", "position in the report, as ncu prints it", nullable=False, type=I32),
            Column("name", pa.string(), "demangled kernel name"),
            Column("function", pa.string(), "function name without arguments", nullable=True),
            _text("workload", "kernel, range, graph or cmdlist"),
            _int("process_id", "process id", type=I64),
            _int("context", "CUDA context", type=I32),
            _int("stream", "CUDA stream"),
            *_LAUNCH,
            _time("duration_ns", "gpu__time_duration, rounded to 1 ns", nullable=True),
            _text("cache", "flushed, warm or unknown"),
            _text("clock", "base, boost, force-boost, none or unknown"),
            _text("replay_mode", "kernel, application, range or unknown"),
            _int("passes", "replay passes", type=I32),
        ),
    ),
    Table(
        "metrics",
        "one metric of one ncu result, in base units",
        (
            _key("result", "the result"),
            _text("name", "NVIDIA's name"),
            Column("value", pa.float64(), "number; null for texts", nullable=True),
            Column("integer", pa.uint64(), "exact value of an integer metric", nullable=True),
            _text("text", "value of a text metric", nullable=True),
            _text("unit", "base unit in ncu-report's spelling"),
            Column(
                "instances",
                pa.list_(pa.float64()),
                "values per instance, in order",
                nullable=True,
            ),
        ),
    ),
    Table(
        "counters",
        "a sampled value, as a GPU metric that nsys sampled (proved on synthetic exports only)",
        (
            _key("process", "process", nullable=True),
            _key("device", "device", nullable=True),
            _key("stage", "stage", nullable=True),
            _text("name", "what was sampled"),
            _text("unit", "unit"),
            _time("time_ns", "when"),
            Column("value", pa.float64(), "value"),
        ),
    ),
    Table(
        "quarantine",
        "rows that were refused",
        (
            _text("table", "table they were meant for"),
            _text("reason", "why"),
            _int("count", "how many", nullable=False),
            Column("sample", pa.string(), "one of them", nullable=True),
        ),
    ),
    Table(
        "stage_times",
        "time of one stage in one unit: a replay, a batch or a top-level range",
        (
            _text("scope", "replay, batch or range"),
            _int("unit", "key of the replay or batch, or ordinal of the range", nullable=False),
            _key("device", "device; null on the host", nullable=True),
            _key("stage", "stage; null is unattributed", nullable=True),
            _int("busy_ns", "share of each instant in which it worked", "ns", nullable=False),
            _int("alone_ns", "time in which nothing else worked", "ns", nullable=False),
            _int("idle_ns", "idle time that its activities ended", "ns", nullable=False),
            _int("kernels", "kernels; 0 on the host", nullable=False),
        ),
    ),
)

TABLES: Final[dict[str, Table]] = {table.name: table for table in _DECLARED}
"""Every table by name."""


def empty_table(name: str) -> pa.Table:
    """A table of the given name with no rows."""
    # The schema's own `empty_table` imports pandas; the import is here because arrays need TABLES.
    from graphtrace.model.arrays import make_table

    return make_table(name, 0, {})
