# SPDX-License-Identifier: Apache-2.0
"""From a trace to an analysis: attribute, ask every analyzer, clip, rank, decide."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphtrace.analysis import ranking, registry, vendor
from graphtrace.analysis.gates import check_limits, gates
from graphtrace.analysis.kernels import kernel_rows
from graphtrace.analysis.options import Value, resolve, used
from graphtrace.analysis.rows import (
    batch_rows,
    device_rows,
    quarantine_rows,
    stage_paths,
    stage_rows,
)
from graphtrace.model.analysis import Abstention, Analysis, Finding
from graphtrace.model.errors import GraphtraceError
from graphtrace.model.metric_view import MetricView
from graphtrace.model.plugin import Analyzer, Claim, Outcome
from graphtrace.model.trace import TableSet, Trace
from graphtrace.model.vocabulary import Verdict

__all__ = ["analyze", "run"]

Settings = Mapping[str, Mapping[str, Value]]


def analyze(
    trace: Trace,
    *,
    only: Sequence[str] | None = None,
    options: Settings | None = None,
    fail_over: Mapping[str, float] | None = None,
) -> Analysis:
    """Find what loses time in a trace.

    Args:
        trace: what `graphtrace.load` returns.
        only: ids of the analyzers to run; all that are installed by default.
        options: thresholds by analyzer and option name, instead of the defaults.
        fail_over: limits by gate name, as ratios: `{"recoverable": 0.05}`.

    Raises:
        NoGpuWork: there is nothing to analyze.
        UsageError: an analyzer, option or gate is unknown, or a value is of a wrong type.
        GraphtraceError: an analyzer of another package is broken; it is named.
    """
    return run(trace, only=only, options=options, fail_over=fail_over)[0]


def run(
    trace: Trace,
    *,
    only: Sequence[str] | None = None,
    options: Settings | None = None,
    fail_over: Mapping[str, float] | None = None,
) -> tuple[Analysis, Trace]:
    """As `analyze`, and also the trace with its attribution, which the HTML report draws."""
    check_limits(fail_over)
    installed = registry.analyzers()
    chosen = registry.choose(installed, only)
    resolved = resolve(chosen, installed, options)
    trace.require_work()
    # The readers' and the analyzers' packages load without it.
    from graphtrace.attribute.attribute import attribute

    clock = _Clock()
    attributed = attribute(trace)
    clock.lap("attribute")
    whole, budget = attributed.trace, attributed.budget
    wall_ns = budget.wall_ns if budget is not None else None
    view = MetricView.of(whole.tables)
    results = ranking.Results.of(view, whole.inputs)
    paths = stage_paths(whole.tables)
    kernels, kernels_left = kernel_rows(whole.tables, view, dict(results.labels), paths)
    batches, batches_left = batch_rows(whole.tables)
    stages = stage_rows(whole.tables, paths)
    clock.lap("rows")
    claims: list[tuple[str, Claim]] = []
    abstentions: list[Abstention] = []
    for analyzer in chosen:
        outcome = _ask(analyzer, whole.tables, resolved[analyzer.id])
        claims.extend((analyzer.id, claim) for claim in outcome.claims)
        abstentions.extend(outcome.abstentions)
        clock.lap(analyzer.id)
    found = ranking.findings(claims, whole, wall_ns, results)
    undecided = tuple(abstentions)
    if not vendor.nvidia(whole.tables):
        found, undecided = vendor.runnable_proofs(found), vendor.runnable(undecided)
    clock.lap("rank")
    left_out = {"kernels": kernels_left, "batches": batches_left}
    analysis = Analysis(
        verdict=_verdict(found, undecided),
        inputs=whole.inputs,
        devices=device_rows(whole.tables),
        coverage=attributed.coverage,
        replays=attributed.replays,
        budget=budget,
        stages=stages,
        kernels=kernels,
        findings=found,
        abstentions=undecided,
        batches=batches,
        quarantine=quarantine_rows(whole.tables),
        warnings=whole.warnings,
        gates=gates(fail_over, found, wall_ns),
        options=used(resolved),
        cost=whole.cost,
        timing=clock.laps,
        truncated={name: count for name, count in left_out.items() if count},
    )
    return analysis, whole


@dataclass(slots=True)
class _Clock:
    """Time of our own work, ns by step."""

    laps: dict[str, int] = field(default_factory=dict)
    last: int = field(default_factory=time.perf_counter_ns)

    def lap(self, step: str) -> None:
        """End a step: what passed since the last one ended was its time."""
        now = time.perf_counter_ns()
        self.laps[step] = now - self.last
        self.last = now


def _ask(analyzer: Analyzer, tables: TableSet, options: Any) -> Outcome:
    """What the analyzer says, or its abstention where the trace has not what it needs."""
    missing = [n for n in analyzer.needs if not any(tables.rows(name) for name in n.any_of)]
    if missing:
        said = (Abstention(analyzer.id, need.reason, need.rerun) for need in missing)
        return Outcome(abstentions=tuple(said))
    try:
        outcome = analyzer.run(tables, options)
    except GraphtraceError:
        raise
    except Exception as error:
        raise GraphtraceError(
            f"The analyzer {analyzer.id} failed.",
            f"It raised {type(error).__name__}: {error}.",
            f"Report it to who wrote {analyzer.id}, and name the other analyzers with --only.",
        ) from error
    if not isinstance(outcome, Outcome):
        raise GraphtraceError(
            f"The analyzer {analyzer.id} failed.",
            f"It returned {type(outcome).__name__}, not an Outcome.",
            f"Report it to who wrote {analyzer.id}, and name the other analyzers with --only.",
        )
    return outcome


def _verdict(found: Sequence[Finding], abstentions: Sequence[Abstention]) -> Verdict:
    if found:
        return "findings"
    return "cannot_tell" if abstentions else "clean"
