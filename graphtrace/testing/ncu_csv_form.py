# SPDX-License-Identifier: Apache-2.0
"""How `ncu --csv` prints: columns, quoting, units by release, numbers by locale."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

__all__ = ["NVTX_COLUMNS", "Form", "Page", "Release", "line"]

Release = Literal["2022", "2025"]
Page = Literal["raw", "details", "summary"]

NVTX_COLUMNS: Final = (
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
)
_TIMES: Final = ((9, "second", "s"), (6, "msecond", "ms"), (3, "usecond", "us"))
_PREFIXES: Final = ((12, "T"), (9, "G"), (6, "M"), (3, "K"))
_CYCLES: Final = ((9, "cycle/nsecond", "Ghz"), (6, "cycle/usecond", "Mhz"))


@dataclass(frozen=True, slots=True)
class Form:
    """Options of ncu that change what it prints.

    Attributes:
        page: raw (a column a metric), details (a row a metric) or summary (over launches, as
            `--print-summary per-kernel`).
        release: 2022 says when a kernel ran and spells units out; 2025 says its shape and device.
        base_units: `--print-units base`; without, units are scaled to fit.
        grouped: whether thousands are set apart.
        decimal: the decimal separator; the other one sets thousands apart.
        preamble: whether lines of ncu stand around the page.
        ragged: whether rows of a details page end behind their value, as ncu ends them.
        instances: `--print-metric-instances values`.
        exact: whether all digits are printed; ncu rounds.
        nvtx: whether there are columns for ranges, as with `--nvtx`.
    """

    page: Page = "raw"
    release: Release = "2025"
    base_units: bool = False
    grouped: bool = False
    decimal: Literal[".", ","] = "."
    preamble: bool = True
    ragged: bool = True
    instances: bool = False
    exact: bool = False
    nvtx: bool = False

    def number(self, value: float, unit: str = "", power: int = 0) -> str:
        """A number as ncu rounds it, in the manner of the locale.

        Args:
            value: in base units.
            unit: the printed unit.
            power: power of ten that the printed unit stands for.
        """
        if not math.isfinite(value):
            return str(value)
        # The shortest digits that mean the number; ncu rounds the number itself.
        short = self.exact and isinstance(value, float)
        scaled = Decimal(repr(float(value)) if short else value).scaleb(-power)
        if self.exact:
            places = ""
        elif self.page == "summary" or (self.page == "raw" and unit and not self.base_units):
            places = ".6"
        else:
            places = ".0" if scaled == scaled.to_integral_value() else ".2"
        text = f"{scaled:{',' if self.grouped else ''}{places}f}"
        return text if self.decimal == "." else text.translate(str.maketrans(",.", ".,"))

    def unit(self, unit: str, largest: float) -> tuple[str, int]:
        """A base unit as printed, and the power of ten that it stands for.

        Args:
            unit: ncu-report's spelling: ns, byte, byte/s, hz and others.
            largest: what has to fit.
        """
        old = self.release == "2022"
        above, _, below = unit.partition("/")
        spelled = f"{above}/second" if old and below == "s" else unit
        spelled = {"ns": "nsecond", "hz": "cycle/second"}.get(unit, spelled) if old else spelled
        if self.base_units:
            return spelled, 0
        if unit == "ns":
            scales = tuple((power, words[0] if old else words[1]) for power, *words in _TIMES)
        elif unit == "hz":
            scales = tuple((power, words[0] if old else words[1]) for power, *words in _CYCLES)
        elif below == "s" and above != "byte" and old:
            scales = ((9, f"{above}/nsecond"), (6, f"{above}/usecond"))
        elif above == "byte":
            scales = tuple((power, prefix + spelled) for power, prefix in _PREFIXES)
        else:
            return spelled, 0
        for power, scaled in scales:
            if abs(largest) >= 10.0**power:
                return scaled, power
        return spelled, 0


def line(cells: Iterable[str]) -> str:
    """A record: every cell quoted, quotes inside doubled."""
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
