# SPDX-License-Identifier: Apache-2.0
"""The verdict in a sentence, and findings as cards: where, how much, why, what to do, the proof."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphtrace.model.analysis import Analysis, DeviceInfo, Evidence, Finding, Mode
from graphtrace.views.budget import device_name
from graphtrace.views.names import visible
from graphtrace.views.numbers import duration, exact, plural, quantity, share

__all__ = ["FindingCard", "Proof", "VerdictView", "finding_cards", "mode_text", "verdict_view"]

_COUNTED: Final = frozenset({"block", "cycle", "request", "sector", "thread", "warp"})


@dataclass(frozen=True, slots=True)
class VerdictView:
    """`word` is one of Findings, Clean, Cannot tell; `sentence` says it in full."""

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Proof:
    """One number behind a finding: short, exact, and how it was measured."""

    name: str
    text: str
    exact: str
    mode: str


@dataclass(frozen=True, slots=True)
class FindingCard:
    """A finding ready to draw; every text is safe to show.

    Attributes:
        gain: what would come back, in words.
        overlap: how much of the claim was left to other findings; empty where none was.
        share: ratio 0 to 1 that a bar may draw, None where it is unknown.
    """

    number: int
    id: str
    title: str
    analyzer: str
    severity: str
    confidence: str
    where: str
    kernel: str | None
    gain: str
    overlap: str
    share: float | None
    proofs: tuple[Proof, ...]
    why: str
    do: str
    prove: str


def mode_text(mode: Mode | None) -> str:
    """How a value was measured: `cache flushed, clock base, 8 passes`; empty where unknown."""
    if mode is None:
        return ""
    said = []
    if mode.cache != "unknown":
        said.append(f"cache {mode.cache}")
    if mode.clock != "unknown":
        said.append("clock not locked" if mode.clock == "none" else f"clock {mode.clock}")
    if mode.passes is not None:
        said.append(plural(mode.passes, "pass", "passes"))
    return ", ".join(said)


def _counted(evidence: Evidence) -> str:
    """The unit as it is said of so many: base units of ncu-report are singular in most releases."""
    unit = evidence.unit
    return f"{unit}s" if unit in _COUNTED and evidence.value != 1 else unit


def _proof(evidence: Evidence) -> Proof:
    value = evidence.value
    text = visible(value) if isinstance(value, str) else quantity(value, _counted(evidence))
    full = visible(exact(value, evidence.unit))
    return Proof(visible(evidence.name), text, full, mode_text(evidence.mode))


def _gain(finding: Finding) -> str:
    if finding.recoverable_ns is not None:
        said = f"{duration(finding.recoverable_ns)} recoverable"
        if finding.share is not None:
            said += f", {share(finding.share)} of {finding.share_of}"
        return said
    if finding.share is not None:
        return f"{share(finding.share)} of the {finding.share_of}'s own time"
    return "gain unknown"


def _overlap(finding: Finding) -> str:
    claimed, kept = finding.claimed_ns, finding.recoverable_ns
    if claimed is None or kept is None or claimed <= kept:
        return ""
    return f"{duration(claimed)} claimed, of which other findings hold {duration(claimed - kept)}"


def _results(results: Sequence[str]) -> str:
    shown = ", ".join(visible(result) for result in results[:3])
    return shown if len(results) <= 3 else f"{shown} and {len(results) - 3} more"


def _device(device: int, devices: Sequence[DeviceInfo]) -> str:
    """As the header of the report calls it; where there is but one, without its name."""
    if len(devices) == 1:
        devices = [replace(devices[0], name=None)]
    return device_name(device, devices)


def _where(finding: Finding, devices: Sequence[DeviceInfo]) -> str:
    said = [] if finding.stage is None else [f"stage {visible(finding.stage)}"]
    if finding.results:
        said.append(_results(finding.results))
    if finding.device is not None:
        said.append(_device(finding.device, devices))
    if finding.replays is not None:
        said.append(plural(finding.replays, "replay"))
    return ", ".join(said)


def finding_cards(
    findings: Sequence[Finding], devices: Sequence[DeviceInfo] = ()
) -> tuple[FindingCard, ...]:
    """Cards in the order of the findings, which is their rank; `devices` to name where."""
    return tuple(
        FindingCard(
            number=number,
            id=finding.id,
            title=finding.kind.replace("_", " "),
            analyzer=finding.analyzer,
            severity=finding.severity,
            confidence=finding.confidence,
            where=_where(finding, devices),
            kernel=None if finding.kernel is None else visible(finding.kernel),
            gain=_gain(finding),
            overlap=_overlap(finding),
            share=finding.share,
            proofs=tuple(_proof(evidence) for evidence in finding.evidence),
            why=visible(finding.why),
            do=visible(finding.do),
            prove=visible(finding.prove),
        )
        for number, finding in enumerate(findings, 1)
    )


def _asked(analysis: Analysis) -> str:
    runs = sum(bool(row.rerun) for row in analysis.abstentions)
    left = len(analysis.abstentions) - runs
    said = ""
    if runs:
        said += f" {plural(runs, 'question')} {'needs' if runs == 1 else 'need'} another run."
    if left:
        said += f" {plural(left, 'question')} {'stays' if left == 1 else 'stay'} open."
    return said


def verdict_view(analysis: Analysis) -> VerdictView:
    """The verdict with the figure that matters most."""
    if analysis.verdict == "clean":
        looked = plural(len(analysis.kernels), "kernel row")
        return VerdictView("Clean", f"Nothing above the thresholds in {looked}.{_asked(analysis)}")
    if analysis.verdict == "cannot_tell":
        return VerdictView("Cannot tell", f"The data given does not decide it.{_asked(analysis)}")
    cards = finding_cards(analysis.findings[:1])
    high = sum(finding.severity == "high" for finding in analysis.findings)
    said = plural(len(analysis.findings), "finding")
    if high:
        said += " of high severity" if high == len(analysis.findings) else f", {high} of them high"
    said += "."
    total = [f.recoverable_ns for f in analysis.findings if f.recoverable_ns is not None]
    if total:
        said += f" {duration(sum(total))} would come back in all."
    if cards:
        card = cards[0]
        said += f" First: {card.title}, {card.gain}."
    return VerdictView("Findings", said + _asked(analysis))
