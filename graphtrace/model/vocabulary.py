# SPDX-License-Identifier: Apache-2.0
"""The words of the contract, as literal types: what a value of a field may be."""

from typing import Final, Literal

InputKind = Literal[
    "nsys_sqlite", "nsys_parquetdir", "nsys_rep", "ncu_rep", "ncu_csv", "kineto", "gtrace"
]
Confidence = Literal["exact", "high", "medium", "low"]
Severity = Literal["high", "medium", "low", "info"]
Verdict = Literal["findings", "clean", "cannot_tell"]
BudgetScope = Literal["replay", "batch", "range"]
IdleKind = Literal["launch_latency", "dependency", "copy_wait", "host_node", "unexplained"]
Method = Literal["tools-id", "cupti-id", "origin", "eager", "capture-order", "none"]
CacheMode = Literal["flushed", "warm", "unknown"]
ClockMode = Literal["base", "boost", "force-boost", "none", "unknown"]
ActivityKind = Literal["kernel", "memcpy", "memset", "collective", "opaque_replay", "mark"]
AccessPattern = Literal["contiguous", "strided", "gather", "broadcast", "unknown"]

CONFIDENCES: Final[tuple[Confidence, ...]] = ("exact", "high", "medium", "low")
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low", "info")
IDLE_KINDS: Final[tuple[IdleKind, ...]] = (
    "launch_latency",
    "dependency",
    "copy_wait",
    "host_node",
    "unexplained",
)
EXACT_METHODS: Final[tuple[Method, ...]] = ("tools-id", "cupti-id", "origin", "eager")
INFERRED_METHODS: Final[tuple[Method, ...]] = ("capture-order",)
STAGE_DOMAIN: Final = "graphtrace"
"""The NVTX domain that our own stages are emitted in."""
