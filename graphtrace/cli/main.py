# SPDX-License-Identifier: Apache-2.0
"""The command `graphtrace`: a group whose commands are imported when they are called."""

import gc
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

from graphtrace import __version__
from graphtrace.cli.border import run_guarded

__all__ = ["main"]

_OBJECTS_BETWEEN_LOOKS: Final = 50_000

COMMANDS: Final = {
    "analyze": ("graphtrace.cli.analyze", "Say which stage loses time, why, and what to do."),
    "capture": ("graphtrace.cli.capture", "Run a program and record its stages and batches."),
    "export": ("graphtrace.cli.export", "Write a file as a recording, which is faster to read."),
    "info": ("graphtrace.cli.info", "Say what a file holds, what it lacks, how to collect it."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            known = ", ".join(sorted(COMMANDS))
            raise click.UsageError(f"No command '{args[0]}'.{hint} Commands: {known}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Help needs no command to be imported.
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 a gate failed, 2 wrong usage, 3 input unreadable, 4 no GPU work, "
    "5 a needed tool is missing, 70 a bug of graphtrace, 130 interrupted.",
)
@click.version_option(__version__, "-V", "--version", message="graphtrace %(version)s")
def cli() -> None:
    """Which stage inside the replayed CUDA graph loses time, why, and how much would come back."""


def _run(args: Sequence[str]) -> int:
    result = cli.main(args=list(args), prog_name="graphtrace", standalone_mode=False)
    return result if isinstance(result, int) else 0


def main() -> None:
    """Entry point of the console script."""
    # Modules and columns make many objects and hardly a cycle; looking for some takes a tenth of
    # the time of a small answer.
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS, 20, 20)
    sys.exit(run_guarded(_run, sys.argv[1:]))
