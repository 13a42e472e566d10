# SPDX-License-Identifier: Apache-2.0
"""One self-contained page: plain HTML first, then figures by plotly.js, nothing ever loaded.

The content policy in the page forbids every request, so that being offline is a property the
browser enforces and not a promise.
"""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import graphtrace
from graphtrace.model.analysis import Analysis
from graphtrace.model.trace import Trace
from graphtrace.report import html_parts as parts
from graphtrace.report.html_figures import Figure, kernel_figures, stage_styles, time_figures
from graphtrace.views.budget import budget_view
from graphtrace.views.findings import finding_cards, verdict_view
from graphtrace.views.kernels import ncu_table, timeline_table
from graphtrace.views.tables import batch_view, coverage_view
from graphtrace.views.timeline import timeline_view

__all__ = ["POLICY", "SYNTHETIC_LABEL", "render"]

SYNTHETIC_LABEL: Final = "Synthetic: built by graphtrace.testing, not a measurement"
POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
_STAGES: Final = 20
_KERNELS: Final = 200
_BATCHES: Final = 50
_LINKS: Final = (
    ("verdict", "Verdict"),
    ("budget", "Time"),
    ("findings", "Findings"),
    ("figures-section", "Figures"),
    ("kernels", "Kernels"),
    ("ncu-kernels", "Nsight Compute"),
    ("batches", "Batches"),
    ("coverage", "Coverage"),
    ("undecided", "Not decided"),
    ("refused", "Refused"),
    ("cost", "Cost"),
)


def _asset(name: str) -> str:
    return (files("graphtrace.report") / "assets" / name).read_text(encoding="utf-8")


def _script_json(figures: Sequence[Figure]) -> str:
    """JSON that a script element can hold: no `<`, `>`, `&` and nothing outside ASCII."""
    drawn = [{"id": f.id, "data": f.data, "layout": f.layout} for f in figures if not f.empty]
    text = json.dumps(drawn, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plotly() -> str:
    """The bundle of the installed plotly package; only its small offline module is imported."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _scripts(figures: Sequence[Figure]) -> str:
    if all(figure.empty for figure in figures):
        return ""
    return (
        f'<script type="application/json" id="figures">{_script_json(figures)}</script>'
        f"<script>{_plotly()}</script><script>{_asset('page.js')}</script>"
    )


def _title(analysis: Analysis) -> str:
    names = ", ".join(info.path for info in analysis.inputs) or "no input"
    title = f"graphtrace: {names}"
    return f"{SYNTHETIC_LABEL} - {title}" if analysis.synthetic else title


def _head(analysis: Analysis) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>{parts.esc(_title(analysis))}</title><link rel="icon" href="data:,">'
        f"<style>{_asset('page.css')}</style></head>"
    )


def _nav(body: str) -> str:
    links = "".join(
        f'<a href="#{target}">{label}</a>' for target, label in _LINKS if f'id="{target}"' in body
    )
    return f'<nav aria-label="Sections"><div class="inner"><b>graphtrace</b>{links}</div></nav>'


def render(analysis: Analysis, trace: Trace) -> str:
    """The page.

    Args:
        analysis: what was found.
        trace: the attributed trace that it was found in; the timeline is drawn from it.
    """
    budget = budget_view(analysis.budget, analysis.devices, top=_STAGES)
    timeline = timeline_view(trace)
    truncated = analysis.truncated.get("kernels", 0)
    work = None if analysis.coverage is None else analysis.coverage.time_ns.total
    on_timeline = timeline_table(
        analysis.kernels, limit=_KERNELS, truncated=truncated, work_ns=work
    )
    ncu = ncu_table(
        analysis.kernels, limit=_KERNELS, truncated=0 if on_timeline is not None else truncated
    )
    figures = (*time_figures(budget, timeline), *kernel_figures(analysis, ncu))
    body = "".join(
        (
            parts.header(analysis, verdict_view(analysis)),
            parts.warnings(analysis.warnings),
            parts.budget(budget, stage_styles(budget, timeline)),
            parts.findings(
                finding_cards(analysis.findings, analysis.devices),
                undecided=bool(analysis.abstentions),
            ),
            parts.figures(figures),
            parts.timeline_kernels(on_timeline, switch=True),
            parts.ncu_kernels(ncu, switch=on_timeline is None),
            parts.batches(batch_view(analysis.batches, limit=_BATCHES)),
            parts.coverage(coverage_view(analysis.coverage)),
            parts.abstentions(analysis),
            parts.quarantine(analysis),
            parts.footer(analysis, graphtrace.__version__),
        )
    )
    banner = ""
    if analysis.synthetic:
        banner = f'<div class="synthetic" role="note">{SYNTHETIC_LABEL}</div>'
    return (
        f'{_head(analysis)}<body><a class="skip" href="#main">Skip to the verdict</a>{banner}'
        f'{_nav(body)}<main id="main">{body}</main>{_scripts(figures)}</body></html>\n'
    )
