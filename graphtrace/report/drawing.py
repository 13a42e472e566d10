# SPDX-License-Identifier: Apache-2.0
"""What all reports for a terminal draw with."""

from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

__all__ = ["command", "console_of", "heading", "line", "text_of"]


def console_of(width: int, *, color: bool) -> tuple[Console, StringIO]:
    """A console that draws into memory, with the eight standard colours or no escape at all."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        # The environment must not change what is printed: the caller decided.
        _environ={},
    )
    return console, out


def heading(console: Console, text: str) -> None:
    """A heading with an empty line above it."""
    console.print()
    console.print(Text(text, style="bold"))


def line(console: Console, text: str, style: str = "", indent: int = 2) -> None:
    """A line, wrapped where it is too long; markup in it is not read."""
    console.print(Padding(Text(text, style=style), (0, 0, 0, indent)))


def command(console: Console, words: str, lead: str = "    ") -> None:
    """A command on a line of its own that is never broken."""
    text = Text(f"{lead}$ ", style="dim")
    text.append(words, style="not dim cyan")
    console.print(text, soft_wrap=True)


def text_of(out: StringIO) -> str:
    """What was drawn, without blanks at the ends of lines, ending in a line end."""
    return "\n".join(row.rstrip() for row in out.getvalue().splitlines()) + "\n"
