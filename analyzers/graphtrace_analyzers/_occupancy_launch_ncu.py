# SPDX-License-Identifier: Apache-2.0
"""Tail, small grid and low occupancy from results of Nsight Compute.

One result gets one kind, the most specific: an occupancy gap of a small grid or of a tail is the
same lost time seen again.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.model.analysis import Abstention, Evidence
from graphtrace.model.metric_view import (
    ACHIEVED_OCCUPANCY,
    DURATION,
    ISSUE_ACTIVE,
    SM_COUNT,
    SM_ELAPSED,
    THEORETICAL_OCCUPANCY,
    WARP_LATENCY,
    WAVES,
    MetricView,
)
from graphtrace.model.plugin import Claim
from graphtrace_analyzers._claims import (
    capped,
    fingerprint,
    headroom,
    launches,
    longest,
    ncu_command,
    percent,
    profiled_share,
    ratio,
    severity,
    share_of,
    some,
    weighted,
)
from graphtrace_analyzers._occupancy_launch_options import ID, Options

__all__ = ["profiled"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_ACTIVE: Final = ("sm__cycles_active.avg",)
_SCOREBOARD: Final = ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",)
_TAIL_METRICS: Final = (*_ACTIVE, SM_ELAPSED[0], *WAVES, *DURATION)

_WARP_SECTIONS: Final = "--section Occupancy --section SchedulerStats --section WarpStateStats"


def profiled(
    view: MetricView, options: Options
) -> tuple[tuple[Claim, ...], tuple[Abstention, ...]]:
    """Claims and abstentions for ncu results."""
    small = _small_grid(view, options)
    idle, tail, no_idle = _tail(view, options)
    tail &= ~small
    gap, low, no_stalls = _low_occupancy(view, options)
    low &= ~small & ~tail
    claims = (
        *(_small_claim(view, rows) for rows in launches(view, small)),
        *(_tail_claim(view, rows, idle) for rows in launches(view, tail)),
        *(_low_claim(view, rows, gap) for rows in launches(view, low)),
    )
    abstentions = (
        _abstain(
            view,
            no_idle & ~small,
            "Whether a partial last wave leaves SMs idle",
            "active and elapsed SM cycles were not collected",
            f"--metrics {','.join(_TAIL_METRICS)} -o profile",
        ),
        _abstain(
            view,
            no_stalls & ~small & ~tail,
            "Whether low occupancy costs time",
            "issue rate and stall reasons were not collected",
            _WARP_SECTIONS,
        ),
    )
    return claims, tuple(a for a in abstentions if a is not None)


def _blocks(view: MetricView) -> Floats:
    grid = view.grid.prod(axis=1).astype(np.float64)
    return np.where(grid > 0, grid, view.values("launch__grid_size"))


def _shared(view: MetricView) -> Flags:
    """Results that had not the whole device, or whose blocks come in clusters: no wave counts."""
    flags = ("launch__uses_green_context", "launch__uses_mps", "launch__uses_vgpu")
    shared = np.zeros(len(view), dtype=np.bool_)
    for name in flags:
        shared |= np.nan_to_num(view.values(name)) > 0.0
    return shared | (np.nan_to_num(view.values("launch__cluster_size")) > 1.0)


def _small_grid(view: MetricView, options: Options) -> Flags:
    blocks, sms = _blocks(view), view.values(*SM_COUNT)
    long = view.duration_ns >= options.grid_min_ns
    return (blocks >= 1.0) & (blocks < sms) & long & ~_shared(view)


def _tail(view: MetricView, options: Options) -> tuple[Floats, Flags, Flags]:
    """Idle share, which results have a tail, and which lack the cycles to say."""
    waves = view.values(*WAVES)
    idle = 1.0 - share_of(view.values(*_ACTIVE), view.values(*SM_ELAPSED))
    partial = (waves >= 1.0) & (waves < options.tail_waves) & (waves != np.floor(waves))
    possible = partial & (view.duration_ns >= options.tail_min_ns) & ~_shared(view)
    found = possible & (np.nan_to_num(idle) >= options.tail_idle)
    return idle, found, possible & np.isnan(idle)


def _low_occupancy(view: MetricView, options: Options) -> tuple[Floats, Flags, Flags]:
    """Gap as a share of theoretical occupancy, where it costs time, and where nobody can say."""
    achieved, theoretical = view.rate(*ACHIEVED_OCCUPANCY), view.rate(*THEORETICAL_OCCUPANCY)
    gap = np.nan_to_num(1.0 - share_of(achieved, theoretical))
    wide = (gap > 0.0) & (theoretical - achieved >= options.occupancy_gap)
    wide &= view.duration_ns >= options.tail_min_ns
    issue = view.values(*ISSUE_ACTIVE)
    waiting = _waiting(view)
    left = headroom(view)
    known = np.isfinite(issue) & np.isfinite(waiting) & np.isfinite(left)
    costs = (issue < options.issue_active) & (waiting > options.scoreboard_share)
    costs &= left > 1.0 - options.busiest_pct / 100.0
    return gap, wide & known & costs, wide & ~known


def _waiting(view: MetricView) -> Floats:
    """Share of warp latency spent waiting for memory."""
    return share_of(view.values(*_SCOREBOARD), view.values(*WARP_LATENCY))


def _abstain(
    view: MetricView, flagged: Flags, question: str, lacks: str, arguments: str
) -> Abstention | None:
    rows = np.flatnonzero(flagged).tolist()
    if not rows:
        return None
    reason = f"{question} cannot be said for {some(len(rows), len(view))}: {lacks}."
    return Abstention(ID, reason, ncu_command(view.functions[longest(view, rows)], arguments))


def _small_claim(view: MetricView, rows: list[int]) -> Claim:
    row = longest(view, rows)
    blocks, sms = _blocks(view), view.values(*SM_COUNT)
    # NVIDIA's rule LaunchConfiguration: (SMs - blocks) / SMs.
    share = 1.0 - share_of(blocks, sms)
    at_stake = weighted(view, rows, capped(share, headroom(view)))
    count, whole = int(blocks[row]), int(sms[row])
    return Claim(
        kind="small_grid",
        severity=severity(profiled_share(view, rows, at_stake)),
        confidence="medium",
        fingerprint=fingerprint(view, row),
        evidence=(
            Evidence("launch__grid_size", count, "", view.modes[row]),
            *view.evidence(row, SM_COUNT, WAVES, _ACTIVE, SM_ELAPSED, DURATION),
        ),
        why=f"{count} {'block runs' if count == 1 else 'blocks run'} on {whole} SMs:"
        f" {whole - count} stand idle unless another kernel fills them, which ncu cannot show; at"
        f" most {percent(at_stake)} of the kernel comes back.",
        do="Split the work into at least one block per SM (smaller tiles, split-K), or run it"
        " beside an independent branch of the graph.",
        prove=ncu_command(
            view.functions[row], "--launch-count 1 --section LaunchStats --section SpeedOfLight"
        ),
        share_of_kernel=at_stake,
        results=tuple(int(view.keys[r]) for r in rows),
        kernel=view.names[row],
    )


def _tail_claim(view: MetricView, rows: list[int], idle: Floats) -> Claim:
    row = longest(view, rows)
    share = np.nan_to_num(idle)
    where = percent(float(idle[row]))
    if len(rows) > 1:
        over = percent(weighted(view, rows, share))
        where += f" of the longest of {len(rows)} launches ({over} over all)"
    else:
        where += " of the time"
    at_stake = weighted(view, rows, capped(share, headroom(view)))
    waves = float(view.values(*WAVES)[row])
    return Claim(
        kind="tail",
        severity=severity(profiled_share(view, rows, at_stake)),
        confidence="high",
        fingerprint=fingerprint(view, row),
        evidence=(
            Evidence("graphtrace__sm_idle_share", float(idle[row]), "", view.modes[row]),
            *view.evidence(
                row,
                WAVES,
                _ACTIVE,
                SM_ELAPSED,
                ACHIEVED_OCCUPANCY,
                THEORETICAL_OCCUPANCY,
                DURATION,
            ),
        ),
        why=f"SMs stand idle {where}: the blocks make {ratio(waves)} waves and the last ones run"
        f" nearly alone; at most {percent(at_stake)} of the kernel comes back.",
        do="Even out the work of the blocks, or use smaller blocks, or as many as fill whole waves"
        " (a loop over tiles with one wave of blocks has no tail).",
        prove=ncu_command(
            view.functions[row], f"--launch-count 1 --metrics {','.join(_TAIL_METRICS)}"
        ),
        share_of_kernel=at_stake,
        results=tuple(int(view.keys[r]) for r in rows),
        kernel=view.names[row],
    )


def _low_claim(view: MetricView, rows: list[int], gap: Floats) -> Claim:
    row = longest(view, rows)
    # NVIDIA's rule AchievedOccupancy: (theoretical - achieved) / theoretical.
    at_stake = weighted(view, rows, capped(gap, headroom(view)))
    achieved = float(view.values(*ACHIEVED_OCCUPANCY)[row])
    theoretical = float(view.values(*THEORETICAL_OCCUPANCY)[row])
    waves = float(view.values(*WAVES)[row])
    waiting = float(_waiting(view)[row])
    cause = f"the launch is only {ratio(waves)} of a wave" if waves < 1.0 else "warps end unevenly"
    remedy = (
        "Give the kernel more to do at once: larger batches, more threads for the same work, or"
        " fuse it with its neighbours."
        if waves < 1.0
        else "Even out the work of warps and blocks, or use smaller blocks, so that freed slots are"
        " filled again."
    )
    return Claim(
        kind="low_occupancy",
        severity=severity(profiled_share(view, rows, at_stake)),
        confidence="medium",
        fingerprint=fingerprint(view, row),
        evidence=(
            *view.evidence(row, ACHIEVED_OCCUPANCY, THEORETICAL_OCCUPANCY, WAVES, ISSUE_ACTIVE),
            Evidence("graphtrace__long_scoreboard_share", waiting, "", view.modes[row]),
            *view.evidence(row, _SCOREBOARD, WARP_LATENCY, DURATION),
        ),
        why=f"{ratio(achieved)} % of the warp slots are filled where {ratio(theoretical)} % could"
        f" be ({cause}), and warps wait for memory {percent(waiting)} of their time; at most"
        f" {percent(at_stake)} of the kernel comes back.",
        do=remedy,
        prove=ncu_command(
            view.functions[row],
            f"--launch-count 1 {_WARP_SECTIONS}",
        ),
        share_of_kernel=at_stake,
        results=tuple(int(view.keys[r]) for r in rows),
        kernel=view.names[row],
    )
