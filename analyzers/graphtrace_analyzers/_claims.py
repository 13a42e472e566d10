# SPDX-License-Identifier: Apache-2.0
"""What the analyzers of ncu results share: severity, grouping of launches, commands, wording."""

import shlex
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.model.metric_view import MEMORY_SOL, SM_SOL, MetricView
from graphtrace.model.vocabulary import Severity

__all__ = [
    "PROGRAM",
    "capped",
    "duration",
    "fingerprint",
    "headroom",
    "launches",
    "longest",
    "ncu_command",
    "percent",
    "profiled_share",
    "quotient",
    "ratio",
    "severity",
    "share_of",
    "some",
    "weighted",
]

PROGRAM: Final = "PROGRAM"
"""Stands for the program in commands: no report says how it was started."""

_UNITS: Final = (("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))

_HIGH: Final = 0.20
"""NVIDIA's tail rule reports from here on."""
_MEDIUM: Final = 0.05
"""NVIDIA's workload imbalance rule reports from here on."""


def severity(share: float) -> Severity:
    """How much a share of all the time matters. It orders and colours, and decides nothing."""
    if share >= _HIGH:
        return "high"
    return "medium" if share >= _MEDIUM else "low"


def profiled_share(view: MetricView, rows: list[int], share: float) -> float:
    """A share of these results' time as one of the time of all results: what it matters."""
    times = np.nan_to_num(view.duration_ns)
    whole = float(times.sum())
    return share * float(times[rows].sum()) / whole if whole > 0.0 else share


def headroom(view: MetricView) -> npt.NDArray[np.float64]:
    """What the busiest unit leaves: its work stays the same, so no more than that comes back.

    Returns:
        Ratio 0 to 1 a result, NaN where one of the two throughputs was not collected.
    """
    busiest = np.maximum(view.rate(*SM_SOL), view.rate(*MEMORY_SOL))
    return np.clip(1.0 - busiest / 100.0, 0.0, 1.0)


def capped(
    share: npt.NDArray[np.float64], limit: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The smaller of the two, where the limit is known."""
    return np.where(np.isfinite(limit), np.minimum(share, limit), share)


def quotient(
    upper: npt.NDArray[np.float64], lower: npt.NDArray[np.float64] | float
) -> npt.NDArray[np.float64]:
    """A quotient of counts; NaN where one is missing or negative, or the lower is 0."""
    with np.errstate(all="ignore"):
        made = np.divide(upper, lower)
    sound = (np.asarray(lower) > 0.0) & (np.asarray(upper) >= 0.0) & np.isfinite(made)
    return np.where(sound, made, np.nan)


def share_of(
    part: npt.NDArray[np.float64], whole: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """A part of a whole; NaN where it is none, as from counters of two passes."""
    made = quotient(part, whole)
    return np.where(made <= 1.0, made, np.nan)


def fingerprint(view: MetricView, row: int) -> str:
    """Kernel and launch shape: the same in another run of the program."""
    shape = [*view.grid[row].tolist(), *view.block[row].tolist()]
    return f"{view.names[row]}|{'x'.join(map(str, shape))}"


def launches(view: MetricView, flagged: npt.NDArray[np.bool_]) -> list[list[int]]:
    """The flagged results, those of one kernel and launch shape together."""
    groups: dict[str, list[int]] = {}
    for row in np.flatnonzero(flagged).tolist():
        groups.setdefault(fingerprint(view, row), []).append(row)
    return list(groups.values())


def longest(view: MetricView, rows: Iterable[int]) -> int:
    """The result that took longest."""
    return max(rows, key=lambda row: float(np.nan_to_num(view.duration_ns[row])))


def weighted(view: MetricView, rows: list[int], share: npt.NDArray[np.float64]) -> float:
    """Mean of a share over these results, weighted by their durations."""
    times = np.nan_to_num(view.duration_ns[rows])
    shares = share[rows]
    mean = float(shares @ times / times.sum()) if times.sum() > 0 else float(shares.mean())
    return min(max(mean, 0.0), 1.0)


def ncu_command(function: str, arguments: str) -> str:
    """Profile one kernel again."""
    return f"ncu --kernel-name {shlex.quote(function)} {arguments} {PROGRAM}"


def duration(ns: int) -> str:
    """A time of three digits, in the unit in which the reports show it."""
    unit, factor = next((u for u in _UNITS if ns < 999.5 * u[1]), _UNITS[-1])
    value = ns / factor
    if factor == 1 or value >= 999.5:
        return f"{value:,.0f} {unit}"
    return f"{f'{value:#.3g}'.removesuffix('.')} {unit}"


def percent(share: float) -> str:
    """A ratio as a percentage of three digits."""
    return f"{100.0 * share:.3g} %"


def ratio(value: float) -> str:
    """A number of three digits."""
    return f"{value:.3g}"


def some(count: int, total: int, word: str = "result") -> str:
    """As in "3 of 4 results"."""
    plural = word if total == 1 else f"{word}s"
    return f"{count} of {total} {plural}"
