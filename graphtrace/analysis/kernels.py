# SPDX-License-Identifier: Apache-2.0
"""Kernel rows: one a result of Nsight Compute, one a kernel name and stage of a timeline."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.attribute.keys import Ints, Lookup, pack, rows_of, sum_by, where_valid
from graphtrace.model.analysis import KernelRow, MetricValue, Mode
from graphtrace.model.arrays import as_numpy, codes_of, valid_of
from graphtrace.model.metric_view import (
    ACHIEVED_OCCUPANCY,
    DRAM_READ,
    DRAM_WRITE,
    DURATION,
    GLOBAL_SECTORS,
    GLOBAL_SECTORS_IDEAL,
    ISSUE_ACTIVE,
    L1_HIT_RATE,
    L1_PCT,
    L2_HIT_RATE,
    MEMORY_SOL,
    SM_COUNT,
    SM_ELAPSED,
    SM_SOL,
    THEORETICAL_OCCUPANCY,
    WARP_LATENCY,
    WAVES,
    MetricView,
    invalid_rate,
    launch_shape,
)
from graphtrace.model.trace import TableSet

__all__ = ["KEPT", "kernel_rows"]

KEPT: Final = 1000
"""Rows kept of a long list, those that took the most time."""

_STALLS: Final = 5
_SHORT_NS: Final = 20_000
"""Below it, hits and lookups of two passes differ too much (NVIDIA forum 120341)."""

_SECTORS_LD: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_SECTORS_ST: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
_REQUESTS_LD: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_REQUESTS_ST: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"

_HEADLINE: Final[tuple[tuple[str, ...], ...]] = (
    DURATION,
    ACHIEVED_OCCUPANCY,
    THEORETICAL_OCCUPANCY,
    WAVES,
    ("launch__registers_per_thread",),
    ("launch__shared_mem_per_block",),
    SM_COUNT,
    SM_SOL,
    MEMORY_SOL,
    ISSUE_ACTIVE,
    WARP_LATENCY,
    ("sm__cycles_active.avg",),
    SM_ELAPSED,
    ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed",),
    L2_HIT_RATE,
    L1_HIT_RATE,
    L1_PCT,
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",),
    ("dram__bytes.sum.pct_of_peak_sustained_elapsed",),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
    DRAM_READ,
    DRAM_WRITE,
    ("dram__bytes.sum.per_second",),
    ("lts__t_sectors.sum",),
    ("lts__t_sectors_srcunit_tex.sum",),
    ("lts__t_sectors_srcunit_tex_lookup_hit.sum",),
    ("lts__t_sectors_srcunit_tex_lookup_miss.sum",),
    ("lts__t_sectors_srcunit_ltcfabric.sum",),
    (_SECTORS_LD,),
    (_REQUESTS_LD,),
    (_SECTORS_ST,),
    (_REQUESTS_ST,),
    GLOBAL_SECTORS,
    GLOBAL_SECTORS_IDEAL,
)
_DERIVED: Final = (
    ("graphtrace__sectors_per_request_ld", _SECTORS_LD, _REQUESTS_LD),
    ("graphtrace__sectors_per_request_st", _SECTORS_ST, _REQUESTS_ST),
)
# Their hits and lookups come from two passes on every chip that ncu was asked about.
_TWO_PASSES: Final = frozenset(
    {
        "lts__t_sector_hit_rate.pct",
        "lts__t_sectors_srcunit_tex_lookup_hit.sum",
        "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    }
)


def kernel_rows(
    tables: TableSet, view: MetricView, labels: dict[int, str], stages: dict[int, str]
) -> tuple[tuple[KernelRow, ...], int]:
    """Rows by time, the longest first, and how many were left out.

    Args:
        tables: those of the attributed trace.
        view: the ncu results.
        labels: name of each ncu result, by key.
        stages: path of each stage, by key.
    """
    profiled, few = _profiled(view, labels)
    timeline, more = _timeline(tables, stages)
    rows = sorted([*timeline, *profiled], key=lambda row: -(row.total_ns or 0))
    left = few + more + max(len(rows) - KEPT, 0)
    return tuple(rows[:KEPT]), left


def _profiled(view: MetricView, labels: dict[int, str]) -> tuple[list[KernelRow], int]:
    order = np.argsort(-np.nan_to_num(view.duration_ns), kind="stable")
    chosen = order[:KEPT].tolist()
    stalls = {reason: view.values(name) for reason, name in view.stall_names().items()}
    return [_result(view, row, labels, stalls) for row in chosen], len(view) - len(chosen)


def _result(
    view: MetricView,
    row: int,
    labels: dict[int, str],
    stalls: dict[str, npt.NDArray[np.float64]],
) -> KernelRow:
    duration = view.duration_ns[row]
    device = int(view.devices[row])
    known = {reason: float(v[row]) for reason, v in stalls.items() if v[row] > 0.0}
    top = sorted(known, key=lambda reason: (-known[reason], reason))[:_STALLS]
    return KernelRow(
        name=view.names[row],
        stage=None,
        count=1,
        total_ns=None if np.isnan(duration) else round(float(duration)),
        metrics=_headline(view, row),
        source="ncu",
        result=labels[int(view.keys[row])],
        grid=launch_shape(view.grid[row]),
        block=launch_shape(view.block[row]),
        device=None if device < 0 else device,
        stalls={reason: known[reason] for reason in top},
    )


def _headline(view: MetricView, row: int) -> dict[str, MetricValue]:
    mode = view.modes[row]
    short = bool(view.duration_ns[row] < _SHORT_NS) and mode.passes != 1
    metrics: dict[str, MetricValue] = {}
    for spellings in _HEADLINE:
        found = view.lookup(row, *spellings)
        if found is not None:
            metrics[found[0]] = _value(*found, mode, short=short)
    for name, sectors, requests in _DERIVED:
        if sectors in metrics and requests in metrics:
            upper, lower = metrics[sectors].value, metrics[requests].value
            if upper is not None and lower:
                metrics[name] = MetricValue(upper / lower, "sector/request", mode)
    return metrics


def _value(name: str, value: float, unit: str, mode: Mode, *, short: bool) -> MetricValue:
    wrong = invalid_rate(value, unit)
    if wrong is not None:
        return MetricValue(None, unit, mode, wrong)
    if short and name in _TWO_PASSES:
        wrong = "the kernel is shorter than 20 us and hits and lookups come from two passes"
    return MetricValue(int(value) if value.is_integer() else value, unit, mode, wrong)


def _timeline(tables: TableSet, stages: dict[int, str]) -> tuple[list[KernelRow], int]:
    """One row a kernel name and stage. Grid, block and device where all launches agree."""
    activities = tables.get("activities")
    kinds, kind_words = codes_of(activities.column("kind"))
    wanted = np.asarray([*(k in ("kernel", "collective") for k in kind_words), False])
    rows = rows_of(wanted[kinds])
    codes, words = codes_of(activities.column("name"))
    column = activities.column("stage")
    where = where_valid(as_numpy(column), valid_of(column))
    begin, end = as_numpy(activities.column("begin_ns")), as_numpy(activities.column("end_ns"))
    key = pack(codes[rows], where[rows])
    first, (total, count) = sum_by(key, (end - begin)[rows], np.ones(len(key), dtype=np.bool_))
    if not len(first):
        return [], 0
    group = Lookup.of(key[first]).first(key)
    shapes = [
        _agreed(activities.column(f"{what}_{axis}"), rows, group, first)
        for what in ("grid", "block")
        for axis in "xyz"
    ]
    launch = np.stack(shapes, axis=1)
    devices = _agreed(activities.column("device"), rows, group, first, absent=-1)
    names, own = codes[rows][first], where[rows][first]
    kept = np.argsort(-total, kind="stable")[:KEPT].tolist()
    made = [
        KernelRow(
            name=words[names[g]] if names[g] >= 0 else "",
            stage=stages.get(int(own[g])),
            count=int(count[g]),
            total_ns=int(total[g]),
            metrics={},
            source="timeline",
            grid=launch_shape(launch[g, :3]),
            block=launch_shape(launch[g, 3:]),
            device=None if devices[g] < 0 else int(devices[g]),
        )
        for g in kept
    ]
    return made, len(first) - len(made)


def _agreed(
    column: pa.ChunkedArray, rows: Ints | slice, group: Ints, first: Ints, absent: int = 0
) -> Ints:
    """The one value of each group; `absent` where its rows differ or one is null."""
    values, valid = as_numpy(column), valid_of(column)
    if not valid.any():
        return np.full(len(first), absent, dtype=np.int64)
    if not valid.all():
        values = np.where(valid, values, values.dtype.type(absent))
    if values.strides == (0,):
        return np.full(len(first), values[0], dtype=np.int64)
    chosen = values[rows]
    one = chosen[first].astype(np.int64)
    one[group[one[group] != chosen]] = absent
    return one
