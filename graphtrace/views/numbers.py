# SPDX-License-Identifier: Apache-2.0
"""Numbers as a person reads them: three figures and a unit, with the exact value kept beside.

An absent value is a dash, never zero; a value that is small but not zero never reads as zero.
"""

import math
from dataclasses import dataclass
from typing import Final

from graphtrace.model.analysis import MetricValue

__all__ = [
    "ABSENT",
    "Cell",
    "cell",
    "count",
    "data_size",
    "duration",
    "exact",
    "percent",
    "plural",
    "quantity",
    "share",
    "significant",
    "time_scale",
]

ABSENT: Final = "-"

_WHOLE: Final = 2.0**53
"""Below it every whole number is a float of its own, so that its digits mean something."""

_TIME: Final = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
_BYTES: Final = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15))
_HERTZ: Final = (("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9))


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table: what is shown, what is exact, and why it decides nothing.

    Attributes:
        text: short form, `-` where the value is absent.
        exact: value and unit with every digit, for hover and print.
        value: the number, None where it is absent or invalid.
        invalid: the reason, where the metric exists but must not be used.
        name: the metric that it is.
    """

    text: str
    exact: str
    value: float | int | None = None
    invalid: str | None = None
    name: str = ""

    @property
    def hover(self) -> str:
        """The exact value with the name of its metric."""
        return f"{self.name}: {self.exact}" if self.name else self.exact


def _is_number(value: float | int | None) -> bool:
    return value is not None and math.isfinite(value)


def significant(value: float | None) -> str:
    """Three significant figures, thousands separated, zeros kept: `1.20`, `24.0`, `1,234`."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    size = abs(rounded)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{rounded:.0f}"
    if size >= 10:
        return f"{rounded:.1f}"
    if size >= 1:
        return f"{rounded:.2f}"
    if size >= 0.001:
        return f"{rounded:.3g}"
    return f"{rounded:.1e}"


def _scaled(value: float, steps: tuple[tuple[str, float], ...]) -> str:
    for index, (unit, factor) in enumerate(steps):
        # Rounding to three figures may carry into the next unit: 999.9 us is 1.00 ms.
        if abs(float(f"{value / factor:.3g}")) < 1000 or index == len(steps) - 1:
            scaled = value / factor
            if index == 0 and float(scaled).is_integer():
                return f"{int(scaled)} {unit}"
            return f"{significant(scaled)} {unit}"
    raise AssertionError("unreachable: the last step always answers")


def duration(ns: float | None) -> str:
    """A time in nanoseconds as `1.23 ms`."""
    return _scaled(ns, _TIME) if ns is not None and math.isfinite(ns) else ABSENT


def time_scale(ns: float) -> tuple[str, float]:
    """Unit and its length in ns for an axis that ends at `ns`."""
    chosen = _TIME[0]
    for unit, factor in _TIME:
        if ns >= factor:
            chosen = (unit, factor)
    return chosen


def data_size(size: float | None) -> str:
    """Bytes in decimal units, as Nsight Compute prints them: `25.2 MB`."""
    return _scaled(size, _BYTES) if size is not None and math.isfinite(size) else ABSENT


def percent(value: float | None) -> str:
    """A value already in percent as `77.1 %`; neither nothing nor all by rounding alone."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if 0 < value < 0.05:
        return "<0.1 %"
    if 99.95 <= value < 100:
        return ">99.9 %"
    return f"{value:.1f} %"


def share(ratio: float | None) -> str:
    """A ratio 0 to 1 in percent."""
    return percent(None if ratio is None else ratio * 100)


def count(value: float | None) -> str:
    """A count with thousands separated."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:,.0f}" if float(value).is_integer() else significant(value)


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 kernel`, `1,200 kernels`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def quantity(value: float | None, unit: str) -> str:
    """A value in a base unit of ncu-report, scaled for reading."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit == "%":
        return percent(value)
    if unit in ("ns", "nsecond"):
        return duration(value)
    if unit in ("byte", "bytes", "byte/s", "byte/second"):
        return data_size(value) + ("/s" if "/" in unit else "")
    if unit in ("hz", "cycle/s", "cycle/second"):
        return _scaled(value, _HERTZ)
    number = count(value) if float(value).is_integer() else significant(value)
    return f"{number} {unit}".rstrip()


def exact(value: float | str | None, unit: str) -> str:
    """Every digit and the base unit, for hover."""
    if value is None:
        return "not measured"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number"
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        value = int(value)
    digits = f"{value:,}" if isinstance(value, int) else repr(float(value))
    return f"{digits} {unit}".rstrip()


def cell(metric: MetricValue | None, name: str = "", *, bare: bool = False) -> Cell:
    """The cell of a metric.

    Args:
        metric: the value, None where it was not measured.
        name: name of the metric.
        bare: the column's heading names the unit, so the text leaves it out.
    """
    if metric is None:
        return Cell(ABSENT, "not measured")
    if metric.invalid is not None:
        shown = "" if metric.value is None else f", read {exact(metric.value, metric.unit)}"
        return Cell("invalid", f"invalid{shown}: {metric.invalid}", None, metric.invalid, name)
    if not _is_number(metric.value):
        return Cell(ABSENT, "not measured")
    if bare and metric.unit != "%":
        text = significant(metric.value)
    else:
        text = quantity(metric.value, metric.unit)
        text = text.removesuffix(" %") if bare else text
    return Cell(text, exact(metric.value, metric.unit), metric.value, None, name)
