# SPDX-License-Identifier: Apache-2.0
"""The result of an analysis: what every report renders and none computes.

Field names are those of the JSON contract `graphtrace.analysis/1`. Absent is None, never 0.
"""

from dataclasses import dataclass, field

from graphtrace.model.trace import InputInfo, RunCost
from graphtrace.model.vocabulary import (
    BudgetScope,
    CacheMode,
    ClockMode,
    Confidence,
    Severity,
    Verdict,
)

__all__ = [
    "Abstention",
    "Analysis",
    "BatchRow",
    "Budget",
    "Coverage",
    "DeviceBudget",
    "DeviceInfo",
    "EagerWork",
    "Evidence",
    "Finding",
    "Gate",
    "KernelRow",
    "MetricValue",
    "Mode",
    "Quarantined",
    "Replays",
    "Split",
    "StageBudget",
    "StageRow",
]


@dataclass(frozen=True, slots=True)
class Mode:
    """How a value was measured. `passes` is None where it is unknown."""

    cache: CacheMode = "unknown"
    clock: ClockMode = "unknown"
    passes: int | None = None


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A number with its base unit. `value` is None where the metric exists but is invalid."""

    value: float | int | None
    unit: str
    mode: Mode | None = None
    invalid: str | None = None
    """Why the value decides nothing, as in "121 % hit rate: hits and lookups of two passes"."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number behind a finding."""

    name: str
    value: float | int | str | None
    unit: str
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that loses time, ranked by what would come back.

    Attributes:
        id: stable over runs (hash of analyzer, kind, stage and fingerprint).
        claimed_ns: lost time before clipping, summed over all replays; None without a timeline.
        recoverable_ns: after clipping, so that findings never overlap; None without a timeline.
        share: ratio 0 to 1 of wall, or of the kernel's own duration where there is no timeline.
        share_of: what `share` is a share of: "wall" or "kernel".
    """

    id: str
    analyzer: str
    kind: str
    severity: Severity
    confidence: Confidence
    stage: str | None
    claimed_ns: int | None
    recoverable_ns: int | None
    share: float | None
    share_of: str
    evidence: tuple[Evidence, ...]
    why: str
    do: str
    prove: str
    kernel: str | None = None
    results: tuple[str, ...] = ()
    """Results it holds for, as `report.ncu-rep#3` (position in the report)."""
    device: int | None = None
    replays: int | None = None


@dataclass(frozen=True, slots=True)
class Abstention:
    """A question that the data cannot decide, and what to run so that it can."""

    analyzer: str
    reason: str
    rerun: str


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device, as far as the inputs describe it."""

    device: int
    kind: str
    ordinal: int | None
    name: str | None
    sm_count: int | None
    l2_bytes: int | None
    dram_bytes_per_s: int | None
    compute_capability: str | None


@dataclass(frozen=True, slots=True)
class Split:
    """A whole and its parts: exact + inferred + unattributed = total."""

    total: int
    in_graphs: int
    exact: int
    inferred: int
    unattributed: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the device work has a stage, by count and by time, and why not the rest."""

    activities: Split
    time_ns: Split
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class Replays:
    """Graph launches and their wall times (first node start to last node end)."""

    count: int
    wall_total_ns: int | None
    wall_median_ns: int | None
    wall_p99_ns: int | None


@dataclass(frozen=True, slots=True)
class StageBudget:
    """Busy and idle time of one stage; `stage` None is the unattributed rest.

    `share` is (busy + idle) / wall.
    """

    stage: str | None
    busy_ns: int
    idle_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class EagerWork:
    """Device work outside replays."""

    kernels: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """The budget of one device; `device` None is the host. busy + idle = wall, by_stage = both."""

    device: int | None
    wall_ns: int
    busy_ns: int
    idle_ns: int
    by_stage: tuple[StageBudget, ...]
    idle_by_kind: dict[str, int]


@dataclass(frozen=True, slots=True)
class Budget:
    """Where the wall time went, summed over devices and units (replays, batches or ranges)."""

    scope: BudgetScope
    units: int
    wall_ns: int
    busy_ns: int
    idle_ns: int
    by_stage: tuple[StageBudget, ...]
    idle_by_kind: dict[str, int]
    by_device: tuple[DeviceBudget, ...]
    eager: EagerWork


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage: kernels, units it ran in, busy time, and metrics weighted by time."""

    stage: str
    kernels: int
    replays: int
    busy_ns: int
    metrics: dict[str, MetricValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel: one ncu result, or all launches of one name in one stage of a timeline.

    `source` is "ncu" or "timeline"; `result` names the ncu result as `report.ncu-rep#3`.
    `stalls` are the top stall reasons of an ncu result: warps stalled per issue, by reason.
    """

    name: str
    stage: str | None
    count: int
    total_ns: int | None
    metrics: dict[str, MetricValue]
    source: str
    result: str | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    device: int | None = None
    stalls: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One step of the program."""

    label: str | None
    valid_tokens: int | None
    captured_tokens: int | None
    samples: int | None
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Rows refused, by table and reason."""

    table: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition a build may fail on. `passed` None: it could not be decided."""

    name: str
    value: float | None
    limit: float
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything an analysis found. None: no input could carry it."""

    verdict: Verdict
    inputs: tuple[InputInfo, ...]
    devices: tuple[DeviceInfo, ...]
    coverage: Coverage | None
    replays: Replays | None
    budget: Budget | None
    stages: tuple[StageRow, ...]
    kernels: tuple[KernelRow, ...]
    findings: tuple[Finding, ...]
    abstentions: tuple[Abstention, ...]
    batches: tuple[BatchRow, ...] | None
    quarantine: tuple[Quarantined, ...]
    warnings: tuple[str, ...]
    gates: tuple[Gate, ...]
    options: dict[str, dict[str, float | int | str | bool]]
    """Values used, by analyzer and option name."""
    cost: RunCost | None
    timing: dict[str, int]
    """Time our own work took, ns by step."""
    truncated: dict[str, int] = field(default_factory=dict)
    """Rows left out of a list, by list name."""

    @property
    def synthetic(self) -> bool:
        """Whether any input was built by `graphtrace.testing`."""
        return any(info.synthetic for info in self.inputs)
