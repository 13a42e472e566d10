# SPDX-License-Identifier: Apache-2.0
"""From claims to findings: validated, clipped to the time they sit in, ranked.

Analyzers claim without knowing of each other. Here their claims are clipped, in order of confidence
and then of claimed time, so that what the findings of a stage give back never overlaps and never
exceeds the busy (or idle) time of that stage.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.analysis.rows import stage_paths
from graphtrace.attribute.keys import pack, sum_by
from graphtrace.model.analysis import Evidence, Finding
from graphtrace.model.arrays import as_numpy, valid_of
from graphtrace.model.errors import GraphtraceError
from graphtrace.model.metric_view import MetricView
from graphtrace.model.plugin import Claim
from graphtrace.model.trace import InputInfo, Trace
from graphtrace.model.vocabulary import CONFIDENCES, SEVERITIES

__all__ = ["Pools", "Results", "findings"]

_Key = tuple[str, int, int | None]


@dataclass(slots=True)
class Pools:
    """Busy and idle time by stage, of all devices and of each: what claims are clipped to.

    Stage -1 is the unattributed rest. `None` as device stands for all of them.
    """

    left: dict[_Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, stage_times: pa.Table) -> "Pools":
        """The pools of a table `stage_times`, summed over its units."""
        pools = cls()
        stage = _keys(stage_times.column("stage"))
        device = _keys(stage_times.column("device"))
        pairs, sums = sum_by(
            pack(stage, device),
            *(as_numpy(stage_times.column(f"{pool}_ns")) for pool in ("busy", "idle")),
        )
        places = list(zip(stage[pairs].tolist(), device[pairs].tolist(), strict=True))
        for pool, totals in zip(("busy", "idle"), sums, strict=True):
            for (one_stage, one_device), ns in zip(places, totals.tolist(), strict=True):
                pools.left[pool, one_stage, one_device] = ns
                whole = (pool, one_stage, None)
                pools.left[whole] = pools.left.get(whole, 0) + ns
        return pools

    def take(self, claim: Claim) -> int:
        """What of the claimed time is still there; it is gone afterwards."""
        stage = -1 if claim.stage is None else claim.stage
        keys: list[_Key] = [(claim.pool, stage, None)]
        if claim.device is not None:
            keys.append((claim.pool, stage, claim.device))
        taken = min(int(claim.claimed_ns or 0), *(self.left.get(key, 0) for key in keys))
        for key in keys:
            if key in self.left:
                self.left[key] -= taken
        return taken


def _keys(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.where(valid_of(column), as_numpy(column), -1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Results:
    """Names and durations of the ncu results, by key."""

    labels: Mapping[int, str]
    duration_ns: Mapping[int, float]

    @classmethod
    def of(cls, view: MetricView, inputs: Sequence[InputInfo]) -> "Results":
        """Those of a trace; a result is named as `report.ncu-rep#3`, by its place in the report."""
        bases = [PurePath(info.path).name for info in inputs]
        shown = [
            base if bases.count(base) == 1 else info.path
            for base, info in zip(bases, inputs, strict=True)
        ]
        labels, durations = {}, {}
        rows = zip(view.keys.tolist(), view.sources.tolist(), view.ncu_ids.tolist(), strict=True)
        for row, (key, source, position) in enumerate(rows):
            labels[key] = f"{shown[source]}#{position}"
            durations[key] = float(view.duration_ns[row])
        return cls(labels, durations)

    def weight(self, claim: Claim) -> float:
        """Time of one launch each that a claim without a timeline is about, ns; ranks only."""
        if claim.share_of_kernel is None:
            return 0.0
        known = [self.duration_ns.get(key, 0.0) for key in claim.results]
        return claim.share_of_kernel * sum(ns for ns in known if not math.isnan(ns))


def findings(
    claims: Sequence[tuple[str, Claim]],
    trace: Trace,
    wall_ns: int | None,
    results: Results,
) -> tuple[Finding, ...]:
    """Clip, name and rank the claims.

    Args:
        claims: analyzer id and claim, in the order in which they were made.
        trace: the attributed trace: `stages` and `stage_times` are read.
        wall_ns: wall time of the budget, None where there is none.
        results: the ncu results.

    Returns:
        Findings by recoverable time, then by estimated time within the ncu reports, then by
        share and severity.

    Raises:
        GraphtraceError: a claim contradicts the interface; the analyzer is named.
    """
    paths = stage_paths(trace.tables)
    for analyzer, claim in claims:
        _check(analyzer, claim, paths, results)
    pools = Pools.of(trace.tables.get("stage_times")) if wall_ns else None
    seen: dict[str, int] = {}
    made: list[tuple[Finding, float]] = []
    for analyzer, claim in sorted(claims, key=_clip_order):
        stage = None if claim.stage is None else paths[claim.stage]
        identity = "\0".join((analyzer, claim.kind, stage or "", claim.fingerprint))
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] > 1:
            identity += f"\0{seen[identity]}"
        recoverable = None
        if pools is not None and claim.claimed_ns is not None:
            recoverable = pools.take(claim)
        finding = _finding(analyzer, claim, identity, stage, recoverable, wall_ns, results)
        made.append((finding, results.weight(claim)))
    made.sort(key=lambda item: _rank(*item))
    return tuple(finding for finding, _ in made)


def _clip_order(item: tuple[str, Claim]) -> tuple[int, int, str, str, str, int]:
    analyzer, claim = item
    stage = -1 if claim.stage is None else claim.stage
    confidence = CONFIDENCES.index(claim.confidence)
    return confidence, -(claim.claimed_ns or 0), analyzer, claim.kind, claim.fingerprint, stage


def _rank(finding: Finding, weight: float) -> tuple[bool, int, float, float, int, str]:
    """Sort key. What one ncu result takes differs by orders of magnitude, so its share alone,
    which is of its own duration, would put a launch of 2 us before one of 2 s.
    """
    return (
        finding.recoverable_ns is None,
        -(finding.recoverable_ns or 0),
        -weight,
        -(finding.share or 0.0),
        SEVERITIES.index(finding.severity),
        finding.id,
    )


def _finding(
    analyzer: str,
    claim: Claim,
    identity: str,
    stage: str | None,
    recoverable_ns: int | None,
    wall_ns: int | None,
    results: Results,
) -> Finding:
    on_wall = recoverable_ns is not None and bool(wall_ns)
    return Finding(
        id=hashlib.sha256(identity.encode()).hexdigest()[:12],
        analyzer=analyzer,
        kind=claim.kind,
        severity=claim.severity,
        confidence=claim.confidence,
        stage=stage,
        claimed_ns=int(claim.claimed_ns) if wall_ns and claim.claimed_ns is not None else None,
        recoverable_ns=recoverable_ns,
        share=(recoverable_ns or 0) / (wall_ns or 1) if on_wall else claim.share_of_kernel,
        share_of="wall" if on_wall else "kernel",
        evidence=tuple(_plain(item) for item in claim.evidence),
        why=claim.why,
        do=claim.do,
        prove=claim.prove,
        kernel=claim.kernel,
        results=tuple(results.labels[key] for key in claim.results),
        device=claim.device,
        replays=claim.replays,
    )


def _plain(item: Evidence) -> Evidence:
    """The evidence with a number of Python in it: analyzers may put one of numpy there."""
    return replace(item, value=item.value.item()) if isinstance(item.value, np.generic) else item


def _check(analyzer: str, claim: Claim, paths: Mapping[int, str], results: Results) -> None:
    share, claimed = claim.share_of_kernel, claim.claimed_ns
    wrong = None
    if share is not None and not (math.isfinite(share) and 0.0 <= share <= 1.0):
        wrong = f"its share of the kernel is {share}, not between 0 and 1"
    elif claimed is not None and (isinstance(claimed, float) or claimed < 0):
        wrong = f"its claimed time is {claimed}, not a whole number of ns from 0"
    elif claim.stage is not None and claim.stage not in paths:
        wrong = f"there is no stage with the key {claim.stage}"
    elif any(key not in results.labels for key in claim.results):
        wrong = f"there is no ncu result with one of the keys {claim.results}"
    elif claim.severity not in SEVERITIES or claim.confidence not in CONFIDENCES:
        wrong = f"{claim.severity!r} or {claim.confidence!r} is no severity or confidence"
    else:
        odd = [e.name for e in claim.evidence if _odd(e.value)]
        if odd:
            wrong = f"the value of {odd[0]} is not finite"
    if wrong is not None:
        raise GraphtraceError(
            f"The analyzer {analyzer} made a claim that cannot be.",
            f"In its claim of kind {claim.kind}, {wrong}.",
            f"Report it to who wrote {analyzer}, and name the other analyzers with --only.",
        )


def _odd(value: float | int | str | None) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
