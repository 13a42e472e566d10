# SPDX-License-Identifier: Apache-2.0
"""The JSON of the contract `graphtrace.analysis/1` and of errors, `graphtrace.error/1`.

The schemas ship beside this module in `schema/`. Everything outside ASCII is escaped, so that names
from files cannot steer a terminal that the text is printed to.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import graphtrace
from graphtrace.model.analysis import (
    Analysis,
    Budget,
    Coverage,
    DeviceBudget,
    Evidence,
    Finding,
    KernelRow,
    MetricValue,
    Mode,
    Replays,
    Split,
    StageBudget,
)
from graphtrace.model.errors import GraphtraceError
from graphtrace.model.trace import RunCost

__all__ = ["ANALYSIS_SCHEMA", "ERROR_SCHEMA", "dump", "plain_id", "render", "render_error"]

ANALYSIS_SCHEMA: Final = "graphtrace.analysis/1"
ERROR_SCHEMA: Final = "graphtrace.error/1"

_LARGEST_EXACT: Final = 2**53
"""Above it a reader that keeps numbers as doubles (JavaScript, jq) loses digits of an id."""


def _value(value: float | int | str | None, name: str = "") -> float | int | str | None:
    """A number that JSON can carry: no NaN and no infinity; large ids as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and name.endswith("_id"):
        return plain_id(value)
    return value


def plain_id(value: int | None) -> int | str | None:
    """An id, as a string where it is too large for a double."""
    return value if value is None or abs(value) <= _LARGEST_EXACT else str(value)


def _mode(mode: Mode | None) -> dict[str, Any] | None:
    if mode is None:
        return None
    return {"cache": mode.cache, "clock": mode.clock, "passes": mode.passes}


def _metrics(metrics: Mapping[str, MetricValue]) -> dict[str, Any]:
    return {
        name: {
            "value": _value(metric.value, name),
            "unit": metric.unit,
            "mode": _mode(metric.mode),
            "invalid": metric.invalid,
        }
        for name, metric in metrics.items()
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "name": evidence.name,
        "value": _value(evidence.value, evidence.name),
        "unit": evidence.unit,
        "mode": _mode(evidence.mode),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "analyzer": finding.analyzer,
        "kind": finding.kind,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "stage": finding.stage,
        "kernel": finding.kernel,
        "results": list(finding.results),
        "device": finding.device,
        "replays": finding.replays,
        "claimed_ns": finding.claimed_ns,
        "recoverable_ns": finding.recoverable_ns,
        "share": _value(finding.share),
        "share_of": finding.share_of,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "why": finding.why,
        "do": finding.do,
        "prove": finding.prove,
    }


def _split(split: Split) -> dict[str, int]:
    return {
        "total": split.total,
        "in_graphs": split.in_graphs,
        "exact": split.exact,
        "inferred": split.inferred,
        "unattributed": split.unattributed,
    }


def _coverage(coverage: Coverage | None) -> dict[str, Any] | None:
    if coverage is None:
        return None
    return {
        "activities": _split(coverage.activities),
        "time_ns": _split(coverage.time_ns),
        "reasons": dict(coverage.reasons),
    }


def _replays(replays: Replays | None) -> dict[str, Any] | None:
    if replays is None:
        return None
    return {
        "count": replays.count,
        "wall_ns": {
            "total": replays.wall_total_ns,
            "median": replays.wall_median_ns,
            "p99": replays.wall_p99_ns,
        },
    }


def _by_stage(rows: Sequence[StageBudget]) -> list[dict[str, Any]]:
    return [
        {
            "stage": row.stage,
            "busy_ns": row.busy_ns,
            "idle_ns": row.idle_ns,
            "share": _value(row.share),
        }
        for row in rows
    ]


def _parts(part: Budget | DeviceBudget) -> dict[str, Any]:
    return {
        "wall_ns": part.wall_ns,
        "busy_ns": part.busy_ns,
        "idle_ns": part.idle_ns,
        "by_stage": _by_stage(part.by_stage),
        "idle_by_kind": dict(part.idle_by_kind),
    }


def _budget(budget: Budget | None) -> dict[str, Any] | None:
    if budget is None:
        return None
    return {
        "scope": budget.scope,
        "units": budget.units,
        **_parts(budget),
        "by_device": [{"device": part.device, **_parts(part)} for part in budget.by_device],
        "eager": {"kernels": budget.eager.kernels, "busy_ns": budget.eager.busy_ns},
    }


def _kernel(row: KernelRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "stage": row.stage,
        "count": row.count,
        "total_ns": row.total_ns,
        "metrics": _metrics(row.metrics),
        "source": row.source,
        "result": row.result,
        "grid": None if row.grid is None else list(row.grid),
        "block": None if row.block is None else list(row.block),
        "device": row.device,
        "stalls": {reason: _value(warps) for reason, warps in row.stalls.items()},
    }


def _cost(cost: RunCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    return {
        "records": cost.records,
        "lost": cost.lost,
        "hook_ns_per_border": cost.hook_ns_per_border,
        "overhead_ns": cost.overhead_ns,
        "profiler": cost.profiler,
    }


def _origin(analysis: Analysis) -> dict[str, Any]:
    """Where the figures come from: inputs and devices."""
    return {
        "inputs": [
            {
                "path": info.path,
                "kind": info.kind,
                "tool": info.tool,
                "tool_version": info.tool_version,
                "synthetic": info.synthetic,
            }
            for info in analysis.inputs
        ],
        "devices": [
            {
                "device": info.device,
                "kind": info.kind,
                "ordinal": info.ordinal,
                "name": info.name,
                "sm_count": info.sm_count,
                "l2_bytes": info.l2_bytes,
                "dram_bytes_per_s": info.dram_bytes_per_s,
                "compute_capability": info.compute_capability,
            }
            for info in analysis.devices
        ],
    }


def _batches(analysis: Analysis) -> list[dict[str, Any]] | None:
    if analysis.batches is None:
        return None
    return [
        {
            "label": row.label,
            "valid_tokens": row.valid_tokens,
            "captured_tokens": row.captured_tokens,
            "samples": row.samples,
            "wall_ns": row.wall_ns,
        }
        for row in analysis.batches
    ]


def _document(analysis: Analysis) -> dict[str, Any]:
    return {
        "schema": ANALYSIS_SCHEMA,
        "graphtrace_version": graphtrace.__version__,
        "synthetic": analysis.synthetic,
        "verdict": analysis.verdict,
        "gates": [
            {
                "name": gate.name,
                "value": _value(gate.value),
                "limit": _value(gate.limit),
                "passed": gate.passed,
            }
            for gate in analysis.gates
        ],
        **_origin(analysis),
        "coverage": _coverage(analysis.coverage),
        "replays": _replays(analysis.replays),
        "budget": _budget(analysis.budget),
        "stages": [
            {
                "stage": row.stage,
                "kernels": row.kernels,
                "replays": row.replays,
                "busy_ns": row.busy_ns,
                "metrics": _metrics(row.metrics),
            }
            for row in analysis.stages
        ],
        "kernels": [_kernel(row) for row in analysis.kernels],
        "truncated": dict(analysis.truncated),
        "findings": [_finding(finding) for finding in analysis.findings],
        "abstentions": [
            {"analyzer": row.analyzer, "reason": row.reason, "rerun": row.rerun}
            for row in analysis.abstentions
        ],
        "tables": {"association": None, "batches": _batches(analysis), "buckets": None},
        "quarantine": [
            {"table": row.table, "reason": row.reason, "count": row.count}
            for row in analysis.quarantine
        ],
        "warnings": list(analysis.warnings),
        "options": {
            analyzer: {name: _value(value) for name, value in values.items()}
            for analyzer, values in analysis.options.items()
        },
        "cost": _cost(analysis.cost),
        "timing": dict(analysis.timing),
    }


def dump(document: dict[str, Any]) -> str:
    """A document as JSON in ASCII, without control characters."""
    # DEL is the one control character that ASCII-only JSON leaves as it is.
    text = json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def render(analysis: Analysis) -> str:
    """The analysis as one JSON document without a final line end."""
    return dump(_document(analysis))


def render_error(error: GraphtraceError) -> str:
    """An error as one JSON document: exit code, what happened, why, and what to do."""
    return dump(
        {
            "schema": ERROR_SCHEMA,
            "exit": error.exit_code,
            "what": error.what,
            "why": error.why,
            "do": error.do,
        }
    )
