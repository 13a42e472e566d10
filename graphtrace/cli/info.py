# SPDX-License-Identifier: Apache-2.0
"""`graphtrace info FILE...`: what a file holds, what it lacks, and how to collect that."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from graphtrace.cli.border import say
from graphtrace.cli.console import print_result
from graphtrace.model.errors import GraphtraceError

if TYPE_CHECKING:
    from graphtrace.model.description import Description

__all__ = ["command"]

_FILE_WIDTH: Final = 100


@click.command("info", short_help="Say what a file holds, what it lacks, and how to collect it.")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed.",
)
@click.option(
    "--command-line",
    "with_commands",
    is_flag=True,
    help="Show the profiler's command line that an ncu report keeps; it may hold secrets.",
)
def command(files: tuple[Path, ...], form: str, with_commands: bool) -> int:
    """Say what each file holds, what it lacks, why that matters, and how to collect it.

    FILE is anything that graphtrace analyze reads; files without GPU work are described, too. Where
    one of several cannot be read, the others are described, and the exit code is that of its error.
    """
    from graphtrace.report.info_json import render

    told: list[Description] = []
    failed: list[tuple[Path, GraphtraceError]] = []
    for path in files:
        try:
            description = _described(path, with_commands=with_commands)
        except GraphtraceError as error:
            if len(files) == 1:
                raise
            failed.append((path, error))
            continue
        if form == "text":
            print_result(("\n" if told else "") + _text(description))
        told.append(description)
    if not told:
        # Nothing is described: the first error is the answer, as of any other command.
        for _, why in failed[1:]:
            say(why)
        raise failed[0][1]
    if form == "json":
        print_result(render(told, failed) + "\n")
    for _, why in failed:
        say(why)
    return failed[0][1].exit_code if failed else 0


def _described(path: Path, *, with_commands: bool) -> "Description":
    from dataclasses import replace

    from graphtrace.ingest.load import read_source
    from graphtrace.views.info import describe

    described = describe(read_source(path), _size(path))
    if with_commands and described.info.kind == "ncu_rep":
        from graphtrace.ingest.ncu_rep import command_lines

        return replace(described, command_lines=command_lines(path))
    return described


def _size(path: Path) -> int | None:
    """Bytes of a file, or of the files in a folder; None where the system does not say."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(inner.lstat().st_size for inner in path.rglob("*") if inner.is_file())
    except OSError:
        return None


def _text(description: "Description") -> str:
    from graphtrace.report.info_text import render

    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size((_FILE_WIDTH, 24)).columns
    color = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return render(description, width=width, color=color)
