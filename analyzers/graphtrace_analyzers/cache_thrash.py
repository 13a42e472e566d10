# SPDX-License-Identifier: Apache-2.0
"""Memory accesses that move too much: uncoalesced, thrashing, beyond capacity, on one L2 slice.

Kinds:
    uncoalesced: global accesses touch more 32-byte sectors than they need. Counted from addresses,
        so that it holds whatever the caches did.
    slice_imbalance: one L2 slice gets far more sectors than the mean one.
    thrash, capacity: DRAM reads far above the bytes that the kernel must read, though they fit in
        L2, or because they do not. Only from one pass over warm caches, and only where somebody
        says how many bytes those are: a hit rate of flushed caches says nothing about what one
        kernel leaves for the next, and hits and misses of two passes make no rate.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.model.analysis import Abstention, Evidence
from graphtrace.model.metric_view import (
    DRAM_PCT,
    DRAM_READ,
    DRAM_WRITE,
    DURATION,
    GLOBAL_SECTORS,
    GLOBAL_SECTORS_IDEAL,
    L1_HIT_RATE,
    L1_PCT,
    L2_PCT,
    MetricView,
)
from graphtrace.model.plugin import Analyzer, Claim, Need, Outcome
from graphtrace.model.trace import TableSet
from graphtrace_analyzers._cache_thrash_dram import judge
from graphtrace_analyzers._cache_thrash_options import ID, Options
from graphtrace_analyzers._claims import (
    PROGRAM,
    capped,
    fingerprint,
    launches,
    longest,
    ncu_command,
    percent,
    profiled_share,
    quotient,
    ratio,
    severity,
    share_of,
    some,
    weighted,
)

__all__ = ["ANALYZER", "Options"]

_SECTORS: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_REQUESTS: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_SECTOR_BYTES: Final = 32
_NO_EXCESS: Final = 1.1
"""DRAM bytes up to here above the ideal ones are noise of two passes and other traffic."""
_BALANCE: Final = ("lts__t_sectors.max", "lts__t_sectors.avg", "lts__t_sectors.sum")


def run(tables: TableSet, options: Options) -> Outcome:
    """Claims and abstentions for the ncu results of a trace."""
    view = MetricView.of(tables)
    uncoalesced, unknown = _uncoalesced(view, options)
    verdicts, undecided = judge(tables, view, options)
    claims = (*uncoalesced, *_slices(view, options), *verdicts)
    return Outcome(claims, (*unknown, *undecided))


def _uncoalesced(
    view: MetricView, options: Options
) -> tuple[tuple[Claim, ...], tuple[Abstention, ...]]:
    actual, ideal = view.values(*GLOBAL_SECTORS), view.values(*GLOBAL_SECTORS_IDEAL)
    known = np.isfinite(actual) & np.isfinite(ideal)
    excess = np.nan_to_num(1.0 - share_of(ideal, actual))
    # NVIDIA's rule UncoalescedGlobalAccess takes the excess share of the time in which L2 works.
    # Excess that L1 serves costs L1's time, so the busier of the two counts; all of the time where
    # one of them was not collected.
    pressure = np.maximum(_active(view), view.rate(*L1_PCT) / 100.0)
    share = excess * np.where(np.isfinite(pressure), np.minimum(pressure, 1.0), 1.0)
    limit = _dram_leaves(view, ideal)
    bounded = capped(share, limit)
    flagged = (excess >= options.excess) & (bounded >= options.min_share)
    claims = tuple(
        _uncoalesced_claim(view, rows, excess, bounded, bounded < share)
        for rows in launches(view, flagged)
    )
    missing = np.flatnonzero(~known).tolist()
    if not missing:
        return claims, ()
    reason = (
        f"Whether global accesses are coalesced cannot be said for {some(len(missing), len(view))}:"
        " the sectors that an ideal access would move were not collected."
    )
    rerun = ncu_command(
        view.functions[longest(view, missing)], "--section SourceCounters -o profile"
    )
    return claims, (Abstention(ID, reason, rerun),)


def _dram_leaves(view: MetricView, ideal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Share of the time that DRAM leaves, where DRAM moves no more than ideal accesses ask for.

    Its bytes then carry no excess and stay when the accesses are mended. NaN elsewhere.
    """
    moved = quotient(view.values(*DRAM_READ) + view.values(*DRAM_WRITE), ideal)
    needed = moved <= _NO_EXCESS * _SECTOR_BYTES
    return np.where(needed, 1.0 - view.rate(*DRAM_PCT) / 100.0, np.nan)


def _active(view: MetricView) -> npt.NDArray[np.float64]:
    """Share of the time in which L2 slices work; NaN where it was not collected or is no share."""
    return share_of(view.values("lts__cycles_active.sum"), view.values("lts__cycles_elapsed.sum"))


def _per_request(view: MetricView, row: int) -> tuple[float, float] | None:
    """Sectors per request as addresses have it, and as ideal ones would.

    None where L1's own count of sectors differs by more than a tenth: the requests then include
    accesses that the addresses do not, or the other way about.
    """
    counted = {
        kind: sum(float(np.nan_to_num(view.values(name.format(op))[row])) for op in ("ld", "st"))
        for kind, name in (("sectors", _SECTORS), ("requests", _REQUESTS))
    }
    actual = float(view.values(*GLOBAL_SECTORS)[row])
    ideal = float(view.values(*GLOBAL_SECTORS_IDEAL)[row])
    if counted["requests"] <= 0.0 or abs(counted["sectors"] - actual) > 0.1 * actual:
        return None
    return actual / counted["requests"], ideal / counted["requests"]


def _uncoalesced_claim(
    view: MetricView,
    rows: list[int],
    excess: npt.NDArray[np.float64],
    share: npt.NDArray[np.float64],
    dram_bound: npt.NDArray[np.bool_],
) -> Claim:
    row = longest(view, rows)
    at_stake = weighted(view, rows, share)
    each = _per_request(view, row)
    what = f"{percent(excess[row])} of the sectors that global accesses touch are excess"
    if each is not None:
        what = (
            f"Global accesses touch {ratio(each[0])} sectors per request where {ratio(each[1])}"
            f" would do: {percent(excess[row])} are excess"
        )
    why = f"{what}; at most {percent(at_stake)} of the kernel comes back"
    if dram_bound[row]:
        busy = float(view.rate(*DRAM_PCT)[row]) / 100.0
        why += f", for DRAM is busy {percent(busy)} of the time with bytes that are needed"
    return Claim(
        kind="uncoalesced",
        severity=severity(profiled_share(view, rows, at_stake)),
        confidence="high",
        fingerprint=fingerprint(view, row),
        evidence=_uncoalesced_evidence(view, row, float(excess[row])),
        why=f"{why}.",
        do="Let neighbouring threads touch neighbouring addresses: arrays of each field instead of"
        " records, aligned vector loads, or the fastest index on threadIdx.x.",
        prove=ncu_command(
            view.functions[row],
            f"--launch-count 1 --section SourceCounters --metrics {DURATION[0]}",
        ),
        share_of_kernel=at_stake,
        results=tuple(int(view.keys[r]) for r in rows),
        kernel=view.names[row],
    )


def _uncoalesced_evidence(view: MetricView, row: int, excess: float) -> tuple[Evidence, ...]:
    mode = view.modes[row]
    evidence = [
        Evidence("graphtrace__excess_sectors_share", excess, "", mode),
        *view.evidence(row, GLOBAL_SECTORS, GLOBAL_SECTORS_IDEAL),
    ]
    for op in ("ld", "st"):
        sectors, requests = (view.values(n.format(op))[row] for n in (_SECTORS, _REQUESTS))
        if requests > 0.0 and np.isfinite(sectors):
            name = f"graphtrace__sectors_per_request_{op}"
            evidence.append(Evidence(name, float(sectors / requests), "sector/request", mode))
    active = float(_active(view)[row])
    if np.isfinite(active):
        evidence.append(Evidence("graphtrace__l2_active_share", active, "", mode))
        evidence.append(Evidence("NVIDIA's estimate, of L2 alone", excess * active, "", mode))
    return (*evidence, *view.evidence(row, L1_PCT, L1_HIT_RATE, DRAM_PCT, DURATION))


def _slices(view: MetricView, options: Options) -> tuple[Claim, ...]:
    most, mean, total = (view.values(name) for name in _BALANCE)
    busy = view.rate(*L2_PCT)
    skew = quotient(most, mean)
    # As in NVIDIA's rule WorkloadImbalance: (1 - mean / largest), of the time in which L2 works.
    share = np.nan_to_num((1.0 - share_of(mean, most)) * busy / 100.0)
    flagged = (
        (skew >= options.slice_ratio)
        & (total >= options.slice_sectors)
        & (busy >= options.slice_l2_pct)
        & (share >= options.min_share)
    )
    return tuple(_slice_claim(view, rows, skew, share) for rows in launches(view, flagged))


def _slice_claim(
    view: MetricView,
    rows: list[int],
    skew: npt.NDArray[np.float64],
    share: npt.NDArray[np.float64],
) -> Claim:
    row = longest(view, rows)
    at_stake = weighted(view, rows, share)
    return Claim(
        kind="slice_imbalance",
        severity=severity(profiled_share(view, rows, at_stake)),
        confidence="medium",
        fingerprint=fingerprint(view, row),
        evidence=view.evidence(row, *((name,) for name in _BALANCE), L2_PCT, DURATION),
        why=f"The busiest L2 slice gets {ratio(skew[row])} times the sectors of the mean one, so"
        f" that the others wait: at most {percent(at_stake)} of the kernel.",
        do="Break the stride that sends rows to one slice: pad each row by one 128-byte line.",
        prove=ncu_command(
            view.functions[row], f"--launch-count 1 --metrics {','.join((*_BALANCE, *DURATION))}"
        ),
        share_of_kernel=at_stake,
        results=tuple(int(view.keys[r]) for r in rows),
        kernel=view.names[row],
    )


ANALYZER: Final = Analyzer(
    id=ID,
    summary="memory accesses that move too much: uncoalesced, thrashing, on one L2 slice",
    needs=(
        Need(
            ("metrics",),
            "How kernels use the caches is not in the input: it holds no Nsight Compute metrics.",
            f"ncu --section SourceCounters --section MemoryWorkloadAnalysis -o profile {PROGRAM}",
        ),
    ),
    options=Options,
    run=run,
    kinds=("uncoalesced", "slice_imbalance", "thrash", "capacity"),
)
