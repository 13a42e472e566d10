# SPDX-License-Identifier: Apache-2.0
"""Numbers and units as ncu prints them, taken back to base units exactly.

ncu prints numbers in the manner of the user's locale and scales units by powers of 1000 unless
told `--print-units base`. Which of comma and point is the decimal one is decided by the whole file:
`1,234` alone may be either.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

__all__ = ["Style", "base_unit", "number", "parts", "style_of", "unlike"]

_SPACES: Final = re.compile("(?<=\\d)[\u00a0\u202f\u2009 '\u2019](?=\\d{3}(?!\\d))")
_ABSENT: Final = frozenset({"", "n/a", "(!) n/a", "nan", "-nan", "inf", "-inf", "no data"})
_SCALES: Final = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_SECONDS: Final = {"second": 0, "s": 0, "msecond": -3, "ms": -3, "usecond": -6, "us": -6}
_SECONDS_SHORT: Final = {"nsecond": -9, "ns": -9}
_SCALED: Final = re.compile(r"([KMGTP])(byte|hz|sector|inst|request|cycle|warp|thread)(s?)")

_LISTED: Final = re.compile(r"([^();]*?) ?\(([^()]*)\)")

Style = str
"""The decimal separator: a point or a comma."""


def _evidence(decimal: str, grouping: str) -> re.Pattern[str]:
    d, g = re.escape(decimal), re.escape(grouping)
    return re.compile(
        rf"-?(?:\d{{1,3}}(?:{g}\d{{3}})+{d}\d+"  # both separators
        rf"|\d{{1,3}}(?:{g}\d{{3}}){{2,}}"  # two groups
        rf"|0{d}\d+|\d{{4,}}{d}\d+"  # no group starts so
        rf"|\d+{d}(?:\d{{1,2}}|\d{{4,}})(?:[eE][+-]?\d+)?)"  # no group is that long
    )


_PROOF: Final = {".": _evidence(".", ","), ",": _evidence(",", ".")}


def _grammar(decimal: str, grouping: str) -> re.Pattern[str]:
    d, g = re.escape(decimal), re.escape(grouping)
    return re.compile(rf"[+-]?(?:\d{{1,3}}(?:{g}\d{{3}})+|\d+)(?:{d}\d*)?(?:[eE][+-]?\d{{1,3}})?")


_GRAMMAR: Final = {".": _grammar(".", ","), ",": _grammar(",", ".")}
_UNCLEAR: Final = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


def _bare(cell: str) -> str:
    return _SPACES.sub("", cell.strip())


def parts(cell: str) -> tuple[str, tuple[str, ...]]:
    """The value of the metric and those of its instances, as printed.

    `--print-metric-instances values` prints `6 (1; 2; 3)`, and `(1; 2; 3)` where there is no value
    of the metric as a whole. Other tools write the instances alone, `1;2;3`.
    """
    match = _LISTED.fullmatch(cell.strip())
    if match is not None:
        return match.group(1), tuple(match.group(2).split(";"))
    return ("", tuple(cell.split(";"))) if ";" in cell else (cell, ())


def style_of(cells: Iterable[str]) -> set[Style]:
    """Decimal separators that the cells prove; more than one where they contradict each other."""
    found: set[Style] = set()
    for cell in cells:
        if len(cell) > 40 or not ("," in cell or "." in cell):
            continue
        bare = _bare(parts(cell)[0])
        found.update(style for style, proof in _PROOF.items() if proof.fullmatch(bare))
    return found


def unlike(cell: str) -> bool:
    """Whether a cell may be read in two ways, so that only the rest of the file decides it."""
    return _UNCLEAR.fullmatch(_bare(cell)) is not None


def number(cell: str, style: Style) -> Decimal | None:
    """The number that a cell holds; None where it holds none."""
    bare = _bare(cell)
    if bare.lower() in _ABSENT or not _GRAMMAR[style].fullmatch(bare):
        return None
    grouping = "," if style == "." else "."
    return Decimal(bare.replace(grouping, "").replace(style, "."))


def _seconds(word: str) -> int | None:
    return _SECONDS.get(word, _SECONDS_SHORT.get(word))


def _part(word: str) -> tuple[str, int]:
    """A word of a unit without its scale, and the power of ten that the scale stands for."""
    power = _seconds(word)
    if power is not None:
        return "s", power
    if word in {"Khz", "Mhz", "Ghz", "KHz", "MHz", "GHz", "Hz"}:
        return "hz", _SCALES[word[0] if len(word) == 3 else ""]
    match = _SCALED.fullmatch(word)
    if match is None:
        return word, 0
    return match.group(2) + match.group(3), _SCALES[match.group(1)]


def base_unit(unit: str) -> tuple[str, int]:
    """Base unit in ncu-report's spelling, and the power of ten that leads to it.

    `Gbyte/second` is `byte/s` and 9, `usecond` is `ns` and 3, `cycle/nsecond` is `hz` and 9.
    """
    above, _, below = unit.strip().partition("/")
    top, power = _part(above)
    if not below:
        # Durations are counted in nanoseconds.
        return ("ns", power + 9) if top == "s" else (top, power)
    bottom, minus = _part(below)
    if top == "cycle" and bottom == "s":
        return "hz", power - minus
    return f"{top}/{bottom}", power - minus
