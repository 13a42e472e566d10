# SPDX-License-Identifier: Apache-2.0
"""Standard output: the result and nothing else, on whatever it is connected to."""

import os
import sys
from pathlib import Path

from graphtrace.model.errors import OutputError

__all__ = ["ClosedPipe", "abandon_stdout", "prepare", "print_result"]


class ClosedPipe(Exception):
    """Who read standard output is gone. No OSError: click answers 1 to one of those."""


def prepare() -> None:
    """Make the streams take any character, also where the locale's encoding has few.

    Where standard error is closed, what would go there goes nowhere.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for good
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def print_result(text: str) -> None:
    """Print the result.

    Raises:
        OutputError: standard output is closed or cannot be written.
        ClosedPipe: who read it is gone.
    """
    if sys.stdout is None:
        raise OutputError(
            "The result could not be printed.",
            "Standard output is closed.",
            "Write it to a file with -o, or redirect the output.",
        )
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ClosedPipe from error
    except OSError as error:
        abandon_stdout()
        raise OutputError(
            "The result could not be printed.",
            f"Standard output: {error.strerror or error}.",
            "Free some space, or send the output elsewhere.",
        ) from error


def abandon_stdout() -> None:
    """Python flushes what is left once more at exit; give it somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
