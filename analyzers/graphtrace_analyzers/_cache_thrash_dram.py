# SPDX-License-Identifier: Apache-2.0
"""Thrash and capacity: DRAM reads against the bytes that a kernel must read."""

import shlex
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.model.analysis import Abstention, Evidence
from graphtrace.model.arrays import as_numpy, valid_of
from graphtrace.model.errors import UsageError
from graphtrace.model.metric_view import DRAM_PCT, DRAM_READ, DURATION, MetricView
from graphtrace.model.plugin import Claim
from graphtrace.model.trace import TableSet
from graphtrace_analyzers._cache_thrash_options import ID, Options
from graphtrace_analyzers._claims import (
    PROGRAM,
    fingerprint,
    launches,
    longest,
    percent,
    profiled_share,
    quotient,
    ratio,
    severity,
    share_of,
    some,
    weighted,
)

__all__ = ["judge"]

_L2_BYTES: Final = ("device__attribute_l2_cache_size",)
_GB20X: Final = 12
"""Compute capability, major, of the chips that count DRAM bytes by operation."""
# One pass together on GA100, GA102, AD102, GH100, GB100 and GB202, so that nothing is replayed and
# the caches stay as the kernel before left them.
_ONE_PASS: Final = (
    "gpu__time_duration.sum",
    "dram__bytes.sum.pct_of_peak_sustained_elapsed",
    "lts__t_sectors.sum",
    "lts__t_sectors.avg",
    "lts__t_sectors.max",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
)


def judge(
    tables: TableSet, view: MetricView, options: Options
) -> tuple[tuple[Claim, ...], tuple[Abstention, ...]]:
    """Claims, and an abstention over the kernels that read DRAM much and cannot be judged.

    A kernel that keeps DRAM less busy than `dram_pct` loses no time to re-reading it: that holds
    for flushed caches too, which read more than warm ones. It needs no verdict.
    """
    if options.compulsory_bytes < 0:
        raise UsageError(
            "cache_thrash.compulsory_bytes is negative.",
            "It is the number of unique bytes that the kernel must read.",
            "Set it to that number, or leave it out.",
        )
    busy = view.rate(*DRAM_PCT)
    must = float(options.compulsory_bytes)
    named = _named(view, options)
    reads, l2 = view.values(*DRAM_READ), _l2_bytes(tables, view)
    modes = view.modes
    clean = np.array([m.passes == 1 and m.cache == "warm" for m in modes], dtype=np.bool_)
    idle = busy < options.dram_pct
    known = named & clean & np.isfinite(busy) & np.isfinite(reads) & np.isfinite(l2) & (must > 0.0)
    high = known & ~idle & (quotient(reads, must) >= options.amplification)
    fits, exceeds = must <= options.resident * l2, must > options.beyond * l2
    share = np.nan_to_num(1.0 - share_of(np.full(len(view), must), reads))
    claims = []
    for kind, where in (("thrash", fits), ("capacity", exceeds)):
        flagged = high & where & (share >= options.min_share)
        claims += [_claim(view, kind, rows, must, l2, share) for rows in launches(view, flagged)]
    undecided = np.flatnonzero((~known & ~idle) | (high & ~fits & ~exceeds)).tolist()
    if not undecided:
        return tuple(claims), ()
    return tuple(claims), (_abstention(tables, view, undecided, high, named & (must > 0.0)),)


def _named(view: MetricView, options: Options) -> npt.NDArray[np.bool_]:
    wanted = options.compulsory_kernel
    both = zip(view.functions, view.names, strict=True)
    return np.array([wanted in ("", function, name) for function, name in both], dtype=np.bool_)


def _l2_bytes(tables: TableSet, view: MetricView) -> npt.NDArray[np.float64]:
    """Size of the L2 cache that each result ran with; NaN where it is unknown."""
    reported = view.values(*_L2_BYTES)
    devices = tables.get("devices")
    size = devices.column("l2_bytes")
    sizes = np.where(valid_of(size), as_numpy(size).astype(np.float64), np.nan).tolist()
    of = dict(zip(as_numpy(devices.column("device")).tolist(), sizes, strict=True))
    described = np.array([of.get(int(key), np.nan) for key in view.devices], dtype=np.float64)
    return np.where(np.isfinite(described), described, reported)


def _claim(
    view: MetricView,
    kind: str,
    rows: list[int],
    must: float,
    l2: npt.NDArray[np.float64],
    share: npt.NDArray[np.float64],
) -> Claim:
    row = longest(view, rows)
    at_stake = weighted(view, rows, share)
    mode = view.modes[row]
    amplification = float(view.values(*DRAM_READ)[row]) / must
    fits = "though they fit in" if kind == "thrash" else "and they do not fit in"
    remedy = {
        "thrash": "Keep what is reused resident: order blocks so that neighbours share tiles,"
        " stream what is used once past L2, or pad rows by one 128-byte line.",
        "capacity": "Work on tiles whose data fits in half of L2, or use a smaller data type.",
    }[kind]
    return Claim(
        kind=kind,
        severity=severity(profiled_share(view, rows, at_stake)),
        confidence="medium",
        fingerprint=fingerprint(view, row),
        evidence=(
            Evidence("graphtrace__read_amplification", amplification, "", mode),
            Evidence("graphtrace__compulsory_bytes", int(must), "byte", None),
            Evidence("graphtrace__l2_bytes", int(l2[row]), "byte", None),
            *view.evidence(row, DRAM_READ, DRAM_PCT, DURATION),
        ),
        why=f"It reads {ratio(amplification)} times the bytes it must from DRAM, {fits} L2: at most"
        f" {percent(at_stake)} of the kernel comes back.",
        do=remedy,
        prove=_warm(view.functions[row], gb20x=False, output=""),
        share_of_kernel=at_stake,
        results=tuple(int(view.keys[r]) for r in rows),
        kernel=view.names[row],
    )


def _warm(function: str, *, gb20x: bool, output: str) -> str:
    """Measure a kernel in one pass, with the caches as the kernel before left them."""
    reads = DRAM_READ[1] if gb20x else DRAM_READ[0]
    return (
        f"ncu --cache-control none --clock-control none --kernel-name {shlex.quote(function)}"
        f" --metrics {','.join((*_ONE_PASS, reads))}{output} {PROGRAM}"
    )


def _abstention(
    tables: TableSet,
    view: MetricView,
    rows: Sequence[int],
    high: npt.NDArray[np.bool_],
    told: npt.NDArray[np.bool_],
) -> Abstention:
    row = longest(view, rows)
    function = view.functions[row]
    mode = view.modes[row]
    lacks = []
    if mode.cache != "warm":
        lacks.append(
            "the caches were flushed before each pass"
            if mode.cache == "flushed"
            else "it is not known whether the caches were flushed"
        )
    if mode.passes != 1:
        lacks.append(
            "the number of passes is not known"
            if mode.passes is None
            else f"the counters come from {mode.passes} passes"
        )
    if not told[row]:
        lacks.append("the bytes that the kernel must read are not known")
    if high[row]:
        lacks = ["they take between half and all of L2"]
    reason = (
        f"Whether L2 thrashes cannot be said for {some(len(rows), len(view))}:"
        f" {'; '.join(lacks) or 'DRAM reads, DRAM throughput or the size of L2 are missing'}."
    )
    rerun = (
        f"{_warm(function, gb20x=_is_gb20x(tables, view, row), output=' -o warm')} && graphtrace"
        f" analyze warm.ncu-rep --set {shlex.quote(f'{ID}.compulsory_kernel={function}')}"
        f" --set {ID}.compulsory_bytes=BYTES"
    )
    return Abstention(ID, reason, rerun)


def _is_gb20x(tables: TableSet, view: MetricView, row: int) -> bool:
    devices = tables.get("devices")
    major = devices.column("cc_major")
    at = np.flatnonzero(as_numpy(devices.column("device")) == view.devices[row])
    return any(valid_of(major)[i] and as_numpy(major)[i] == _GB20X for i in at)
