# SPDX-License-Identifier: Apache-2.0
"""The long metrics table as one float64 array per metric, a row per ncu result.

A metric that NVIDIA renamed between versions or chips is asked for by all its spellings, the
preferred one first; each result takes the first that it has.
"""

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.model.analysis import Evidence, Mode
from graphtrace.model.arrays import as_numpy, codes_of, valid_of
from graphtrace.model.trace import TableSet

__all__ = [
    "ACHIEVED_OCCUPANCY",
    "DRAM_PCT",
    "DRAM_READ",
    "DRAM_WRITE",
    "DURATION",
    "GLOBAL_SECTORS",
    "GLOBAL_SECTORS_IDEAL",
    "ISSUE_ACTIVE",
    "L1_HIT_RATE",
    "L1_PCT",
    "L2_HIT_RATE",
    "L2_PCT",
    "MEMORY_SOL",
    "SM_COUNT",
    "SM_ELAPSED",
    "SM_SOL",
    "THEORETICAL_OCCUPANCY",
    "WARP_LATENCY",
    "WAVES",
    "MetricView",
    "function_name",
    "invalid_rate",
    "launch_shape",
]

Floats = npt.NDArray[np.float64]
Spellings = tuple[str, ...]

ACHIEVED_OCCUPANCY: Final = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
THEORETICAL_OCCUPANCY: Final = ("sm__maximum_warps_per_active_cycle_pct",)
WAVES: Final = ("launch__waves_per_multiprocessor",)
DURATION: Final = ("gpu__time_duration.sum",)
SM_COUNT: Final = ("launch__sm_count", "device__attribute_multiprocessor_count")
# The two are equal, to the cycle, in every real report that has both.
SM_ELAPSED: Final = ("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max")
# 2020.3 left out the word "theoretical".
GLOBAL_SECTORS: Final = ("memory_l2_theoretical_sectors_global", "memory_l2_sectors_global")
GLOBAL_SECTORS_IDEAL: Final = (
    "memory_l2_theoretical_sectors_global_ideal",
    "memory_l2_sectors_global_ideal",
)
ISSUE_ACTIVE: Final = ("smsp__issue_active.avg.per_cycle_active",)
WARP_LATENCY: Final = ("smsp__average_warp_latency_per_inst_issued.ratio",)
# The two "speed of light" figures: the busiest unit of the SM, and of the memory system.
SM_SOL: Final = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
MEMORY_SOL: Final = ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",)
L1_PCT: Final = ("l1tex__throughput.avg.pct_of_peak_sustained_active",)
L1_HIT_RATE: Final = ("l1tex__t_sector_hit_rate.pct",)
L2_HIT_RATE: Final = ("lts__t_sector_hit_rate.pct",)
L2_PCT: Final = (
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
)
# GB20x counts DRAM bytes by operation.
DRAM_READ: Final = ("dram__bytes_read.sum", "dram__bytes_op_read.sum")
DRAM_WRITE: Final = ("dram__bytes_write.sum", "dram__bytes_op_write.sum")
# The section files of 2022.3 and later use the gpu__ spelling, --metrics lists the dram__ ones.
DRAM_PCT: Final = (
    "dram__bytes.sum.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
_STALL: Final = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
_TEMPLATE: Final = re.compile(r"<[^<>]*>")
_FULL: Final = 100.0 * (1.0 + 1e-9)


def invalid_rate(value: float, unit: str) -> str | None:
    """Why a percentage cannot be one, or None: rates outside 0 to 100 % are never clamped."""
    if unit != "%" or 0.0 <= value <= _FULL:
        return None
    return f"{value:.5g} % is no rate between 0 and 100 %: its parts come from different passes"


def launch_shape(size: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Grid or block as x, y, z; None where it is unknown (given as 0)."""
    if not bool((size > 0).all()):
        return None
    return int(size[0]), int(size[1]), int(size[2])


class MetricView:
    """Metrics of n ncu results, in the order of the table `ncu_results`.

    Attributes:
        keys: int32 [n], key of each result.
        sources: int32 [n], input it was read from.
        devices: int32 [n], key of the device, -1 where unknown.
        ncu_ids: int32 [n], position in the report.
        names: demangled kernel name of each result.
        functions: function name without arguments, as `ncu --kernel-name` matches it.
        grid, block: int64 [n, 3], 0 where unknown.
        duration_ns: float64 [n], NaN where unknown.
        modes: how each result was measured.
    """

    def __init__(self, results: pa.Table, metrics: pa.Table) -> None:
        self.keys: npt.NDArray[np.int32] = as_numpy(results.column("result"))
        self.sources: npt.NDArray[np.int32] = as_numpy(results.column("source"))
        device = results.column("device")
        self.devices = np.where(valid_of(device), as_numpy(device), -1).astype(np.int32)
        self.ncu_ids: npt.NDArray[np.int32] = as_numpy(results.column("ncu_id"))
        self.names: list[str] = results.column("name").to_pylist()
        functions = results.column("function").to_pylist()
        self.functions = [f or function_name(n) for f, n in zip(functions, self.names, strict=True)]
        self.grid = _shapes(results, "grid")
        self.block = _shapes(results, "block")
        self.modes = _modes(results)
        self._index(metrics)
        duration = results.column("duration_ns")
        given = np.where(valid_of(duration), as_numpy(duration).astype(np.float64), np.nan)
        self.duration_ns: Floats = np.where(np.isnan(given), self.values(*DURATION), given)

    @classmethod
    def of(cls, tables: TableSet) -> "MetricView":
        """The view of all ncu results of a trace."""
        return cls(tables.get("ncu_results"), tables.get("metrics"))

    def _index(self, metrics: pa.Table) -> None:
        codes, words = codes_of(metrics.column("name"))
        value = metrics.column("value")
        numbers = np.where(valid_of(value), as_numpy(value), np.nan)
        units, self._unit_words = codes_of(metrics.column("unit"))
        rows = _positions(self.keys, as_numpy(metrics.column("result")))
        order = np.argsort(codes, kind="stable")
        order = order[(rows[order] >= 0) & (codes[order] >= 0)]
        self._rows = rows[order]
        self._numbers = numbers[order]
        self._units = units[order]
        borders = np.searchsorted(codes[order], np.arange(len(words) + 1))
        self._spans = {
            word: (int(borders[i]), int(borders[i + 1]))
            for i, word in enumerate(words)
            if borders[i + 1] > borders[i]
        }

    def __len__(self) -> int:
        return len(self.keys)

    def values(self, *spellings: str) -> Floats:
        """One metric of every result, NaN where it was not collected.

        Args:
            spellings: names of the same metric, the preferred one first.
        """
        out = np.full(len(self.keys), np.nan)
        for name in reversed(spellings):
            first, last = self._spans.get(name, (0, 0))
            numbers = self._numbers[first:last]
            known = ~np.isnan(numbers)
            out[self._rows[first:last][known]] = numbers[known]
        return out

    def rate(self, *spellings: str) -> Floats:
        """A percentage of every result, NaN where it was not collected or is no rate."""
        values = self.values(*spellings)
        return np.where((values >= 0.0) & (values <= _FULL), values, np.nan)

    def lookup(self, row: int, *spellings: str) -> tuple[str, float, str] | None:
        """Name, value and unit of one metric of one result; None where it was not collected."""
        for name in spellings:
            first, last = self._spans.get(name, (0, 0))
            for at in np.flatnonzero(self._rows[first:last] == row) + first:
                if not np.isnan(self._numbers[at]):
                    unit = self._unit_words[self._units[at]] if self._units[at] >= 0 else ""
                    return name, float(self._numbers[at]), unit
        return None

    def evidence(self, row: int, *wanted: Spellings) -> tuple[Evidence, ...]:
        """Metrics of one result as evidence; those not collected and invalid rates are left out."""
        found = [self.lookup(row, *spellings) for spellings in wanted]
        return tuple(
            Evidence(name, int(value) if value.is_integer() else value, unit, self.modes[row])
            for name, value, unit in (item for item in found if item is not None)
            if invalid_rate(value, unit) is None
        )

    def stall_names(self) -> dict[str, str]:
        """Metric of each stall reason, by reason; `selected` is issue, not a stall."""
        matches = ((_STALL.fullmatch(name), name) for name in self._spans)
        return {
            match.group(1): name
            for match, name in matches
            if match is not None and match.group(1) != "selected"
        }


def _positions(keys: npt.NDArray[np.int32], wanted: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Where each wanted key stands in `keys`; -1 where it does not."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][at] == wanted, order[at], -1).astype(np.int64)


def function_name(name: str) -> str:
    """Function of a demangled kernel name: no result type, namespace, template or argument."""
    head, before = name.replace("(anonymous namespace)", ""), None
    while head != before:
        head, before = _TEMPLATE.sub("", head), head
    words = head.split("(")[0].split()
    return words[-1].split("::")[-1] if words else name


def _shapes(results: pa.Table, what: str) -> npt.NDArray[np.int64]:
    columns = [results.column(f"{what}_{axis}") for axis in "xyz"]
    return np.stack([np.where(valid_of(c), as_numpy(c), 0) for c in columns], axis=1)


def _modes(results: pa.Table) -> tuple[Mode, ...]:
    caches, cache_words = codes_of(results.column("cache"))
    clocks, clock_words = codes_of(results.column("clock"))
    passes = results.column("passes")
    known, count = valid_of(passes), as_numpy(passes)
    return tuple(
        Mode(
            cache=cache_words[caches[row]],
            clock=clock_words[clocks[row]],
            passes=int(count[row]) if known[row] else None,
        )
        for row in range(len(caches))
    )
