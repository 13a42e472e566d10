# SPDX-License-Identifier: Apache-2.0
"""The figures of the page, as the plain JSON that plotly.js draws.

Plotly reads a small HTML of its own in labels, names and hover texts, so every text that comes
from a file passes `plotly_text`. Colours are those of Okabe and Ito, told apart by the
colour-blind; the next six stages wear them hatched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphtrace.model.analysis import Analysis
from graphtrace.views.budget import UNATTRIBUTED, BudgetView
from graphtrace.views.kernels import KernelLine, NcuTable
from graphtrace.views.names import fit, short_kernel, visible
from graphtrace.views.numbers import Cell, exact, share, time_scale
from graphtrace.views.timeline import Bar, TimelineView

__all__ = [
    "PALETTE",
    "Figure",
    "StageStyle",
    "kernel_figures",
    "plotly_text",
    "stage_styles",
    "time_figures",
]

PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_BUSY: Final = "#0072B2"
_GREY: Final = "#8B949E"
_KERNELS: Final = 20
_REASONS: Final = 6
_LABEL: Final = 34
_HOVER: Final = 100
_OTHER: Final = "other stages"


@dataclass(frozen=True, slots=True)
class StageStyle:
    """How a stage is painted, in the figures and in the plain bars alike."""

    color: str
    hatched: bool

    @property
    def css(self) -> str:
        """The CSS background."""
        if not self.hatched:
            return self.color
        return f"repeating-linear-gradient(-45deg,{self.color} 0 3px,transparent 3px 6px)"

    @property
    def marker(self) -> dict[str, Any]:
        """The marker of a bar trace."""
        marker: dict[str, Any] = {"color": self.color, "line": {"width": 0}}
        if self.hatched:
            marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.5}
        return marker


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, or the sentence that says why there is none.

    Attributes:
        id: id of the element it is drawn into.
        summary: what it shows, for those who cannot see it.
        data, layout: what plotly.js is given; empty where there is nothing to draw.
        empty: why there is nothing to draw.
    """

    id: str
    title: str
    summary: str
    data: tuple[Mapping[str, Any], ...] = ()
    layout: Mapping[str, Any] | None = None
    empty: str = ""


def plotly_text(text: str) -> str:
    """Text as plotly shows it literally: no tag, no entity and no control character is left."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _layout(rows: int, x_title: str, labels: Sequence[str], **more: Any) -> dict[str, Any]:
    """A layout with one row a label, from top to bottom; positions are numbers, never names."""
    return {
        "height": 136 + 26 * max(rows, 2),
        "margin": {"l": 10, "r": 20, "t": 60, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, DejaVu Sans, sans-serif", "size": 13},
        "xaxis": {"title": {"text": x_title}, "rangemode": "tozero", "automargin": True},
        "yaxis": {
            "tickmode": "array",
            "tickvals": list(range(len(labels))),
            "ticktext": [plotly_text(fit(label, _LABEL)) for label in labels],
            "range": [len(labels) - 0.5, -0.5],
            "automargin": True,
            "ticks": "outside",
            "ticklen": 6,
            "tickcolor": "rgba(0,0,0,0)",
            "zeroline": False,
            "showgrid": False,
        },
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": "pan",
        **more,
    }


def _bars(
    name: str, places: Sequence[float], values: Sequence[float | None], texts: Sequence[str]
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": plotly_text(fit(name, _LABEL)),
        "y": list(places),
        "x": list(values),
        "customdata": list(texts),
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _lines(*parts: str) -> str:
    """A hover text: parts are made safe one by one, then put on lines of their own."""
    return "<br>".join(plotly_text(part) for part in parts if part)


def stage_styles(budget: BudgetView | None, timeline: TimelineView | None) -> dict[str, StageStyle]:
    """Styles by stage: the longest of the budget first, then those of the timeline."""
    named = [bar.label for bar in budget.bars if bar.role == "stage"] if budget else []
    seen = [*named, *(timeline.stages if timeline else ())]
    stages = [stage for stage in dict.fromkeys(seen) if stage != UNATTRIBUTED]
    styles = [StageStyle(color, hatched) for hatched in (False, True) for color in PALETTE]
    return dict(zip(stages, styles, strict=False))


def _budget_figure(view: BudgetView | None) -> Figure:
    title = "Budget per stage"
    if view is None or not view.bars:
        why = "No budget: the inputs hold no replay, batch or top-level range with times."
        return Figure("plot-budget", title, "", empty=why)
    unit, factor = time_scale(max(bar.total_ns for bar in view.bars))
    places = range(len(view.bars))
    data = []
    for name, color in (("busy", _BUSY), ("idle", _GREY)):
        values = [bar.busy_ns if name == "busy" else bar.idle_ns for bar in view.bars]
        texts = [
            _lines(bar.label, f"{name} {exact(value, 'ns')}", f"stage {share(bar.share)} of wall")
            for bar, value in zip(view.bars, values, strict=True)
        ]
        trace = _bars(name, list(places), [value / factor for value in values], texts)
        trace["marker"] = {"color": color}
        if name == "idle":
            trace["marker"] = {"color": color, "pattern": {"shape": "/", "size": 6}}
        data.append(trace)
    layout = _layout(len(view.bars), unit, [bar.label for bar in view.bars], barmode="stack")
    return Figure("plot-budget", title, view.sentence, tuple(data), layout)


def _timeline_trace(
    name: str, bars: Sequence[Bar], factor: float, marker: dict[str, Any]
) -> dict[str, Any]:
    texts = [
        _lines(
            fit(bar.name, _HOVER),
            f"stage {fit(bar.stage, _HOVER)}",
            f"busy {exact(bar.busy_ns, 'ns')}",
            f"{exact(bar.begin_ns, '')} to {exact(bar.end_ns, 'ns')}",
        )
        for bar in bars
    ]
    lengths = [(bar.end_ns - bar.begin_ns) / factor for bar in bars]
    trace = _bars(name, [bar.lane for bar in bars], lengths, texts)
    return {
        **trace,
        "base": [bar.begin_ns / factor for bar in bars],
        "width": 0.8,
        "marker": marker,
    }


def _timeline_figure(view: TimelineView | None, styles: Mapping[str, StageStyle]) -> Figure:
    title = "Timeline of the slowest unit"
    if view is None:
        why = "No timeline: none of the inputs holds a replay, a batch or a stage with times."
        return Figure("plot-timeline", title, "", empty=why)
    unit, factor = time_scale(view.wall_ns)
    groups: dict[str, list[Bar]] = {stage: [] for stage in (*styles, _OTHER, UNATTRIBUTED)}
    for bar in view.bars:
        known = bar.stage in styles or bar.stage == UNATTRIBUTED
        groups[bar.stage if known else _OTHER].append(bar)
    data = []
    for name, bars in groups.items():
        if name in styles:
            marker = styles[name].marker
        else:
            shape = "x" if name == UNATTRIBUTED else "\\"
            marker = {"color": _GREY, "pattern": {"shape": shape, "size": 6}}
        if bars:
            data.append(_timeline_trace(name, bars, factor, marker))
    layout = _layout(len(view.lanes), unit, view.lanes, barmode="overlay")
    layout["height"] = 156 + 40 * len(view.lanes)
    layout["xaxis"]["range"] = [0, view.wall_ns / factor]
    summary = f"{view.title}. {view.note}".strip()
    return Figure("plot-timeline", title, summary, tuple(data), layout)


def time_figures(budget: BudgetView | None, timeline: TimelineView | None) -> tuple[Figure, ...]:
    """Budget and timeline, each drawn or saying why not; none where the inputs hold no time."""
    if budget is None and timeline is None:
        # The section before the figures says why.
        return ()
    styles = stage_styles(budget, timeline)
    return _budget_figure(budget), _timeline_figure(timeline, styles)


def _cells(table: NcuTable, key: str) -> list[Cell]:
    place = next(i for i, column in enumerate(table.columns) if column.key == key)
    return [line.cells[place] for line in table.lines]


def _kernel_labels(lines: Sequence[KernelLine]) -> list[str]:
    return [f"{line.number} {short_kernel(line.name, _LABEL - 4)}" for line in lines]


def _percent_figure(
    table: NcuTable, id_: str, title: str, summary: str, series: Mapping[str, tuple[str, str]]
) -> Figure:
    """Grouped bars of percentages; a kernel without the value has no bar."""
    places = list(range(len(table.lines)))
    data = []
    for name, (key, color) in series.items():
        cells = _cells(table, key)
        texts = [
            _lines(line.name, f"{name}: {cell.exact}", cell.name)
            for line, cell in zip(table.lines, cells, strict=True)
        ]
        trace = _bars(name, places, [cell.value for cell in cells], texts)
        data.append({**trace, "marker": {"color": color}})
    if not any(value is not None for trace in data for value in trace["x"]):
        return Figure(id_, title, "", empty=f"{title}: these results hold none of the metrics.")
    rows = len(places) * len(series) * 0.55
    layout = _layout(round(rows), "%", _kernel_labels(table.lines), barmode="group", bargap=0.25)
    layout["xaxis"]["range"] = [0, 100]
    return Figure(id_, title, summary, tuple(data), layout)


def _stall_figure(table: NcuTable) -> Figure:
    title = "Stall reasons"
    totals: dict[str, float] = {}
    for line in table.lines:
        for reason, warps in line.stalls:
            totals[reason] = totals.get(reason, 0.0) + warps
    if not totals:
        why = (
            "No stall reasons: these results lack the section WarpStateStats "
            "(ncu --section WarpStateStats)."
        )
        return Figure("plot-stalls", title, "", empty=why)
    shown = sorted(totals, key=lambda reason: (-totals[reason], reason))[:_REASONS]
    places = list(range(len(table.lines)))
    data = []
    for reason, color in zip(shown, PALETTE, strict=False):
        values = [dict(line.stalls).get(reason) for line in table.lines]
        data.append(_stall_trace(table, reason, places, values, {"color": color}))
    if len(totals) > len(shown):
        rest = [sum(w for r, w in line.stalls if r not in shown) for line in table.lines]
        marker = {"color": _GREY, "pattern": {"shape": "/", "size": 6}}
        data.append(_stall_trace(table, "other reasons", places, rest, marker))
    layout = _layout(
        len(places), "warps stalled per issue", _kernel_labels(table.lines), barmode="stack"
    )
    summary = "How many warps wait for what, each time an instruction is issued."
    return Figure("plot-stalls", title, summary, tuple(data), layout)


def _stall_trace(
    table: NcuTable,
    reason: str,
    places: Sequence[int],
    values: Sequence[float | None],
    marker: Mapping[str, Any],
) -> dict[str, Any]:
    texts = [
        _lines(line.name, f"{reason}: {exact(value, 'warps per issue')}")
        for line, value in zip(table.lines, values, strict=True)
    ]
    return {**_bars(reason, places, values, texts), "marker": dict(marker)}


def kernel_figures(analysis: Analysis, table: NcuTable | None) -> tuple[Figure, ...]:
    """Occupancy, caches and stalls of the longest ncu results, each drawn or saying why not."""
    if table is None:
        measured = "None of the inputs is a report of Nsight Compute"
        if any(info.kind in ("ncu_rep", "ncu_csv") for info in analysis.inputs):
            measured = "The report of Nsight Compute holds no kernel"
        why = (
            f"{measured}, so occupancy, cache and stall figures are not known. "
            "Give an .ncu-rep together with these inputs."
        )
        return (Figure("plot-ncu", "Hardware counters", "", empty=why),)
    head = NcuTable(table.columns, table.lines[:_KERNELS], 0, table.notes)
    whole = len(table.lines) + table.left_out
    of = f" The {_KERNELS} longest of {whole:,} kernels." if whole > _KERNELS else ""
    occupancy = _percent_figure(
        head,
        "plot-occupancy",
        "Achieved and theoretical occupancy",
        f"What share of the warps an SM can hold was resident.{of}",
        {"theoretical": ("theoretical", _GREY), "achieved": ("achieved", PALETTE[0])},
    )
    caches = _percent_figure(
        head,
        "plot-caches",
        "L2 throughput and hit rates",
        f"Invalid rates have no bar.{of}",
        {
            "L2 throughput": ("l2_throughput", PALETTE[0]),
            "L2 hit rate": ("l2_hit", PALETTE[1]),
            "L1 hit rate": ("l1_hit", PALETTE[2]),
        },
    )
    return occupancy, caches, _stall_figure(head)
