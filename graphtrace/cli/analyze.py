# SPDX-License-Identifier: Apache-2.0
"""`graphtrace analyze INPUT...`: from files to an answer."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from graphtrace.cli.console import print_result
from graphtrace.cli.gates import parse_gates
from graphtrace.cli.memory import keep_freed_memory
from graphtrace.cli.output import check_outputs, write_output
from graphtrace.model.errors import UsageError

if TYPE_CHECKING:
    from graphtrace.model.analysis import Analysis, Gate
    from graphtrace.model.trace import Trace

__all__ = ["command"]

_GATE_FAILED: Final = 1
_UNDECIDED: Final = 4
_FILE_WIDTH: Final = 100


@click.command("analyze", short_help="Say which stage loses time, why, and what to do.")
@click.argument(
    "inputs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="INPUT..."
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write a report: .html, .json or .txt. May be given several times.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed.",
)
@click.option("--only", metavar="A,B", help="Run only these analyzers.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="A.x=v",
    help="Set an analyzer's option, as in cache_thrash.excess=0.3.",
)
@click.option(
    "--fail-over",
    "gates",
    multiple=True,
    metavar="NAME=N%",
    help="Exit with 1 where a figure is above its limit, as in recoverable=5%.",
)
@click.option("--force", is_flag=True, help="Overwrite outputs that exist.")
def command(
    inputs: tuple[Path, ...],
    outputs: tuple[Path, ...],
    form: str,
    only: str | None,
    settings: tuple[str, ...],
    gates: tuple[str, ...],
    force: bool,
) -> int:
    """Say which stage loses time, why, how much would come back, and what to do.

    INPUT is an Nsight Compute report (.ncu-rep) or what ncu printed (--csv), an Nsight Systems
    report (.nsys-rep) or export (sqlite, or a folder by parquetdir or arrowdir), a trace of the
    PyTorch profiler (.json, .json.gz) or a recording (.gtrace); the content decides, not the name.
    Several inputs are joined.

    A .nsys-rep is exported by the nsys on the PATH, or the one that GRAPHTRACE_NSYS names, in at
    most GRAPHTRACE_NSYS_TIMEOUT seconds (900 where it is not set).
    """
    writers = [_writer(output) for output in outputs]
    limits = parse_gates(gates)
    check_outputs(outputs, inputs, force=force)
    keep_freed_memory()
    from graphtrace.analysis.engine import run
    from graphtrace.analysis.options import parse_settings
    from graphtrace.ingest.load import load

    options = parse_settings(settings)
    trace = load(*inputs)
    analysis, attributed = run(
        trace,
        only=None if only is None else [name.strip() for name in only.split(",")],
        options=options,
        fail_over=limits,
    )
    rendered = [write(analysis, attributed) for write in writers]
    for output, text in zip(outputs, rendered, strict=True):
        write_output(output, text)
    print_result(_printed(analysis, form))
    for output in outputs:
        click.echo(f"wrote {click.format_filename(output)}", err=True)
    return _code(analysis.gates)


def _printed(analysis: "Analysis", form: str) -> str:
    if form == "json":
        from graphtrace.report.json import render as render_json

        return render_json(analysis) + "\n"
    import os

    from graphtrace.report.text import render

    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size((_FILE_WIDTH, 24)).columns
    color = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return render(analysis, width=width, color=color)


def _writer(output: Path) -> "Callable[[Analysis, Trace], str]":
    suffix = output.suffix.lower()
    if suffix in {".html", ".htm"}:
        return _html
    if suffix == ".json":
        return _json
    if suffix == ".txt":
        return _text
    raise UsageError(
        f"{output} has no ending that names a report.",
        "The ending says what is written.",
        "Use .html, .json or .txt.",
    )


def _html(analysis: "Analysis", trace: "Trace") -> str:
    from graphtrace.report.html import render

    return render(analysis, trace)


def _json(analysis: "Analysis", trace: "Trace") -> str:
    from graphtrace.report.json import render

    return render(analysis) + "\n"


def _text(analysis: "Analysis", trace: "Trace") -> str:
    from graphtrace.report.text import render

    return render(analysis, width=_FILE_WIDTH, color=False)


def _code(gates: "tuple[Gate, ...]") -> int:
    if any(gate.passed is False for gate in gates):
        return _GATE_FAILED
    if any(gate.passed is None for gate in gates):
        return _UNDECIDED
    return 0
