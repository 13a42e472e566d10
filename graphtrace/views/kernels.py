# SPDX-License-Identifier: Apache-2.0
"""Kernel tables: one for results of Nsight Compute, one for kernels of a timeline.

The two are never mixed: an ncu duration is measured with the kernel alone on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphtrace.model.analysis import KernelRow, MetricValue
from graphtrace.views.names import visible
from graphtrace.views.numbers import ABSENT, Cell, cell, count, duration, exact, share, significant

__all__ = [
    "NCU_COLUMNS",
    "KernelLine",
    "MetricColumn",
    "NcuTable",
    "TimelineTable",
    "metric_of",
    "ncu_table",
    "timeline_table",
]


_OTHER: Final = 0.05
"""Share of the device work from which work that is no kernel's is worth a sentence."""


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """A column: its heading in one or two lines, and its metrics, the preferred one first."""

    key: str
    heading: str
    group: str
    names: tuple[str, ...]
    meaning: str

    @property
    def bare(self) -> bool:
        """Whether the heading names the unit, so that cells leave it out."""
        return not self.key.startswith("dram")


NCU_COLUMNS: Final[tuple[MetricColumn, ...]] = (
    MetricColumn(
        "achieved",
        "achieved\nocc. %",
        "occupancy",
        ("sm__warps_active.avg.pct_of_peak_sustained_active",),
        "Achieved occupancy: warps resident while the SM is active, of the most it can hold",
    ),
    MetricColumn(
        "theoretical",
        "theor.\nocc. %",
        "occupancy",
        ("sm__maximum_warps_per_active_cycle_pct",),
        "Theoretical occupancy: what registers, shared memory and block size allow",
    ),
    MetricColumn(
        "waves",
        "waves",
        "occupancy",
        ("launch__waves_per_multiprocessor",),
        "Waves: how often the grid fills the device",
    ),
    MetricColumn(
        "l2_throughput",
        "L2\nthr. %",
        "memory",
        (
            "lts__throughput.avg.pct_of_peak_sustained_elapsed",
            "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
        ),
        "L2 throughput, of the peak",
    ),
    MetricColumn(
        "l2_hit", "L2\nhit %", "memory", ("lts__t_sector_hit_rate.pct",), "L2 sector hit rate"
    ),
    MetricColumn(
        "l1_hit",
        "L1\nhit %",
        "memory",
        ("l1tex__t_sector_hit_rate.pct",),
        "L1 sector hit rate",
    ),
    MetricColumn(
        "dram_read",
        "DRAM\nread",
        "memory",
        ("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
        "Bytes read from device memory",
    ),
    MetricColumn(
        "dram_write",
        "DRAM\nwritten",
        "memory",
        ("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
        "Bytes written to device memory",
    ),
    MetricColumn(
        "sectors_ld",
        "sectors\n/ load",
        "memory",
        ("graphtrace__sectors_per_request_ld",),
        "32-byte sectors per global load request",
    ),
    MetricColumn(
        "sectors_st",
        "sectors\n/ store",
        "memory",
        ("graphtrace__sectors_per_request_st",),
        "32-byte sectors per global store request",
    ),
)
"""What an ncu row shows after name and duration; metric names are those of the sections of Nsight
Compute 2022.3 and 2024.1 (SpeedOfLight, Occupancy, LaunchStats, MemoryWorkloadAnalysis)."""


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel.

    Attributes:
        number: position in the table, from 1.
        name: the full name, safe to show; whoever draws it shortens it to its width.
        stage: stage path, None where it has none.
        where: `report.ncu-rep#3` for an ncu result, else None.
        launch: grid and block, as `(12, 1, 1) x (256, 1, 1)`.
        count, duration, mean: launches, total and mean time.
        cells: one a column of the table.
        stalls: stall reasons with warps stalled per issue, the longest first.
    """

    number: int
    name: str
    stage: str | None
    where: str | None
    launch: str | None
    count: Cell
    duration: Cell
    mean: Cell
    cells: tuple[Cell, ...] = ()
    stalls: tuple[tuple[str, float], ...] = ()

    @property
    def top_stall(self) -> Cell:
        """The stall reason with most warps waiting per issue."""
        if not self.stalls:
            return Cell(ABSENT, "not measured")
        reason, warps = self.stalls[0]
        said = "; ".join(f"{name} {value:.6g}" for name, value in self.stalls)
        return Cell(f"{reason} {significant(warps)}", f"warps stalled per issue: {said}", warps)


@dataclass(frozen=True, slots=True)
class NcuTable:
    """Results of Nsight Compute, longest first. `left_out` rows are not among the lines."""

    columns: tuple[MetricColumn, ...]
    lines: tuple[KernelLine, ...]
    left_out: int
    notes: tuple[str, ...]
    """Why cells are invalid, in the order of the letters that mark them."""


@dataclass(frozen=True, slots=True)
class TimelineTable:
    """Kernels of a timeline by stage, longest in total first.

    `shares` are ratios of all device work, a line each; None where that is not known.
    `other` says how much of it is no kernel's; empty where it is little or not known.
    `kept` is the number of rows that the analysis has where it left some out, else None.
    """

    lines: tuple[KernelLine, ...]
    left_out: int
    shares: tuple[float | None, ...]
    other: str = ""
    kept: int | None = None


def metric_of(row: KernelRow, column: MetricColumn) -> tuple[str, MetricValue | None]:
    """The first of the column's metrics that the row has, with its name."""
    for name in column.names:
        if name in row.metrics:
            return name, row.metrics[name]
    return column.names[0], None


def _launch(row: KernelRow) -> str | None:
    if row.grid is None or row.block is None:
        return None
    return f"grid {'x'.join(map(str, row.grid))}, block {'x'.join(map(str, row.block))}"


def _stalls(row: KernelRow) -> tuple[tuple[str, float], ...]:
    # "selected" is the warp that issues: not a stall.
    waits = [
        (visible(reason).replace("_", " "), warps)
        for reason, warps in row.stalls.items()
        if reason != "selected" and warps > 0
    ]
    return tuple(sorted(waits, key=lambda pair: (-pair[1], pair[0])))


def _time(ns: float | None) -> Cell:
    return Cell(duration(ns), exact(ns, "ns"), ns)


def _line(number: int, row: KernelRow, cells: tuple[Cell, ...]) -> KernelLine:
    mean = None if row.total_ns is None or not row.count else row.total_ns / row.count
    return KernelLine(
        number=number,
        name=visible(row.name),
        stage=None if row.stage is None else visible(row.stage),
        where=None if row.result is None else visible(row.result),
        launch=_launch(row),
        count=Cell(count(row.count), exact(row.count, ""), row.count),
        duration=_time(row.total_ns),
        mean=_time(mean),
        cells=cells,
        stalls=_stalls(row),
    )


def _ordered(rows: Sequence[KernelRow], source: str) -> list[KernelRow]:
    chosen = [row for row in rows if row.source == source]
    return sorted(chosen, key=lambda row: -(row.total_ns or 0))


def ncu_table(rows: Sequence[KernelRow], *, limit: int, truncated: int = 0) -> NcuTable | None:
    """The ncu results among the rows, None where there are none.

    Args:
        rows: kernels of an analysis.
        limit: lines at most.
        truncated: rows that the analysis itself left out.
    """
    ordered = _ordered(rows, "ncu")
    if not ordered:
        return None
    notes: dict[str, None] = {}
    lines = []
    for number, row in enumerate(ordered[:limit], 1):
        cells = []
        for column in NCU_COLUMNS:
            name, metric = metric_of(row, column)
            made = cell(metric, name, bare=column.bare)
            if made.invalid is not None:
                notes.setdefault(made.invalid)
            cells.append(made)
        lines.append(_line(number, row, tuple(cells)))
    left = max(0, len(ordered) - limit) + truncated
    return NcuTable(NCU_COLUMNS, tuple(lines), left, tuple(visible(note) for note in notes))


def timeline_table(
    rows: Sequence[KernelRow], *, limit: int, truncated: int = 0, work_ns: int | None = None
) -> TimelineTable | None:
    """The kernels of a timeline among the rows, None where there are none.

    Args:
        rows: kernels of an analysis.
        limit: lines at most.
        truncated: rows that the analysis itself left out.
        work_ns: summed durations of all device work, copies included.
    """
    ordered = _ordered(rows, "timeline")
    if not ordered:
        return None
    lines = tuple(_line(number, row, ()) for number, row in enumerate(ordered[:limit], 1))
    shares = tuple(
        row.total_ns / work_ns if work_ns and row.total_ns is not None else None
        for row in ordered[:limit]
    )
    left = max(0, len(ordered) - limit) + truncated
    other = _other(ordered, truncated, work_ns) if work_ns else ""
    return TimelineTable(lines, left, shares, other, len(ordered) if truncated else None)


def _other(rows: Sequence[KernelRow], truncated: int, work_ns: int) -> str:
    """Without it a table of kernels reads as if they were all that the device did."""
    # Rows that were left out took no longer than the shortest that was not.
    most = sum(row.total_ns or 0 for row in rows) + truncated * (rows[-1].total_ns or 0)
    rest = work_ns - most
    if rest < _OTHER * work_ns:
        return ""
    bound, least = ("at most ", "at least ") if truncated else ("", "")
    return (
        f"Kernels are {bound}{share(most / work_ns)} of the device work; the rest, "
        f"{least}{duration(rest)}, is copies, memsets or replays recorded as a whole."
    )
