# SPDX-License-Identifier: Apache-2.0
"""Names that came out of files: made harmless to look at, and short enough to read.

Kernel, range and file names are other people's text. A terminal obeys control characters in them
and both terminals and browsers obey bidirectional controls, so neither is ever passed on.
"""

import re
import unicodedata
from typing import Final

from graphtrace.model.untrusted import visible

__all__ = ["fit", "short_kernel", "shown_width", "visible"]

_SCOPE: Final = re.compile(r"(?:(?:\(anonymous namespace\)|<unnamed>|[A-Za-z_]\w*)::)+")
_CAST: Final = re.compile(r"\((?:unsigned |signed )?(?:bool|char|short|int|long|long long)\)")
_ELLIPSIS: Final = "…"


def shown_width(text: str) -> int:
    """Columns of a terminal: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _head(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return text[:index]
    return text


def fit(text: str, width: int) -> str:
    """At most `width` columns: what is too long loses its middle, since both ends tell most."""
    if width < 1:
        return ""
    if shown_width(text) <= width:
        return text
    if width < 8:
        return _head(text, width - 1) + _ELLIPSIS
    tail = (width - 1) // 3
    head = _head(text, width - 1 - tail)
    # The tail is the head of the reversed text; combining marks may lose their base there.
    return head + _ELLIPSIS + _head(text[::-1], tail)[::-1]


def _without_parameters(name: str) -> str:
    """Drop the parameter list at the end and the return type in front of a demangled name."""
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        if name[index] == ")":
            depth += 1
        elif name[index] == "(":
            depth -= 1
            if depth == 0:
                if name[:index].endswith("operator"):
                    break
                name = name[:index] if index else name
                break
    return name.removeprefix("void ").strip()


def _collapse(name: str, keep: int) -> str:
    """Replace template arguments nested deeper than `keep` by an ellipsis."""
    out: list[str] = []
    depth = 0
    for index, character in enumerate(name):
        if character == "<":
            depth += 1
            if depth == keep + 1:
                out.append("<" + _ELLIPSIS)
            elif depth <= keep:
                out.append(character)
        elif character == ">" and depth and name[index - 1] != "-":
            if depth <= keep + 1:
                out.append(character)
            depth -= 1
        elif depth <= keep:
            out.append(character)
    return "".join(out)


def short_kernel(name: str, width: int) -> str:
    """A demangled kernel name in at most `width` columns.

    Return type, parameters and namespaces go first, then template arguments from the innermost
    outwards, then the middle. The result is already `visible`.
    """
    full = visible(name)
    if shown_width(full) <= width and "(" not in full:
        return full
    short = full
    if full.endswith(")"):
        short = _without_parameters(_CAST.sub("", full)) or full
    short = _SCOPE.sub("", short).replace("> >", ">>") or full
    # Unbalanced brackets (operator<, a truncated name) cannot be collapsed level by level.
    if short.count("<") == short.count(">"):
        for keep in (2, 1, 0):
            if shown_width(short) <= width:
                break
            collapsed = _collapse(short, keep)
            short = collapsed if keep or shown_width(short) > 2 * width else short
    return fit(short, width)
