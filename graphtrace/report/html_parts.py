# SPDX-License-Identifier: Apache-2.0
"""The parts of the page that are plain HTML: all that can be read with scripts off.

Every function returns markup in which all text went through `esc`.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from graphtrace.model.analysis import Analysis
from graphtrace.report.html_figures import Figure, StageStyle
from graphtrace.views.budget import BudgetView
from graphtrace.views.findings import FindingCard, VerdictView
from graphtrace.views.kernels import KernelLine, NcuTable, TimelineTable
from graphtrace.views.names import fit, short_kernel, short_kernels, visible
from graphtrace.views.numbers import ABSENT, Cell, count, duration, exact, plural, share
from graphtrace.views.tables import (
    BatchView,
    CoverageView,
    cost_facts,
    device_lines,
    input_lines,
)

__all__ = [
    "abstentions",
    "batches",
    "budget",
    "coverage",
    "esc",
    "figures",
    "findings",
    "footer",
    "header",
    "ncu_kernels",
    "quarantine",
    "timeline_kernels",
    "warnings",
]

_NAME: Final = 64


def esc(text: str) -> str:
    """Text for HTML content and quoted attributes, with control characters made visible."""
    return escape(visible(text), quote=True)


def section(id_: str, title: str, body: str, *, kind: str = "", aside: str = "") -> str:
    """A section with its heading. `title` is ours, `body` and `aside` are markup."""
    css = f' class="{kind}"' if kind else ""
    heading = f'{aside}<h2 id="{id_}-title">{esc(title)}</h2>'
    return f'<section id="{id_}"{css} aria-labelledby="{id_}-title">{heading}{body}</section>'


def _td(cell: Cell, kind: str = "n") -> str:
    """A cell of a table: short text, exact value on hover and by the switch."""
    if cell.invalid is not None:
        kind += " invalid"
    elif cell.text == ABSENT:
        return f'<td class="{kind} absent" title="{esc(cell.exact)}">{ABSENT}</td>'
    full = esc(cell.exact)
    return f'<td class="{kind}" title="{esc(cell.hover)}" data-x="{full}">{esc(cell.text)}</td>'


def _table(headings: Iterable[tuple[str, str]], rows: Iterable[str], caption: str = "") -> str:
    head = "".join(
        f'<th scope="col"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{esc(text)}</th>'
        for text, kind in headings
    )
    said = f"<caption>{esc(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="table"><table>{said}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def header(analysis: Analysis, verdict: VerdictView) -> str:
    """Verdict, inputs and devices."""
    clean = "clean" if verdict.word == "Clean" else "word"
    lines = "".join(f"<p>{esc(line)}</p>" for line in input_lines(analysis.inputs))
    lines += "".join(f"<p>{esc(line)}</p>" for line in device_lines(analysis.devices))
    gates = "".join(
        f"<p>Gate {esc(gate.name)}: {share(gate.value)}, limit {share(gate.limit)}: "
        f"{ {True: 'passed', False: 'failed', None: 'cannot be decided'}[gate.passed] }</p>"
        for gate in analysis.gates
    )
    return (
        f'<header id="verdict"><h1>Verdict: <span class="{clean}">{esc(verdict.word)}</span></h1>'
        f'<p class="lead">{esc(verdict.sentence)}</p>{gates}{lines}</header>'
    )


def warnings(texts: Sequence[str]) -> str:
    """Sentences that must be read before the numbers."""
    if not texts:
        return ""
    said = "".join(f"<p><b>Warning:</b> {esc(text)}</p>" for text in dict.fromkeys(texts))
    return f'<section class="warning" role="note" aria-label="Warnings">{said}</section>'


def _strip(view: BudgetView, styles: Mapping[str, StageStyle]) -> str:
    """One bar over the whole wall; the table below it says the same in numbers."""
    parts = []
    for bar in view.bars:
        color = styles[bar.label].css if bar.label in styles else "var(--idle)"
        said = f"{bar.label}: {share(bar.share)}"
        style = f"width:{bar.share * 100:.3f}%;background:{color}"
        parts.append(f'<span style="{style}" title="{esc(said)}"></span>')
    return f'<div class="strip" aria-hidden="true">{"".join(parts)}</div>'


def _budget_rows(view: BudgetView, styles: Mapping[str, StageStyle]) -> Iterable[str]:
    longest = max((bar.total_ns for bar in view.bars), default=0) or 1
    for bar in view.bars:
        color = styles[bar.label].css if bar.label in styles else "var(--idle)"
        swatch = f'<span class="swatch" style="background:{color}"></span>'
        pair = "".join(
            f'<i style="width:{ns / longest * 100:.3f}%"></i>' for ns in (bar.busy_ns, bar.idle_ns)
        )
        yield (
            f'<td class="name" title="{esc(bar.label)}">{swatch}{esc(fit(bar.label, _NAME))}</td>'
            f'<td class="wide"><div class="bar" aria-hidden="true">{pair}</div></td>'
            f'<td class="n">{share(bar.share)}</td>'
            + _td(Cell(duration(bar.busy_ns), exact(bar.busy_ns, "ns")))
            + _td(Cell(duration(bar.idle_ns), exact(bar.idle_ns, "ns")))
        )


def _budget_part(view: BudgetView, styles: Mapping[str, StageStyle]) -> str:
    said = f"<p>{esc(view.sentence)}</p>"
    if not view.bars:
        return said
    key = '<p class="note key" aria-hidden="true"><i></i> busy <i class="idle"></i> idle</p>'
    columns = [("stage", ""), ("busy and idle", ""), ("share", "n"), ("busy", "n"), ("idle", "n")]
    kinds = ", ".join(f"{esc(kind)} {duration(ns)}" for kind, ns in view.idle_kinds)
    tail = f'<p class="note">Idle by kind: {kinds}.</p>' if kinds else ""
    tail += f'<p class="note">{esc(view.eager)}</p>' if view.eager else ""
    table = _table(columns, _budget_rows(view, styles))
    return said + _strip(view, styles) + key + table + tail


def budget(view: BudgetView | None, styles: Mapping[str, StageStyle]) -> str:
    """Where the time goes, in plain bars."""
    if view is None:
        why = (
            "None of the inputs holds times of replays, batches or stages, so there is no budget "
            "and no timeline. An Nsight Systems export or a recording given together with these "
            "brings both."
        )
        return section("budget", "Where the time goes", f'<p class="empty">{why}</p>')
    body = _budget_part(view, styles)
    for part in view.devices:
        summary = f"<summary>{esc(part.title)}</summary>"
        body += f"<details>{summary}{_budget_part(part, styles)}</details>"
    return section("budget", "Where the time goes", body)


def _card(card: FindingCard) -> str:
    kernel = ""
    if card.kernel is not None:
        kernel = f'<code title="{esc(card.kernel)}">{esc(short_kernel(card.kernel, _NAME))}</code>'
    where = f"{esc(card.where)}; " if card.where else ""
    rows = [("where", f"{where}confidence {esc(card.confidence)}, by {esc(card.analyzer)}")]
    rows += [("why", esc(card.why)), ("do", esc(card.do))]
    if card.overlap:
        rows.append(("clipped", esc(card.overlap)))
    if card.proofs:
        shown = "".join(
            f'<div title="{esc(proof.exact)}"><code>{esc(proof.name)}</code> {esc(proof.text)}'
            + (f' <span class="absent">({esc(proof.mode)})</span>' if proof.mode else "")
            + "</div>"
            for proof in card.proofs
        )
        rows.append(("figures", shown))
    if card.prove:
        rows.append(("prove", f"<pre>{esc(card.prove)}</pre>"))
    body = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)
    tag = f'<span class="tag {esc(card.severity)}">{esc(card.severity)}</span>'
    return (
        f'<article class="card {esc(card.severity)}"><h3>{tag}{card.number}. {esc(card.title)} '
        f'{kernel} <span class="gain">{esc(card.gain)}</span></h3><dl>{body}</dl></article>'
    )


def findings(cards: Sequence[FindingCard], *, undecided: bool) -> str:
    """Findings as cards, ranked; `undecided` says whether an analyzer abstained."""
    body = "".join(_card(card) for card in cards)
    if not cards:
        why = "No finding above the thresholds. "
        why += "What could not be decided is listed below." if undecided else ""
        body = f'<p class="empty">{why}</p>'
    return section("findings", "Findings, by what would come back", body, kind="long")


def figures(drawn: Sequence[Figure]) -> str:
    """Places for the figures, and the reasons why some are not there."""
    parts = [
        '<noscript><p class="empty">Figures are drawn by a script in this page and scripts are '
        "off. Budget, kernels and findings are in the tables, number for number.</p></noscript>"
    ]
    for figure in drawn:
        if figure.empty:
            body = f'<p class="empty">{esc(figure.empty)}</p>'
        else:
            label = esc(f"{figure.title}. {figure.summary}")
            body = (
                f'<p class="note">{esc(figure.summary)}</p>'
                f'<div class="plot" id="{figure.id}" role="img" tabindex="0" '
                f'aria-label="{label}"></div>'
            )
        parts.append(f'<div class="figure"><h3>{esc(figure.title)}</h3>{body}</div>')
    return section("figures-section", "Figures", "".join(parts), kind="long")


def _kernel_name(line: KernelLine, short: str) -> str:
    said = [text for text in (line.where, line.launch) if text]
    under = f"<small>{esc('; '.join(said))}</small>" if said else ""
    # Long names break after an underscore rather than anywhere.
    broken = esc(short).replace("_", "_<wbr>")
    return f'<td class="name" title="{esc(line.name)}">{broken}{under}</td>'


def _shorts(lines: Sequence[KernelLine]) -> list[str]:
    return short_kernels([line.name for line in lines], _NAME)


def _left_out(left_out: int) -> str:
    if not left_out:
        return ""
    return (
        f'<p class="note">{plural(left_out, "kernel")} more are not in this page; '
        "--format json has all that the analysis kept.</p>"
    )


_SWITCH = '<label class="toggle"><input type="checkbox" id="exact"> show exact values</label>'


def ncu_kernels(table: NcuTable | None, *, switch: bool) -> str:
    """Results of Nsight Compute with exact values on hover."""
    if table is None:
        return ""
    headings = [("#", "n"), ("kernel", ""), ("time", "n")]
    headings += [(column.heading.replace("\n", " "), "n") for column in table.columns]
    headings.append(("top stall, warps per issue", ""))
    rows = [
        f'<td class="n">{line.number}</td>{_kernel_name(line, short)}{_td(line.duration)}'
        + "".join(_td(cell) for cell in line.cells)
        + _td(line.top_stall, "stall")
        for line, short in zip(table.lines, _shorts(table.lines), strict=True)
    ]
    notes = "".join(f'<p class="note">Invalid: {esc(note)}.</p>' for note in table.notes)
    caption = "Each kernel ran alone on the device; a dash is not measured."
    body = _table(headings, rows, caption) + notes + _left_out(table.left_out)
    title = "Kernels as Nsight Compute measured them"
    aside = _SWITCH if switch else ""
    return section("ncu-kernels", title, body, kind="long", aside=aside)


def timeline_kernels(table: TimelineTable | None, *, switch: bool) -> str:
    """Kernels of a timeline by stage."""
    if table is None:
        return ""
    headings = [("#", "n"), ("kernel", ""), ("stage", ""), ("count", "n"), ("time", "n")]
    headings += [("of device work", "n"), ("mean", "n")]
    rows = []
    shorts = _shorts(table.lines)
    for line, short, of_all in zip(table.lines, shorts, table.shares, strict=True):
        name = _kernel_name(line, short)
        stage = ABSENT if line.stage is None else esc(line.stage)
        rows.append(
            f'<td class="n">{line.number}</td>{name}<td class="name">{stage}</td>'
            f'{_td(line.count)}{_td(line.duration)}<td class="n">{share(of_all)}</td>'
            f"{_td(line.mean)}"
        )
    body = _table(headings, rows) + _left_out(table.left_out)
    body += f'<p class="note">{esc(table.other)}</p>' if table.other else ""
    aside = _SWITCH if switch else ""
    return section("kernels", "Kernels on the timeline", body, kind="long", aside=aside)


def batches(view: BatchView | None) -> str:
    """Batches by label and captured tokens."""
    if view is None or not view.groups:
        return ""
    headings = [("label", ""), ("tokens", "n"), ("batches", "n"), ("padding", "n")]
    headings += [("median", "n"), ("slowest", "n"), ("total", "n")]
    rows = [
        f'<td class="name">{esc(group.label)}</td><td class="n">{count(group.captured_tokens)}</td>'
        f'<td class="n">{count(group.batches)}</td><td class="n">{share(group.padding)}</td>'
        f"{_td(group.median)}{_td(group.slowest)}{_td(group.total)}"
        for group in view.groups
    ]
    return section("batches", "Batches", f"<p>{esc(view.sentence)}</p>{_table(headings, rows)}")


def coverage(view: CoverageView | None) -> str:
    """How much of the device work has a stage, and why not the rest."""
    if view is None:
        why = "No input has a timeline of device work, so there is nothing to attribute."
        return section("coverage", "Coverage", f'<p class="empty">{why}</p>')
    headings = [("", ""), ("activities", "n"), ("of all", "n"), ("time", "n"), ("of all", "n")]
    rows = [
        f"<td>{esc(line.label)}</td>{_td(line.activities)}"
        f'<td class="n">{share(line.activity_share)}</td>{_td(line.time)}'
        f'<td class="n">{share(line.time_share)}</td>'
        for line in view.lines
    ]
    why = "".join(f"<li>{number:,} without a stage: {esc(r)}</li>" for r, number in view.reasons)
    body = f"<p>{esc(view.sentence)}</p>" + _table(headings, rows) + (f"<ul>{why}</ul>" * bool(why))
    return section("coverage", "Coverage", body)


def abstentions(analysis: Analysis) -> str:
    """Questions that the data cannot decide, each with what to run."""
    body = "".join(
        f"<h3>{esc(row.analyzer.replace('_', ' '))}</h3><p>{esc(row.reason)}</p>"
        + (f"<pre>{esc(row.rerun)}</pre>" if row.rerun else "")
        for row in analysis.abstentions
    )
    if not body:
        body = '<p class="empty">Every analyzer that ran could decide its question.</p>'
    return section("undecided", "Not decided, and what to run", body)


def quarantine(analysis: Analysis) -> str:
    """Rows refused by the checks of the readers."""
    if not analysis.quarantine:
        return section("refused", "Rows refused", '<p class="empty">No row was refused.</p>')
    rows = [
        f'<td>{esc(row.table)}</td><td class="name">{esc(row.reason)}</td>'
        f'<td class="n">{row.count:,}</td>'
        for row in analysis.quarantine
    ]
    return section(
        "refused", "Rows refused", _table([("table", ""), ("why", ""), ("rows", "n")], rows)
    )


def footer(analysis: Analysis, version: str) -> str:
    """Cost, options and version."""
    facts = "; ".join(
        f'<span title="{esc(fact.exact)}">{esc(fact.name)} {esc(fact.text)}</span>'
        for fact in cost_facts(analysis)
    )
    cost = f"<p>{facts}</p>" if facts else '<p class="empty">Not measured.</p>'
    rows = [
        f'<td>{esc(analyzer)}</td><td>{esc(name)}</td><td class="n">{esc(str(value))}</td>'
        for analyzer, values in analysis.options.items()
        for name, value in values.items()
    ]
    parts = section("cost", "Cost", cost)
    if rows:
        headings = [("analyzer", ""), ("option", ""), ("value", "n")]
        parts += section("options", "Options used", _table(headings, rows))
    made = f"graphtrace {esc(version)}. This page loads nothing: it works offline."
    return f"{parts}<footer>{made}</footer>"
