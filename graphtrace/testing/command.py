# SPDX-License-Identifier: Apache-2.0
"""How the commands that write synthetic files fail: as all others do."""

from typing import IO, Any

import click

from graphtrace.model.errors import GraphtraceError
from graphtrace.model.untrusted import visible

__all__ = ["Failed"]


class Failed(click.ClickException):
    """An error of ours: three lines on standard error, and its exit code."""

    def __init__(self, error: GraphtraceError) -> None:
        super().__init__(error.what)
        self.exit_code = error.exit_code  # type: ignore[misc]  # click reads the instance's
        self._lines = (f"error: {error.what}", f"  why: {error.why}", f"   do: {error.do}")

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the three lines."""
        for line in self._lines:
            click.echo(visible(line), file=file, err=file is None)
