# SPDX-License-Identifier: Apache-2.0
"""The rest of a report: coverage, batches, devices, inputs, quarantine and cost, as plain lines."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from graphtrace.model.analysis import Analysis, BatchRow, Coverage, DeviceInfo, Split
from graphtrace.model.trace import InputInfo, RunCost
from graphtrace.views.names import visible
from graphtrace.views.numbers import Cell, count, data_size, duration, exact, plural, share

__all__ = [
    "BatchGroup",
    "BatchView",
    "CoverageLine",
    "CoverageView",
    "Fact",
    "batch_view",
    "cost_facts",
    "coverage_view",
    "device_lines",
    "input_lines",
]


@dataclass(frozen=True, slots=True)
class CoverageLine:
    """How much of one kind: activities by count and their time, each with its share."""

    label: str
    activities: Cell
    activity_share: float
    time: Cell
    time_share: float


@dataclass(frozen=True, slots=True)
class CoverageView:
    """Coverage in lines that sum to the whole, and why the rest has no stage."""

    sentence: str
    lines: tuple[CoverageLine, ...]
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Batches of one label and one number of captured tokens.

    `padding` is 1 - valid/captured over the group, None where tokens are not known.
    """

    label: str
    batches: int
    captured_tokens: int | None
    valid_tokens: int | None
    padding: float | None
    median: Cell
    slowest: Cell
    total: Cell


@dataclass(frozen=True, slots=True)
class BatchView:
    """Batches by kind, the most time first."""

    sentence: str
    groups: tuple[BatchGroup, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and a value, with the exact value for hover."""

    name: str
    text: str
    exact: str


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _coverage_line(label: str, key: str, activities: Split, time_ns: Split) -> CoverageLine:
    number, ns = getattr(activities, key), getattr(time_ns, key)
    return CoverageLine(
        label,
        Cell(count(number), exact(number, ""), number),
        _ratio(number, activities.total),
        Cell(duration(ns), exact(ns, "ns"), ns),
        _ratio(ns, time_ns.total),
    )


def coverage_view(coverage: Coverage | None) -> CoverageView | None:
    """Coverage by count and time, None where no input could carry it."""
    if coverage is None:
        return None
    labels = (
        ("stage known exactly", "exact"),
        ("stage inferred", "inferred"),
        ("no stage", "unattributed"),
    )
    lines = tuple(
        _coverage_line(label, key, coverage.activities, coverage.time_ns) for label, key in labels
    )
    total = coverage.activities.total
    if total:
        known = coverage.time_ns.exact + coverage.time_ns.inferred
        sentence = (
            f"{share(_ratio(known, coverage.time_ns.total))} of the device time of "
            f"{plural(total, 'activity', 'activities')} has a stage; "
            f"{count(coverage.activities.in_graphs)} ran inside graphs."
        )
    else:
        sentence = "The inputs hold no device activity."
    reasons = sorted(coverage.reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    return CoverageView(sentence, lines, tuple((visible(name), n) for name, n in reasons if n))


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _group(label: str, captured: int | None, rows: list[BatchRow]) -> BatchGroup:
    walls = sorted(row.wall_ns for row in rows)
    # The lower median: a time that a batch really took.
    median = walls[(len(walls) - 1) // 2]
    valid = _total([row.valid_tokens for row in rows])
    padding = None
    if captured and valid is not None:
        padding = 1 - valid / (captured * len(rows))
    return BatchGroup(
        label=label,
        batches=len(rows),
        captured_tokens=captured,
        valid_tokens=valid,
        padding=padding,
        median=Cell(duration(median), exact(median, "ns"), median),
        slowest=Cell(duration(walls[-1]), exact(walls[-1], "ns"), walls[-1]),
        total=Cell(duration(sum(walls)), exact(sum(walls), "ns"), sum(walls)),
    )


def batch_view(rows: Sequence[BatchRow] | None, *, limit: int) -> BatchView | None:
    """Batches grouped by label and captured tokens; None where no input recorded any."""
    if rows is None:
        return None
    grouped: dict[tuple[str, int | None], list[BatchRow]] = defaultdict(list)
    for row in rows:
        grouped[visible(row.label or "(no label)"), row.captured_tokens].append(row)
    groups = [_group(label, captured, members) for (label, captured), members in grouped.items()]
    groups.sort(key=lambda group: (-(group.total.value or 0), group.label))
    wall = sum(row.wall_ns for row in rows)
    sentence = f"{plural(len(rows), 'batch', 'batches')}, {duration(wall)} of host time in all."
    valid, captured = (
        _total([r.valid_tokens for r in rows]),
        _total([r.captured_tokens for r in rows]),
    )
    if rows and valid is not None and captured:
        sentence += (
            f" {count(valid)} of {count(captured)} computed tokens carry data; "
            f"{share(1 - valid / captured)} are padding (a share of tokens, not of time)."
        )
    return BatchView(sentence, tuple(groups[:limit]), max(0, len(groups) - limit))


def device_lines(devices: Sequence[DeviceInfo]) -> tuple[str, ...]:
    """One line a device with what the inputs say about it."""
    lines = []
    for info in devices:
        place = info.kind if info.ordinal is None else f"{info.kind} {info.ordinal}"
        named = f"{visible(info.name)} ({place})" if info.name else f"{place}, name not recorded"
        said = [named]
        if info.compute_capability:
            said.append(f"compute capability {visible(info.compute_capability)}")
        if info.sm_count is not None:
            said.append(f"{info.sm_count} SMs")
        if info.l2_bytes is not None:
            said.append(f"L2 {data_size(info.l2_bytes)}")
        if info.dram_bytes_per_s is not None:
            said.append(f"DRAM {data_size(info.dram_bytes_per_s)}/s")
        lines.append(", ".join(said))
    return tuple(lines)


def input_lines(inputs: Sequence[InputInfo]) -> tuple[str, ...]:
    """One line an input: path, kind, and the tool that wrote it."""
    lines = []
    for info in inputs:
        tool = " ".join(visible(part) for part in (info.tool, info.tool_version) if part)
        made = " (synthetic)" if info.synthetic else ""
        lines.append(f"{visible(info.path)}: {info.kind}{', ' + tool if tool else ''}{made}")
    return tuple(lines)


def _cost(cost: RunCost) -> list[Fact]:
    facts = []
    if cost.records is not None:
        facts.append(Fact("records", count(cost.records), exact(cost.records, "")))
    if cost.lost is not None:
        facts.append(Fact("records lost", count(cost.lost), exact(cost.lost, "")))
    if cost.hook_ns_per_border is not None:
        ns = cost.hook_ns_per_border
        facts.append(Fact("cost of a stage border", duration(ns), exact(ns, "ns")))
    if cost.overhead_ns is not None:
        ns = cost.overhead_ns
        facts.append(Fact("added to the program", duration(ns), exact(ns, "ns")))
    if cost.profiler is not None:
        facts.append(Fact("profiler", visible(cost.profiler), visible(cost.profiler)))
    return facts


def cost_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """What the recording cost the program, and what this analysis took."""
    facts = [] if analysis.cost is None else _cost(analysis.cost)
    took = sum(analysis.timing.values())
    if took:
        said = ", ".join(f"{step} {duration(ns)}" for step, ns in analysis.timing.items())
        facts.append(Fact("this analysis took", duration(took), said))
    return tuple(facts)
