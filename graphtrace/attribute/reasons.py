# SPDX-License-Identifier: Apache-2.0
"""Why an activity has no stage: the words that reports print."""

from typing import Final

__all__ = [
    "ADVICE",
    "CREATION_MISSING",
    "CYCLE",
    "LAUNCH_MISSING",
    "LAUNCH_TWICE",
    "NO_NODE_ID",
    "NO_RANGE_AT_CAPTURE",
    "NO_RANGE_AT_LAUNCH",
    "OPAQUE",
    "RANGES_CROSS",
    "REASONS",
    "TWICE_IN_REPLAY",
    "TWO_PARENTS",
]

REASONS: Final = (
    "creation not recorded",
    "two parents",
    "lineage cycle",
    "no range open at capture",
    "opaque replay",
    "launch not recorded",
    "launch recorded twice",
    "no range open at launch",
    "ranges cross",
    "node twice in one replay",
    "no node id in the trace",
)
(
    CREATION_MISSING,
    TWO_PARENTS,
    CYCLE,
    NO_RANGE_AT_CAPTURE,
    OPAQUE,
    LAUNCH_MISSING,
    LAUNCH_TWICE,
    NO_RANGE_AT_LAUNCH,
    RANGES_CROSS,
    TWICE_IN_REPLAY,
    NO_NODE_ID,
) = range(len(REASONS))
"""Codes into `REASONS`."""

_RECORD: Final = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run PROGRAM"

ADVICE: Final = {
    CREATION_MISSING: f"Start the profiler before the graph is captured: `{_RECORD}`.",
    NO_RANGE_AT_CAPTURE: "Name the stages while the graph is captured: run it under "
    "`graphtrace capture`, or open NVTX ranges around them.",
    NO_NODE_ID: "PyTorch writes 'graph node id' since 2026 (kineto#1276); or record with "
    f"`{_RECORD}`.",
    OPAQUE: f"Record the nodes of each replay: `{_RECORD}`.",
}
"""What to do, for the reasons that a person can do something about."""
