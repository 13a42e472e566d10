# SPDX-License-Identifier: Apache-2.0
"""Thresholds of occupancy_launch."""

from dataclasses import dataclass
from typing import Final

from graphtrace.model.plugin import option

__all__ = ["ID", "Options"]

ID: Final = "occupancy_launch"


@dataclass(frozen=True)
class Options:
    """Thresholds of occupancy_launch."""

    tail_idle: float = option(
        0.2,
        "least measured share of time in which SMs stand idle",
        source="NVIDIA's tail rule: a potential of 20 %",
    )
    tail_waves: float = option(
        8.0, "most waves for a tail", source="ours: a partial wave of 9 costs 11 % at most"
    )
    tail_min_ns: int = option(
        10_000,
        "least kernel duration for a tail or an occupancy gap, ns",
        source="ours: an SM takes 1 to 2 us to fill up",
    )
    grid_min_ns: int = option(
        5_000,
        "least kernel duration for a small grid, ns",
        source="ours: a shorter one is launch latency",
    )
    occupancy_gap: float = option(
        10.0,
        "least gap of theoretical to achieved occupancy, percentage points",
        source="NVIDIA's rule AchievedOccupancy",
    )
    issue_active: float = option(
        0.6,
        "most instructions issued per cycle and scheduler for an occupancy gap to matter",
        source="NVIDIA's rule IssueSlotUtilization",
    )
    scoreboard_share: float = option(
        0.3,
        "least share of warp latency spent waiting for memory (long scoreboard)",
        source="NVIDIA's rule CPIStall",
    )
    busiest_pct: float = option(
        60.0,
        "most throughput of the busiest unit for an occupancy gap to matter, %",
        source="NVIDIA's rule SpeedOfLight: latency bound where SM and memory are both below",
    )
    min_launches: int = option(
        20,
        "least launches in a timeline for a small grid",
        source="our gate of all findings over a timeline",
    )
    min_share: float = option(
        0.01, "least share of wall time at stake", source="our gate of all findings over a timeline"
    )
