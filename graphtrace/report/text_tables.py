# SPDX-License-Identifier: Apache-2.0
"""The wide tables of the terminal report, laid out for the columns that there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from graphtrace.model.analysis import Analysis
from graphtrace.views.kernels import (
    KernelLine,
    MetricColumn,
    NcuTable,
    TimelineTable,
    ncu_table,
    timeline_table,
)
from graphtrace.views.names import fit, short_kernels, shown_width
from graphtrace.views.numbers import ABSENT, Cell, count, plural, share
from graphtrace.views.tables import BatchView, batch_view

__all__ = ["TextTable", "batch_table", "kernel_tables"]

_KERNELS: Final = 10
_BATCHES: Final = 8
_STALL_HEADING: Final = "top stall"
_STALL: Final = 24
_ONE_TABLE: Final = 160
"""Columns from which all figures of an ncu row fit beside its name."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with its heading and the lines around it."""

    heading: str
    table: Table
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def _empty_table() -> Table:
    return Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
        border_style="dim",
    )


def _shown(cell: Cell, notes: Sequence[str]) -> Text:
    if cell.invalid is None:
        return Text(cell.text, style="dim" if cell.text == ABSENT else "")
    return Text(f"inv. {_letter(notes, cell.invalid)}", style="red")


def _letter(notes: Sequence[str], reason: str) -> str:
    index = notes.index(reason) if reason in notes else len(notes)
    return ascii_lowercase[index % 26] * (1 + index // 26)


def _notes(table: NcuTable, columns: Sequence[MetricColumn]) -> tuple[str, ...]:
    """The reasons behind invalid cells of these columns, by the letters that mark them."""
    places = [i for i, column in enumerate(table.columns) if column in columns]
    used = {line.cells[i].invalid for line in table.lines for i in places}
    return tuple(
        f"inv. {_letter(table.notes, note)}: invalid, {note}"
        for note in table.notes
        if note in used
    )


def _stall_note(table: NcuTable) -> tuple[str, ...]:
    if not any(line.stalls for line in table.lines):
        return ()
    return ("top stall: the reason most warps wait for, in warps stalled per issue",)


def _rest(left_out: int, what: str, kept: int | None = None) -> tuple[str, ...]:
    """What is not shown. `kept` rows are all that even the JSON has, None where it has all."""
    if not left_out:
        return ()
    where = "has them" if kept is None else f"has the {kept:,} longest"
    return (f"and {plural(left_out, what)} more: --format json {where}.",)


def _heading_width(heading: str) -> int:
    return max(len(part) for part in heading.split("\n"))


def _ncu_columns(
    table: NcuTable, columns: Sequence[MetricColumn], width: int, *, times: bool, stalls: bool
) -> Table:
    places = [table.columns.index(column) for column in columns]
    headings = [column.heading for column in columns]
    rows = [[_shown(line.cells[i], table.notes) for i in places] for line in table.lines]
    if times:
        headings.insert(0, "time")
        for row, line in zip(rows, table.lines, strict=True):
            row.insert(0, Text(line.duration.text))
    widths = [
        max(_heading_width(heading), *(row[i].cell_len for row in rows))
        for i, heading in enumerate(headings)
    ]
    waits = [fit(line.top_stall.text, _STALL) for line in table.lines] if stalls else []
    stall_width = max(2 + shown_width(wait) for wait in (_STALL_HEADING, *waits)) if stalls else 0
    taken = 6 + sum(widths) + 2 * len(widths) + stall_width
    names = max(12, min(56, width - taken))
    made = _empty_table()
    made.add_column("#", justify="right", no_wrap=True)
    made.add_column("kernel", no_wrap=True, max_width=names, vertical="bottom")
    for heading in headings:
        made.add_column(heading, justify="right", no_wrap=True)
    if stalls:
        made.add_column(_STALL_HEADING, no_wrap=True, max_width=_STALL)
    shorts = short_kernels([line.name for line in table.lines], names)
    for row, line, short in zip(rows, table.lines, shorts, strict=True):
        made.add_row(
            Text(str(line.number), style="dim"),
            Text(short),
            *row,
            *([Text(fit(line.top_stall.text, _STALL))] if stalls else []),
        )
    return made


def _ncu(table: NcuTable, width: int) -> list[TextTable]:
    rest = _rest(table.left_out, "kernel")
    said = "each alone on the device"
    if width >= _ONE_TABLE:
        made = _ncu_columns(table, table.columns, width, times=True, stalls=True)
        after = (*_notes(table, table.columns), *_stall_note(table), *rest)
        return [TextTable(f"Kernels as Nsight Compute measured them, {said}", made, after=after)]
    occupancy = [column for column in table.columns if column.group == "occupancy"]
    memory = [column for column in table.columns if column.group == "memory"]
    return [
        TextTable(
            f"Kernels as Nsight Compute measured them, {said}: occupancy",
            _ncu_columns(table, occupancy, width, times=True, stalls=True),
            after=(*_notes(table, occupancy), *_stall_note(table)),
        ),
        TextTable(
            "The same kernels: memory",
            _ncu_columns(table, memory, width, times=False, stalls=False),
            after=(*_notes(table, memory), *rest),
        ),
    ]


def _timeline_row(line: KernelLine, short: str, of_all: float | None, stages: int) -> list[Text]:
    return [
        Text(str(line.number), style="dim"),
        Text(short),
        Text(ABSENT if line.stage is None else fit(line.stage, stages)),
        Text(line.count.text),
        Text(line.duration.text),
        Text(share(of_all)),
        Text(line.mean.text),
    ]


def _timeline(table: TimelineTable, width: int) -> TextTable:
    made = _empty_table()
    room = max(32, width - 49)
    full = [line.name for line in table.lines]
    wanted = max(shown_width(short) for short in short_kernels(full, room))
    # Stages get what they need where that is little: most files have none, or short ones.
    needed = max(shown_width(line.stage or "stage") for line in table.lines)
    names = max(min(wanted, max(room * 3 // 5, room - max(needed, 5))), 16)
    stages = room - names
    made.add_column("#", justify="right", no_wrap=True)
    made.add_column("kernel", no_wrap=True, max_width=names)
    made.add_column("stage", no_wrap=True, max_width=stages)
    for heading in ("count", "time", "of work", "mean"):
        made.add_column(heading, justify="right", no_wrap=True)
    shorts = short_kernels(full, names)
    for line, short, of_all in zip(table.lines, shorts, table.shares, strict=True):
        made.add_row(*_timeline_row(line, short, of_all, stages))
    other = (table.other,) if table.other else ()
    after = (*_rest(table.left_out, "kernel", table.kept), *other)
    return TextTable("Kernels on the timeline", made, after=after)


def kernel_tables(analysis: Analysis, width: int) -> list[TextTable]:
    """Tables of the kernels: those of the timeline first, then ncu's in one or two tables."""
    truncated = analysis.truncated.get("kernels", 0)
    work = None if analysis.coverage is None else analysis.coverage.time_ns.total
    timeline = timeline_table(analysis.kernels, limit=_KERNELS, truncated=truncated, work_ns=work)
    made = [] if timeline is None else [_timeline(timeline, width)]
    ncu = ncu_table(
        analysis.kernels, limit=_KERNELS, truncated=0 if timeline is not None else truncated
    )
    return made if ncu is None else made + _ncu(ncu, width)


def _batch_rows(view: BatchView, table: Table, labels: int) -> None:
    for group in view.groups:
        table.add_row(
            Text(fit(group.label, labels)),
            Text(count(group.captured_tokens)),
            Text(count(group.batches)),
            Text(share(group.padding)),
            Text(group.median.text),
            Text(group.slowest.text),
            Text(group.total.text),
        )


def batch_table(analysis: Analysis, width: int) -> TextTable | None:
    """Batches by label and captured tokens; None where there are none."""
    view = batch_view(analysis.batches, limit=_BATCHES)
    if view is None or not view.groups:
        return None
    labels = max(16, min(48, width - 62))
    table = _empty_table()
    table.add_column("label", no_wrap=True, max_width=labels)
    for heading in ("tokens", "batches", "padding", "median", "slowest", "total"):
        table.add_column(heading, justify="right", no_wrap=True)
    _batch_rows(view, table, labels)
    return TextTable("Batches", table, (view.sentence,), _rest(view.left_out, "kind of batch"))
