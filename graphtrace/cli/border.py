# SPDX-License-Identifier: Apache-2.0
"""The border between the command line and the shell: errors, exit codes, interrupts, pipes.

Exit codes: 0 done; 1 a gate failed, and nothing else; 2 wrong usage; 3 input unreadable; 4 no GPU
work, or a gate that cannot be decided; 5 a needed tool is missing; 70 a bug of ours; 130
interrupted. A closed pipe ends quietly with 0. `capture` answers 125 to each of ours, as `env`
does: every other code is the program's own.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final

import click

from graphtrace import __version__
from graphtrace.cli.console import ClosedPipe, abandon_stdout, prepare, print_result
from graphtrace.model.errors import GraphtraceError, InternalError, OutputError, UsageError
from graphtrace.model.untrusted import visible

__all__ = ["BEFORE_CHILD", "INTERRUPTED", "run_guarded", "say"]

INTERRUPTED: Final = 130
BEFORE_CHILD: Final = 125


def run_guarded(run: Callable[[Sequence[str]], int], args: Sequence[str]) -> int:
    """Run a command and turn what it raises into sentences and an exit code.

    Args:
        run: takes the arguments and returns an exit code.
        args: the arguments after the program's name.
    """
    prepare()
    json = _wants_json(args)
    sys.excepthook = _bug_hook(json=json)
    try:
        code = run(args)
    except GraphtraceError as error:
        return _code(_report(error, json=json), args)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return UsageError.exit_code
    except click.ClickException as error:
        return _code(_report(_from_click(error), json=json), args)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    except (ClosedPipe, SystemExit):
        # click exits by itself where its help meets a closed pipe.
        abandon_stdout()
        return 0
    return code


def _code(code: int, args: Sequence[str]) -> int:
    return BEFORE_CHILD if args[:1] == ["capture"] else code


def _wants_json(args: Sequence[str]) -> bool:
    own = list(args[: args.index("--")] if "--" in args else args)
    pairs = pairwise(own)
    return "--format=json" in own or ("--format", "json") in pairs


def _report(error: GraphtraceError, *, json: bool) -> int:
    say(error)
    if json:
        from graphtrace.report.json import render_error

        # Who cannot be told here has the sentences and the exit code.
        with suppress(OutputError, ClosedPipe):
            print_result(render_error(error) + "\n")
    return error.exit_code


def say(error: GraphtraceError) -> None:
    """The three lines of an error on standard error."""
    lines = (f"error: {error.what}", f"  why: {error.why}", f"   do: {error.do}")
    sys.stderr.write("\n".join(visible(line) for line in lines) + "\n")
    if os.environ.get("GRAPHTRACE_DEBUG") == "1":
        traceback.print_exception(error)


def _from_click(error: click.ClickException) -> UsageError:
    what = error.format_message().replace("\n", " ").strip()
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "graphtrace"
    return UsageError(
        what if what.endswith((".", "?", "!")) else f"{what}.",
        "The command line is not one that graphtrace knows.",
        f"See '{command} --help'.",
    )


def _bug_hook(
    *, json: bool
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """An excepthook for what nobody caught: three lines and exit code 70."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.environ.get("GRAPHTRACE_DEBUG") == "1":
            traceback.print_exception(kind, error, trace)
        frame = traceback.extract_tb(trace)[-1] if trace is not None else None
        where = f"{Path(frame.filename).name}:{frame.lineno}" if frame else "unknown place"
        bug = InternalError(
            f"graphtrace {__version__} failed: {kind.__name__} at {where}: {error}",
            "This is a bug in graphtrace, not in your program or file.",
            "Run again with GRAPHTRACE_DEBUG=1 and report the traceback.",
        )
        raise SystemExit(_report(bug, json=json))

    return hook
