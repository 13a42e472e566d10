# SPDX-License-Identifier: Apache-2.0
"""What an input holds and lacks, for a terminal.

Names from files are made visible before they are drawn and are never read as markup; commands
stand on lines of their own that are not wrapped, so that they can be copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphtrace.model.description import Description, Domain, Gap, GraphCounts, NcuMode, ProcessInfo
from graphtrace.report.drawing import command, console_of, heading, text_of
from graphtrace.report.text import SYNTHETIC_LABEL
from graphtrace.views.names import fit, visible
from graphtrace.views.numbers import data_size, duration, plural
from graphtrace.views.tables import device_lines

__all__ = ["render"]

_NARROWEST: Final = 60
_WIDEST: Final = 100
_LABEL: Final = 10
_FEW: Final = 12
_NAME: Final = 48
_KINDS: Final = {
    "kernel": ("kernel", "kernels"),
    "collective": ("collective", "collectives"),
    "opaque_replay": ("opaque replay", "opaque replays"),
    "memcpy": ("copy", "copies"),
    "memset": ("memset", "memsets"),
}
"""Words for kinds of activities, in the order in which they are said."""
_SHELL: Final = ("nsys ", "ncu ", "graphtrace ")


def _some(said: Sequence[str], limit: int = _FEW) -> str:
    """The first of a list, and how many more there are."""
    left = len(said) - limit
    more = [f"and {left:,} more (--format json)"] if left > 0 else []
    return ", ".join([*said[:limit], *more])


def _name(text: str) -> str:
    return fit(visible(text), _NAME)


def _work(activities: Mapping[str, int]) -> list[str]:
    """Kernels first, whatever there is most of."""
    known = [kind for kind in _KINDS if kind in activities]
    others = [kind for kind in activities if kind not in _KINDS]
    return [
        plural(activities[kind], *_KINDS.get(kind, (_name(kind),))) for kind in (*known, *others)
    ]


def _graphs(graphs: GraphCounts) -> str:
    known = [
        plural(number, noun)
        for number, noun in ((graphs.graphs, "graph"), (graphs.instantiated, "instantiated graph"))
        if number is not None
    ]
    said = [*known, plural(graphs.replays, "replay")]
    if graphs.opaque:
        said.append(f"{graphs.opaque:,} of them as a whole, without kernels")
    if graphs.kernels is not None:
        least, most = graphs.kernels
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        rest = " each of the others" if graphs.opaque else " each" if graphs.replays > 1 else ""
        said.append(f"{each} {'kernel' if most == 1 else 'kernels'}{rest}")
    return ", ".join(said)


def _domain(domain: Domain) -> str:
    name = _name(domain.name) if domain.name else "default domain"
    counts = [
        plural(number, noun)
        for number, noun in ((domain.ranges, "range"), (domain.marks, "mark"))
        if number
    ]
    return f"{name} {' and '.join(counts)}"


def _mode(mode: NcuMode, total: int) -> str:
    said = [
        "cache control unknown" if mode.cache == "unknown" else f"caches {mode.cache}",
        "clock control unknown" if mode.clock == "unknown" else f"clocks {visible(mode.clock)}",
    ]
    if mode.replay_mode != "unknown":
        said.append(f"{visible(mode.replay_mode)} replay")
    if mode.passes is not None:
        least, most = mode.passes
        said.append(
            plural(most, "pass", "passes") if least == most else f"{least} to {most} passes"
        )
    which = "" if mode.results == total else f"{mode.results:,} with "
    return which + ", ".join(said)


def _process(process: ProcessInfo) -> str:
    said = "unknown process" if process.pid is None else f"pid {process.pid}"
    return said if process.rank is None else f"{said} (rank {process.rank})"


def _written(told: Description) -> str:
    info, origin = told.info, told.origin
    tool = " ".join(visible(part) for part in (info.tool, info.tool_version) if part)
    said = [info.kind, *([tool] if tool else [])]
    if told.size is not None:
        said.append(data_size(told.size))
    if origin is not None:
        said.append(f"exported from {_name(origin.name)} ({_name(origin.kind)})")
    return ", ".join(said)


def _rows(told: Description) -> Iterator[tuple[str, str]]:
    """Facts with their labels, in the order of the report; what is not there has no line."""
    yield "file", _written(told)
    devices = device_lines(told.devices)
    for place, device in enumerate(devices[:_FEW]):
        yield ("" if place else "devices"), device
    if len(devices) > _FEW:
        yield "", f"and {len(devices) - _FEW:,} more (--format json)"
    if told.processes:
        yield "processes", _some([_process(process) for process in told.processes])
    if told.span is not None:
        begin, end = told.span.begin_ns, told.span.end_ns
        yield "time span", f"{duration(end - begin)}, from {begin:,} to {end:,} ns"
    if told.activities:
        yield "work", _some(_work(told.activities))
    if told.graphs is not None and (told.graphs.replays or told.graphs.graphs):
        yield "graphs", _graphs(told.graphs)
    if told.nvtx:
        yield "ranges", _some([_domain(domain) for domain in told.nvtx])
    if told.ncu is not None and told.ncu.results:
        results = plural(told.ncu.results, "result")
        yield "ncu", f"{results}, {plural(told.ncu.metrics, 'different metric')}"
        for mode in told.ncu.modes:
            yield "", _mode(mode, told.ncu.results)
    if told.stages:
        number = len(told.stages)
        yield "stages", f"{number:,}: {_some([_name(stage.stage) for stage in told.stages])}"
    counts = [(name, rows) for name, rows in told.tables.items() if name != "quarantine"]
    rows = [f"{name} {count:,}" for name, count in counts if count is not None]
    if rows:
        yield "rows", _some(rows, len(rows))


def _facts(console: Console, told: Description) -> None:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style="dim", no_wrap=True, width=_LABEL)
    grid.add_column(overflow="fold")
    for label, text in _rows(told):
        grid.add_row(Text(label), Text(text))
    console.print(Padding(grid, (0, 0, 0, 2)))


def _quarantine(console: Console, told: Description) -> None:
    if not told.quarantine:
        return
    heading(console, "Rows refused")
    for row in told.quarantine:
        text = Text(f"{row.count:,} in {visible(row.table)}: {visible(row.reason)}")
        console.print(Padding(text, (0, 0, 0, 2)))


def _warnings(console: Console, told: Description) -> None:
    for number, warning in enumerate(told.warnings):
        if not number:
            console.print()
        text = Text("Warning: ", style="bold yellow")
        text.append(visible(warning), style="not bold default")
        console.print(text)


def _missing(console: Console, gaps: Sequence[Gap]) -> None:
    if not gaps:
        return
    heading(console, "Not in this file, and how to collect it")
    # What one command collects stands together, in the order of the first of each.
    order = list(dict.fromkeys(gap.command for gap in gaps))
    ordered = sorted(gaps, key=lambda gap: order.index(gap.command))
    for words, group in groupby(ordered, key=lambda gap: gap.command):
        for gap in group:
            text = Text(f"{visible(gap.what)}: ", style="bold")
            text.append(visible(gap.why), style="not bold")
            console.print(Padding(text, (0, 0, 0, 2)))
        if words is None:
            continue
        if words.startswith(_SHELL):
            command(console, visible(words))
        else:
            console.print(Text(f"    {visible(words)}", style="cyan"), soft_wrap=True)


def _command_lines(console: Console, lines: Sequence[str] | None) -> None:
    """What the report was made with, where that was asked for."""
    if lines is None:
        return
    console.print(Text("  profiled with" if lines else "  The report keeps no command line."))
    for line in lines:
        command(console, visible(line))


def render(told: Description, *, width: int = 100, color: bool = False) -> str:
    """One description as text, ending in a line end.

    Args:
        told: what to show.
        width: columns of the terminal; between 60 and 100 are used. Commands may run over.
        color: whether to use the eight standard colours; without it no escape is written.
    """
    console, out = console_of(min(max(width, _NARROWEST), _WIDEST), color=color)
    console.print(Text(visible(told.info.path), style="bold"))
    if told.info.synthetic:
        console.print(Text(f" {SYNTHETIC_LABEL} ", style="bold reverse yellow"))
    _facts(console, told)
    _command_lines(console, told.command_lines)
    _quarantine(console, told)
    _warnings(console, told)
    _missing(console, told.missing)
    return text_of(out)
