# SPDX-License-Identifier: Apache-2.0
"""`graphtrace capture -- COMMAND...`: run a program and record its stages and batches."""

import os
import resource
import signal
import sys
from pathlib import Path

import click

from graphtrace.model.untrusted import visible

__all__ = ["command"]


@click.command(
    "capture",
    short_help="Run a program and record its stages and batches.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="RUN.gtrace",
    help="Recording to write. Default: the program's name and the time.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Record modules down to this depth of the model as stages.",
)
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="PATTERN",
    help="Also record modules of this name as stages, as in 'encoder.layers.*'.",
)
@click.option("--force", is_flag=True, help="Overwrite a recording that exists.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def command(
    output: Path | None,
    depth: int,
    stages: tuple[str, ...],
    force: bool,
    program: tuple[str, ...],
) -> int:
    """Run a program unchanged and record its stages and batches.

    COMMAND is run as it stands, as in: graphtrace capture -- python infer.py --steps 8. It keeps
    its arguments, input, output, signals and exit code. Exit codes of graphtrace itself: 125 it
    failed before the program started, 126 the program cannot be executed, 127 it was not found.
    """
    from graphtrace.capture.launcher import LaunchOptions, launch

    options = LaunchOptions(output=output, depth=depth, stages=stages, force=force)
    result = launch(program, options)
    for sentence in result.sentences:
        click.echo(f"graphtrace: {visible(sentence)}", err=True)
    if result.signal is not None:
        _die_by(result.signal)
    return result.exit_code


def _die_by(number: int) -> None:
    """Die as the program died, so that a shell sees the same thing; never leaves a core file."""
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
