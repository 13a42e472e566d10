# SPDX-License-Identifier: Apache-2.0
"""Thresholds of cache_thrash."""

from dataclasses import dataclass
from typing import Final

from graphtrace.model.plugin import option

__all__ = ["ID", "Options"]

ID: Final = "cache_thrash"
_GATE: Final = "effects under 1 % are not worth a change; the gate of all our findings"


@dataclass(frozen=True)
class Options:
    """Thresholds of cache_thrash."""

    excess: float = option(
        0.25,
        "least share of global sectors that an ideal access would not move",
        source="ours: a strided or misaligned access of few instructions stays below it",
    )
    min_share: float = option(0.01, "least share of the kernel's time at stake", source=_GATE)
    slice_ratio: float = option(
        1.3,
        "least ratio of the busiest L2 slice's sectors to the mean",
        source="ours: hashed addresses stay within a few percent",
    )
    slice_sectors: int = option(
        1_000_000, "least L2 sectors for a balance", source="ours: fewer are balanced by chance"
    )
    slice_l2_pct: float = option(
        40.0,
        "least L2 throughput for slices to matter, %",
        source="ours: below it no slice is full",
    )
    amplification: float = option(
        1.5,
        "least ratio of DRAM reads to the bytes that the kernel must read",
        source="ours: no threshold is published; 41 was seen for a naive matrix product",
    )
    dram_pct: float = option(
        30.0, "least DRAM throughput for its reads to cost time, %", source="ours"
    )
    resident: float = option(
        0.5,
        "largest share of L2 that surely stays resident",
        source="GA100, GH100 and GB100 may hold a line in both halves of L2",
    )
    beyond: float = option(
        1.0, "share of L2 above which nothing can stay resident", source="the size of the cache"
    )
    compulsory_bytes: int = option(
        0, "unique bytes the kernel must read; 0 is unknown", source="known to who wrote the kernel"
    )
    compulsory_kernel: str = option(
        "", "function that compulsory_bytes is about; empty is all", source="as ncu --kernel-name"
    )
