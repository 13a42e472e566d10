# SPDX-License-Identifier: Apache-2.0
"""Names from files and from the user, made safe for a terminal."""

import unicodedata

__all__ = ["visible"]


def visible(text: str) -> str:
    r"""The text with control, format and surrogate characters shown as escapes.

    Line ends become `\n`, so that a hostile name cannot forge a line of ours.
    """
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp", "Co"}:
        return char.encode("unicode_escape").decode("ascii")
    return char
