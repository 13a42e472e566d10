# SPDX-License-Identifier: Apache-2.0
"""The metrics of a report as columns."""

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.ncu_wire import Damage
from graphtrace.model.arrays import dictionary, make_table, numbers

__all__ = ["Facts", "MetricColumns", "Words", "list_column"]

# Kinds of a value, as `ncu_report.IMetric.ValueKind_*` numbers them.
_STRING: Final = 2
_REALS: Final = frozenset({3, 4})
_WHOLES: Final = frozenset({5, 6})

Facts = dict[str, float | int | str]
"""Values of one result by metric name, for what becomes a column of its own."""


class Words(dict[str, int]):
    """Codes of words in order of appearance."""

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self)
        return code


class MetricColumns:
    """Gathers the metrics of one result after another, then gives the table `metrics`.

    Args:
        wanted: metrics whose values `add` also returns.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(wanted)
        self._names = Words()
        self._units = Words()
        self._texts = Words()
        self._unit_of: dict[str, int] = {}
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []
        self._instances: list[npt.NDArray[np.float64]] = []

    def add(self, result: int, action: Any) -> Facts:
        """Take all metrics of one result.

        Args:
            result: key of the result.
            action: an `ncu_report.IAction`.

        Returns:
            Values of the wanted metrics that it has.

        Raises:
            Damage: a metric that the result names cannot be read.
        """
        facts: Facts = {}
        names = action.metric_names()
        rows = len(names)
        codes = np.zeros(rows, dtype=np.int32)
        units = np.zeros(rows, dtype=np.int32)
        texts = np.full(rows, -1, dtype=np.int32)
        values = np.full(rows, np.nan)
        wholes = np.zeros(rows, dtype=np.uint64)
        whole = np.zeros(rows, dtype=np.bool_)
        lengths = np.full(rows, -1, dtype=np.int32)
        for row, name in enumerate(names):
            metric = action.metric_by_name(name)
            if metric is None:
                raise Damage("names a metric that cannot be read")
            codes[row] = self._names[name]
            units[row] = self._unit(name, metric)
            value = _value(metric)
            if value is not None:
                if isinstance(value, str):
                    texts[row] = self._texts[value]
                else:
                    values[row] = value
                    if isinstance(value, int):
                        wholes[row] = value
                        whole[row] = True
                if name in self._wanted:
                    facts[name] = value
            count = metric.num_instances()
            if count:
                lengths[row] = self._take_instances(metric, count)
        keys = np.full(rows, result, dtype=np.int32)
        self._parts.append((keys, codes, units, texts, values, wholes, whole, lengths))
        return facts

    def _unit(self, name: str, metric: Any) -> int:
        # ncu_report derives a unit from the name; asking for each value is ten times as slow.
        code = self._unit_of.get(name)
        if code is None:
            code = self._unit_of[name] = self._units[metric.unit() or ""]
        return code

    def _take_instances(self, metric: Any, count: int) -> int:
        """Instances in order; -1 where they are texts, which the table does not hold."""
        if metric.kind(0) == _STRING:
            return -1
        as_double = metric.as_double
        taken = np.fromiter((as_double(i) for i in range(count)), dtype=np.float64, count=count)
        self._instances.append(taken)
        return count

    def table(self) -> pa.Table:
        """The table `metrics`."""
        if not self._parts:
            return make_table("metrics", 0, {})
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        keys, codes, units, texts, values, wholes, whole, lengths = columns
        return make_table(
            "metrics",
            len(keys),
            {
                "result": keys,
                "name": dictionary(codes, list(self._names)),
                "value": numbers(values, pa.float64(), np.isfinite(values)),
                "integer": numbers(wholes, pa.uint64(), whole),
                "text": dictionary(np.maximum(texts, 0), list(self._texts), texts >= 0),
                "unit": dictionary(units, list(self._units)),
                "instances": list_column(lengths, self._instances),
            },
        )


def _value(metric: Any) -> float | int | str | None:
    """The value, None where the metric has none: ncu_report would give 0 for it."""
    kind = metric.kind()
    if kind in _REALS:
        real = float(metric.as_double())
        return real if math.isfinite(real) and (real != 0 or metric.has_value()) else None
    if kind in _WHOLES:
        number = int(metric.as_uint64())
        return number if number or metric.has_value() else None
    if kind == _STRING:
        text: str | None = metric.as_string()
        return text
    return None


def list_column(lengths: npt.NDArray[np.int32], parts: list[npt.NDArray[np.float64]]) -> pa.Array:
    """A list column from lengths, -1 where a row has none, and the values of all lists."""
    valid = lengths >= 0
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    flat = np.concatenate(parts) if parts else np.zeros(0)
    nulls = len(lengths) - int(np.count_nonzero(valid))
    mask = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if nulls else None
    return pa.Array.from_buffers(
        pa.list_(pa.float64()),
        len(lengths),
        [mask, pa.py_buffer(offsets.tobytes())],
        nulls,
        children=[numbers(flat, pa.float64())],
    )
