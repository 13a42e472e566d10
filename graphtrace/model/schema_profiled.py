# SPDX-License-Identifier: Apache-2.0
"""Tables of what Nsight Compute measured, and of what is derived from all tables."""

from typing import Final

import pyarrow as pa

from graphtrace.model.schema_columns import (
    I32,
    I64,
    LAUNCH,
    Column,
    Table,
    integer,
    key,
    text,
    time,
)

__all__ = ["DERIVED", "PROFILED"]

PROFILED: Final[tuple[Table, ...]] = (
    Table(
        "ncu_results",
        "one result of Nsight Compute: a kernel that was profiled",
        (
            key("result", "key"),
            key("source", "input it was read from"),
            key("device", "device it ran on", nullable=True),
            integer("ncu_id", "position in the report, as ncu prints it", nullable=False, type=I32),
            Column("name", pa.string(), "demangled kernel name"),
            Column("function", pa.string(), "function name without arguments", nullable=True),
            text("workload", "kernel, range, graph or cmdlist"),
            integer("process_id", "process id", type=I64),
            integer("context", "CUDA context", type=I32),
            integer("stream", "CUDA stream"),
            *LAUNCH,
            time("duration_ns", "gpu__time_duration, rounded to 1 ns", nullable=True),
            text("cache", "flushed, warm or unknown"),
            text("clock", "base, boost, force-boost, none or unknown"),
            text("replay_mode", "kernel, application, range or unknown"),
            integer("passes", "replay passes", type=I32),
        ),
    ),
    Table(
        "metrics",
        "one metric of one ncu result, in base units",
        (
            key("result", "the result"),
            text("name", "NVIDIA's name"),
            Column("value", pa.float64(), "number; null for texts", nullable=True),
            Column("integer", pa.uint64(), "exact value of an integer metric", nullable=True),
            text("text", "value of a text metric", nullable=True),
            text("unit", "base unit in ncu-report's spelling"),
            Column(
                "instances",
                pa.list_(pa.float64()),
                "values per instance, in order",
                nullable=True,
            ),
        ),
    ),
)

DERIVED: Final[tuple[Table, ...]] = (
    Table(
        "stage_times",
        "time of one stage in one unit: a replay, a batch or a top-level range",
        (
            text("scope", "replay, batch or range"),
            integer("unit", "key of the replay or batch, or ordinal of the range", nullable=False),
            key("device", "device; null on the host", nullable=True),
            key("stage", "stage; null is unattributed", nullable=True),
            integer("busy_ns", "share of each instant in which it worked", "ns", nullable=False),
            integer("alone_ns", "time in which nothing else worked", "ns", nullable=False),
            integer("idle_ns", "idle time that its activities ended", "ns", nullable=False),
            integer("kernels", "kernels; 0 on the host", nullable=False),
        ),
    ),
    Table(
        "node_times",
        "time of one node of a graph over all replays of one exec",
        (
            key("exec", "what was launched; null where it is not known", nullable=True),
            key("graph", "the graph"),
            key("node", "the node"),
            integer("count", "how often it ran", nullable=False),
            integer("sum_ns", "sum of its durations", "ns", nullable=False),
            integer("min_ns", "shortest duration", "ns", nullable=False),
            integer("max_ns", "longest duration", "ns", nullable=False),
            integer("bin", "first bin of histogram: 4 a doubling, bin 0 is 0 ns", nullable=False),
            Column("histogram", pa.list_(I64), "how many durations lie in each bin", "runs"),
        ),
    ),
    Table(
        "ncu_matches",
        "where a result of Nsight Compute ran on the timeline",
        (
            key("result", "the result"),
            key("graph", "graph that holds what it matches", nullable=True),
            key("node", "the one node that it is", nullable=True),
            key("stage", "the one stage that it ran in", nullable=True),
            text("how", "what they have in common; null where nothing matches", nullable=True),
            text("confidence", "exact, high, medium or low; null without a stage", nullable=True),
            text("reason", "why it has no stage", nullable=True),
            integer("nodes", "nodes, or eager launches, that it may be", nullable=False),
            integer("time_ns", "their time on the timeline", "ns", nullable=False),
        ),
    ),
)
