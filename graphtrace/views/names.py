# SPDX-License-Identifier: Apache-2.0
"""Names that came out of files: made harmless to look at, and short enough to read.

Kernel, range and file names are other people's text. A terminal obeys control characters in them
and both terminals and browsers obey bidirectional controls, so neither is ever passed on.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from graphtrace.model.untrusted import visible

__all__ = ["fit", "short_kernel", "short_kernels", "shown_width", "visible"]

_SCOPE: Final = re.compile(r"(?:(?:\(anonymous namespace\)|<?unnamed>|[A-Za-z_]\w*)::)+")
"""Pages of ncu's CSV lose the first bracket of <unnamed>."""
_CAST: Final = re.compile(
    r"\((?:unsigned |signed )?(?:bool|char|short|int|long|long long)\)(?=-?\d)"
)
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
    return head + _ELLIPSIS + _tail(text, tail)


def _tail(text: str, width: int) -> str:
    # It is the head of the reversed text; combining marks may lose their base there.
    return _head(text[::-1], width)[::-1]


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
    return _without_return(name.removeprefix("void ").strip())


def _without_return(name: str) -> str:
    """Drop what stands before the last space outside of brackets: a return type with arguments."""
    depth, at = 0, 0
    for index, character in enumerate(name):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character == " " and depth == 0:
            at = index + 1
        if depth < 0:
            return name
    # Only a template's instance has its return type in its name: "operator new" has none.
    before, own = name[:at], name[at:]
    return own if depth == 0 and ">" in before and own and "operator" not in before else name


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
    short = _bare(name, width)
    # Unbalanced brackets (operator<, a truncated name) cannot be collapsed level by level.
    if short.count("<") == short.count(">"):
        for keep in (2, 1, 0):
            if shown_width(short) <= width:
                break
            collapsed = _collapse(short, keep)
            short = collapsed if keep or shown_width(short) > 2 * width else short
    return fit(short, width)


def _bare(name: str, width: int) -> str:
    """A name that fits as it stands, or without return type, parameters and namespaces."""
    full = visible(name)
    if shown_width(full) <= width and "(" not in full:
        return full
    short = full
    if full.endswith(")"):
        short = _without_parameters(_CAST.sub("", full)) or full
    return _SCOPE.sub("", short).replace("> >", ">>") or full


def short_kernels(names: Sequence[str], width: int) -> list[str]:
    """Names of one table, each in at most `width` columns.

    Different kernels that would read alike, as instances of one template do, keep the part in
    which they differ where the width allows.
    """
    shown = [short_kernel(name, width) for name in names]
    alike: dict[str, set[str]] = {}
    for name, short in zip(names, shown, strict=True):
        alike.setdefault(short, set()).add(name)
    for short, group in alike.items():
        if len(group) > 1:
            told = _told_apart(sorted(group), width)
            shown = [
                told.get(name, now) if now == short else now
                for name, now in zip(names, shown, strict=True)
            ]
    return shown


def _common(first: str, last: str) -> int:
    """Characters with which both begin, and with them all that sort between them."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))


def _told_apart(names: Sequence[str], width: int) -> dict[str, str]:
    """What tells most of the names apart: both ends, or the start and the first difference."""
    bare = [_bare(name, width) for name in names]
    common = _common(min(bare), max(bare))
    # A word that differs is read from its beginning.
    while common and (bare[0][common - 1].isalnum() or bare[0][common - 1] == "_"):
        common -= 1
    tail = width // 2
    ends = [_head(text, width - 1 - tail) + _ELLIPSIS + _tail(text, tail) for text in bare]
    ends = [
        text if shown_width(text) <= width else end for text, end in zip(bare, ends, strict=True)
    ]
    start = _head(bare[0][:common], max(width // 3, 1)) + _ELLIPSIS
    room = width - shown_width(start)
    parts = [start + fit(text[common:], room) for text in bare]
    best = max(parts, ends, key=lambda shown: len(set(shown))) if common > len(start) else ends
    return dict(zip(names, best, strict=True)) if len(set(best)) > 1 else {}
