# SPDX-License-Identifier: Apache-2.0
"""Printed cells, gathered into the table `metrics`."""

from array import array
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.ncu_csv_values import Style, base_unit, number, parts, unlike
from graphtrace.ingest.ncu_metrics import Facts, Words, list_column
from graphtrace.model.arrays import dictionary, make_table, numbers

__all__ = ["Cells"]

_UINT64: Final = 2**64
_SAMPLE: Final = 200
_EXPONENT: Final = 300


class Cells:
    """Takes cell after cell, then gives the table.

    Args:
        style: the decimal separator that the file proves; empty where it proves none.
        wanted: metrics whose values also go to the facts of their result.

    Attributes:
        refused: count and a sample of what was left out, by reason.
        two_ways: cells that may be read in two ways.
    """

    def __init__(self, style: Style, wanted: Iterable[str]) -> None:
        self._style = style
        self._wanted = frozenset((*wanted, "launch__sm_count"))
        self._names, self._units, self._texts = Words(), Words(), Words()
        self._bases: dict[str, tuple[int, int]] = {}
        self._codes = {name: array("i") for name in ("result", "name", "unit", "text", "length")}
        self._values = array("d")
        self._integers = array("Q")
        self._exact = bytearray()
        self._instances: list[npt.NDArray[np.float64]] = []
        self._seen: set[tuple[int, int]] = set()
        self.refused: dict[str, tuple[int, str]] = {}
        self.two_ways = 0

    def refuse(self, reason: str, sample: str) -> None:
        """Leave something out."""
        count, first = self.refused.get(reason, (0, sample[:_SAMPLE]))
        self.refused[reason] = (count + 1, first)

    def add(self, result: int, name: str, unit: str, cell: str, facts: Facts) -> None:
        """Take the value of one metric.

        Args:
            result: key of the result.
            name: NVIDIA's name, or the label where that is not known.
            unit: unit as printed.
            cell: value as printed.
            facts: filled with the value, where it is wanted.
        """
        if not name:
            return
        code = self._names[name]
        if (result, code) in self._seen:
            # The details page shows some metrics in two sections.
            return
        whole, listed = parts(cell)
        if not self._style and any(map(unlike, (whole, *listed))):
            self.two_ways += 1
            self.refuse("number may be read in two ways", f"{name} = {cell}")
            return
        self._seen.add((result, code))
        base, power = self._base(unit)
        each = [number(part, self._style or ".") for part in listed]
        value, length = number(whole, self._style or "."), -1
        if each and all(one is not None for one in each) and (value is not None or not whole):
            scaled = [float(one.scaleb(power)) for one in each if one is not None]
            self._instances.append(np.array(scaled))
            length, cell = len(scaled), whole
        elif listed:
            # Instances that are texts; the table holds none.
            value = None
        self._put(result, code, base, length, self._numeric(value, power, cell))
        if name in self._wanted and name not in facts:
            fact = self._fact(value, power, cell)
            if fact is not None:
                facts[name] = fact

    def _base(self, unit: str) -> tuple[int, int]:
        known = self._bases.get(unit)
        if known is None:
            base, power = base_unit(unit)
            known = self._bases[unit] = (self._units[base], power)
        return known

    @staticmethod
    def _numeric(
        value: Decimal | None, power: int, cell: str
    ) -> tuple[float | None, int | None, str | None]:
        """Number, exact integer and text of a cell; at most one of number and text."""
        if value is None:
            text = cell.strip()
            return None, None, text if text and ";" not in text else None
        if abs(value.adjusted()) + abs(power) > _EXPONENT:
            return None, None, cell.strip()
        scaled = value.scaleb(power)
        # A scaled or rounded number is none that was counted.
        counted = power == 0 and int(str(value.as_tuple().exponent)) >= 0
        exact = int(scaled) if counted and 0 <= scaled < _UINT64 else None
        return float(scaled), exact, None

    def _fact(self, value: Decimal | None, power: int, cell: str) -> float | int | str | None:
        real, exact, text = self._numeric(value, power, cell)
        if exact is not None:
            return exact
        if real is not None and value is not None:
            scaled = value.scaleb(power)
            return int(scaled) if scaled == scaled.to_integral_value() else real
        return text

    def _put(
        self,
        result: int,
        name: int,
        unit: int,
        length: int,
        value: tuple[float | None, int | None, str | None],
    ) -> None:
        real, exact, text = value
        codes = self._codes
        codes["result"].append(result)
        codes["name"].append(name)
        codes["unit"].append(unit)
        codes["text"].append(-1 if text is None else self._texts[text])
        codes["length"].append(length)
        self._values.append(float("nan") if real is None else real)
        self._integers.append(0 if exact is None else exact)
        self._exact.append(exact is not None)

    def table(self) -> pa.Table:
        """The table `metrics`."""
        codes = {name: np.array(code, dtype=np.int32) for name, code in self._codes.items()}
        values = np.array(self._values, dtype=np.float64)
        exact = np.frombuffer(bytes(self._exact), dtype=np.bool_)
        return make_table(
            "metrics",
            len(values),
            {
                "result": codes["result"],
                "name": dictionary(codes["name"], list(self._names)),
                "value": numbers(values, pa.float64(), np.isfinite(values)),
                "integer": numbers(np.array(self._integers, np.uint64), pa.uint64(), exact),
                "text": dictionary(
                    np.maximum(codes["text"], 0), list(self._texts), codes["text"] >= 0
                ),
                "unit": dictionary(codes["unit"], list(self._units)),
                "instances": list_column(codes["length"], self._instances),
            },
        )
