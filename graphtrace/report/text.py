# SPDX-License-Identifier: Apache-2.0
"""The terminal report: the verdict first, then where the time goes, then what to do about it.

Names from files are made visible before they are drawn and are never read as markup; commands
stand on lines of their own that are not wrapped, so that they can be copied.
"""

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import graphtrace
from graphtrace.model.analysis import Analysis
from graphtrace.report.drawing import command as _command
from graphtrace.report.drawing import console_of as _console
from graphtrace.report.drawing import heading as _heading
from graphtrace.report.drawing import line as _line
from graphtrace.report.drawing import text_of as _text_of
from graphtrace.report.text_tables import batch_table, kernel_tables
from graphtrace.views.budget import BudgetView, StageBar, budget_view
from graphtrace.views.findings import FindingCard, finding_cards, verdict_view
from graphtrace.views.names import fit, short_kernel, visible
from graphtrace.views.numbers import duration, plural, share
from graphtrace.views.tables import cost_facts, coverage_view, device_lines, input_lines

__all__ = ["SYNTHETIC_LABEL", "render"]

SYNTHETIC_LABEL: Final = "Synthetic: built by graphtrace.testing, not a measurement"

_NARROWEST: Final = 60
_WIDEST: Final = 160
_STAGES: Final = 10
_FULL_FINDINGS: Final = 5
_FIGURES: Final = 5
_SHORT_FINDINGS: Final = 10
_SEVERITY_STYLE: Final = {"high": "bold red", "medium": "bold yellow", "low": "cyan", "info": "dim"}
_VERDICT_STYLE: Final = {"Findings": "bold yellow", "Clean": "bold green", "Cannot tell": "bold"}


def _banner(console: Console, analysis: Analysis) -> None:
    if analysis.synthetic:
        text = f" {SYNTHETIC_LABEL} "
        console.print(Text(text, style="bold reverse yellow"))


def _header(console: Console, analysis: Analysis) -> None:
    console.print(Text(f"graphtrace {graphtrace.__version__}", style="bold"))
    for line in input_lines(analysis.inputs):
        _line(console, line, "dim")
    for line in device_lines(analysis.devices):
        _line(console, line, "dim")


def _verdict(console: Console, analysis: Analysis) -> None:
    verdict = verdict_view(analysis)
    console.print()
    text = Text("Verdict: ", style="bold")
    text.append(verdict.word, style=_VERDICT_STYLE[verdict.word])
    text.append(". ", style="not bold")
    text.append(verdict.sentence, style="not bold")
    console.print(text)
    for gate in analysis.gates:
        state = {True: "passed", False: "FAILED", None: "cannot be decided"}[gate.passed]
        value = "-" if gate.value is None else share(gate.value)
        _line(console, f"gate {visible(gate.name)}: {value}, limit {share(gate.limit)}: {state}")


def _warnings(console: Console, analysis: Analysis) -> None:
    for warning in dict.fromkeys(analysis.warnings):
        text = Text("Warning: ", style="bold yellow")
        text.append(visible(warning), style="not bold default")
        console.print(text)


def _bar(bar: StageBar, longest: int, cells: int) -> Text:
    # A part that is there gets at least one cell: what is small is not absent.
    def length(ns: int) -> int:
        return max(1, round(cells * ns / longest)) if ns and longest else 0

    idle = length(bar.idle_ns)
    busy = min(length(bar.busy_ns), cells - idle)
    text = Text("█" * busy, style="blue")
    text.append("░" * idle, style="dim")
    return text


def _budget_table(view: BudgetView, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    names = max(20, width // 3)
    cells = max(8, width - names - 40)
    table.add_column("stage", no_wrap=True, max_width=names)
    table.add_column("█ busy ░ idle", no_wrap=True, width=max(cells, 13))
    for heading in ("share", "busy", "idle"):
        table.add_column(heading, justify="right", no_wrap=True)
    longest = max((bar.total_ns for bar in view.bars), default=0)
    for bar in view.bars:
        table.add_row(
            Text(fit(bar.label, names), style="" if bar.role == "stage" else "dim"),
            _bar(bar, longest, max(cells, 13)),
            share(bar.share),
            duration(bar.busy_ns),
            duration(bar.idle_ns),
        )
    return table


def _budget_part(console: Console, view: BudgetView) -> None:
    label = f"{view.title}: " if view.title else ""
    _line(console, label + view.sentence)
    if view.bars:
        console.print(Padding(_budget_table(view, console.width), (0, 0, 0, 2)))
    if view.idle_kinds:
        kinds = ", ".join(f"{kind} {duration(ns)}" for kind, ns in view.idle_kinds)
        _line(console, f"idle by kind: {kinds}")
    if view.eager:
        _line(console, view.eager)


def _budget(console: Console, analysis: Analysis) -> None:
    view = budget_view(analysis.budget, analysis.devices, top=_STAGES)
    if view is None:
        return
    _heading(console, "Where the time goes")
    _budget_part(console, view)
    for part in view.devices:
        _line(console, f"{part.title}: {part.sentence}")


def _finding_title(card: FindingCard, width: int) -> Text:
    title = Text(f" {card.number:>2} ")
    title.append(f"{card.severity.upper():<6} ", style=_SEVERITY_STYLE[card.severity])
    title.append(card.title, style="bold")
    if card.kernel is not None:
        room = max(16, width - 16 - len(card.title) - len(card.gain))
        title.append(f"  {short_kernel(card.kernel, room)}")
    title.append(f"  {card.gain}", style="green")
    return title


def _finding(console: Console, card: FindingCard) -> None:
    console.print(_finding_title(card, console.width))
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style="dim", no_wrap=True, width=8)
    grid.add_column(overflow="fold")
    # Visible names hold no markup, and Text never reads any.
    where = f"{card.where}; " if card.where else ""
    rows = [("where", f"{where}confidence {card.confidence}, by {card.analyzer}")]
    rows += [("why", card.why), ("do", card.do)]
    if card.overlap:
        rows.append(("clipped", card.overlap))
    if card.proofs:
        rows.append(("figures", _figures(card)))
    for label, text in rows:
        grid.add_row(Text(label), Text(text))
    console.print(Padding(grid, (0, 0, 0, 4)))
    if card.prove:
        _command(console, card.prove, lead="    prove    ")


def _figures(card: FindingCard) -> str:
    modes = {proof.mode for proof in card.proofs if proof.mode}
    said = []
    for proof in card.proofs[:_FIGURES]:
        own = f" ({proof.mode})" if proof.mode and len(modes) > 1 else ""
        said.append(f"{proof.name} {proof.text}{own}")
    text = "; ".join(said)
    left = len(card.proofs) - len(said)
    text += f"; {left} more in --format json" if left > 0 else ""
    return f"{text}. Measured with {modes.pop()}." if len(modes) == 1 else text


def _findings(console: Console, analysis: Analysis) -> None:
    cards = finding_cards(analysis.findings, analysis.devices)
    if not cards:
        return
    _heading(console, "Findings, by what would come back")
    for card in cards[:_FULL_FINDINGS]:
        _finding(console, card)
    for card in cards[_FULL_FINDINGS : _FULL_FINDINGS + _SHORT_FINDINGS]:
        console.print(_finding_title(card, console.width))
    left = len(cards) - _FULL_FINDINGS - _SHORT_FINDINGS
    if left > 0:
        _line(console, f"and {plural(left, 'more finding')}: --format json has them all.", "dim")


def _abstentions(console: Console, analysis: Analysis) -> None:
    if not analysis.abstentions:
        return
    _heading(console, "Not decided, and what to run")
    for row in analysis.abstentions:
        _line(console, f"{visible(row.analyzer)}: {visible(row.reason)}")
        if row.rerun:
            _command(console, visible(row.rerun))


def _coverage(console: Console, analysis: Analysis) -> None:
    view = coverage_view(analysis.coverage)
    if view is None:
        return
    _heading(console, "Coverage")
    _line(console, view.sentence)
    if not analysis.coverage or not analysis.coverage.activities.total:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in ("activities", "of all", "time", "of all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in view.lines:
        table.add_row(
            line.label,
            line.activities.text,
            share(line.activity_share),
            line.time.text,
            share(line.time_share),
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    for reason, number in view.reasons:
        _line(console, f"{number:,} without a stage: {reason}", "dim")


def _kernels(console: Console, analysis: Analysis) -> None:
    for table in kernel_tables(analysis, console.width):
        _heading(console, table.heading)
        for note in table.before:
            _line(console, note, "dim")
        console.print(Padding(table.table, (0, 0, 0, 2)))
        for note in table.after:
            _line(console, note, "dim")


def _batches(console: Console, analysis: Analysis) -> None:
    made = batch_table(analysis, console.width)
    if made is None:
        return
    _heading(console, made.heading)
    for note in made.before:
        _line(console, note)
    console.print(Padding(made.table, (0, 0, 0, 2)))
    for note in made.after:
        _line(console, note, "dim")


def _quarantine(console: Console, analysis: Analysis) -> None:
    if not analysis.quarantine:
        return
    _heading(console, "Rows refused")
    for row in analysis.quarantine:
        _line(console, f"{row.count:,} in {visible(row.table)}: {visible(row.reason)}")


def _cost(console: Console, analysis: Analysis) -> None:
    facts = cost_facts(analysis)
    if not facts:
        return
    _heading(console, "Cost")
    _line(console, "; ".join(f"{fact.name} {fact.text}" for fact in facts))


_SECTIONS: Final[tuple[Callable[[Console, Analysis], None], ...]] = (
    _banner,
    _header,
    _verdict,
    _warnings,
    _budget,
    _findings,
    _kernels,
    _batches,
    _coverage,
    _abstentions,
    _quarantine,
    _cost,
)


def render(analysis: Analysis, *, width: int = 100, color: bool = False) -> str:
    """The report as text, ending in a line end.

    Args:
        analysis: what to show.
        width: columns of the terminal; between 60 and 160 are used. Commands may run over.
        color: whether to use the eight standard colours; without it no escape is written.
    """
    console, out = _console(min(max(width, _NARROWEST), _WIDEST), color=color)
    for section in _SECTIONS:
        section(console, analysis)
    return _text_of(out)
