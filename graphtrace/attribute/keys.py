# SPDX-License-Identifier: Apache-2.0
"""Integer keys for joins and sums over rows, without a Python loop over rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

__all__ = [
    "Bools",
    "Codes",
    "Ints",
    "Lanes",
    "Lookup",
    "join_keys",
    "order_of",
    "pack",
    "renumbered",
    "rows_of",
    "sum_by",
    "where_valid",
]

Ints = npt.NDArray[np.signedinteger[Any]]
"""Integers as wide as their column: keys have 32 bits, times and ids 64."""
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

_LIMIT: Final = 1 << 62
_EXACT: Final = 1 << 52
"""Sums of integers below 2^53 are exact in floating point; half of that leaves room."""


def pack(*columns: npt.NDArray[np.integer]) -> Ints:
    """One integer a row; two are equal where all columns are, and they sort as the columns do."""
    key: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    if not len(key):
        return key
    width = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        span = high - low + 1
        if span == 1:
            continue
        values: Ints = column.astype(np.int64, copy=False)
        if span >= _LIMIT:
            words, values = np.unique(values, return_inverse=True)
            low, span = 0, len(words)
        if width * span >= _LIMIT:
            words, key = np.unique(key, return_inverse=True)
            width = len(words)
        if width * span >= _LIMIT:
            words, values = np.unique(values, return_inverse=True)
            low, span = 0, len(words)
        key = key * span + (values - low) if width > 1 else values - low
        width *= span
    return key


def rows_of(mask: Bools) -> Ints | slice:
    """The rows where a mask is true, to index arrays with; a slice, which copies none, for all."""
    return slice(None) if bool(mask.all()) else np.flatnonzero(mask)


def order_of(keys: npt.NDArray[np.integer]) -> Ints:
    """Rows by key; rows of one key stay in order. Keys that are in order cost one look."""
    if bool((keys[1:] >= keys[:-1]).all()):
        return np.arange(len(keys))
    return np.argsort(keys, kind="stable")


def join_keys(
    left: Sequence[npt.NDArray[np.integer]], right: Sequence[npt.NDArray[np.integer]]
) -> tuple[Ints, Ints]:
    """Keys of the rows of two tables that are equal where all their columns are."""
    both = [
        np.concatenate([a.astype(np.int64), b.astype(np.int64)])
        for a, b in zip(left, right, strict=True)
    ]
    key = pack(*both)
    return key[: len(left[0])], key[len(left[0]) :]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Finds rows by key. Rows of one key are taken in the order in which they were given.

    Where keys lie close together `rows` is a table from key - `low` on; else `keys` are searched.
    """

    keys: Ints
    rows: Ints
    low: int
    dense: bool

    @classmethod
    def of(cls, keys: Ints) -> Self:
        """Index these keys, one a row."""
        if not len(keys):
            return cls(keys, keys, 0, dense=False)
        low, span = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
        if _close(span, len(keys)):
            table: Ints = np.full(span, -1, np.int32 if len(keys) < 1 << 31 else np.int64)
            # Of several assignments to one place the last one stays: the first row.
            table[keys[::-1] - low] = np.arange(len(keys) - 1, -1, -1)
            return cls(keys, table, low, dense=True)
        rows = np.argsort(keys, kind="stable")
        return cls(keys[rows], rows, low, dense=False)

    def first(self, wanted: Ints) -> Ints:
        """First row of each wanted key, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(wanted), -1, dtype=np.int64)
        if self.dense:
            last = self.low + len(self.rows) - 1
            found = self.rows[np.clip(wanted, self.low, last) - self.low]
            inside = (wanted >= self.low) & (wanted <= last)
            return found if inside.all() else np.where(inside, found, -1)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.rows[at], -1)


def _close(span: int, count: int) -> bool:
    """Whether a table over the span of keys costs no more than a few columns of them."""
    return span <= 2 * count + 1024


def sum_by(key: Ints, *values: Ints | Bools) -> tuple[Ints, tuple[Ints, ...]]:
    """First row of each distinct key, in order of the key, and the exact integer sums over it."""
    if not len(key):
        return key, tuple(np.zeros(0, dtype=np.int64) for _ in values)
    low, span = int(key.min()), int(key.max()) - int(key.min()) + 1
    if _close(span, len(key)) and all(_adds_exactly(column) for column in values):
        place = key - low
        first = np.full(span, -1, dtype=np.int64)
        first[place[::-1]] = np.arange(len(key) - 1, -1, -1)
        used = np.flatnonzero(first >= 0)
        sums = (np.bincount(place, weights=column, minlength=span) for column in values)
        return first[used], tuple(total[used].astype(np.int64) for total in sums)
    order = order_of(key)
    ordered = key[order]
    heads = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return order[heads], tuple(np.add.reduceat(v[order].astype(np.int64), heads) for v in values)


def _adds_exactly(values: Ints | Bools) -> bool:
    """Whether no sum of them leaves what floating point, in which `np.bincount` adds, holds."""
    if not len(values) or values.dtype == np.bool_:
        return True
    widest = max(abs(int(values.min())), abs(int(values.max())))
    return widest * len(values) < _EXACT or (
        int(values.min()) >= 0 and widest < _EXACT and float(values.sum(dtype=np.float64)) < _EXACT
    )


def where_valid(values: npt.NDArray[Any], valid: Bools) -> npt.NDArray[Any]:
    """The values, -1 where they are null; not to be written to."""
    if bool(valid[:1].all()) and bool(valid.all()):
        return values
    if valid.strides == (0,):
        return np.broadcast_to(values.dtype.type(-1), len(values))
    return np.where(valid, values, values.dtype.type(-1))


def renumbered(keys: Ints, final: Ints) -> Ints:
    """The final key of each key; -1 stays."""
    if not len(final):
        return keys
    # -1 reaches the last entry, which stands for itself.
    return np.append(final, -1).astype(keys.dtype)[keys]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lays the times of many lanes (threads, devices) one after the other on a single axis.

    Sorting, running maxima and searches then work for all lanes at once, and never reach from one
    lane into another: a lane is wider than its times by a margin on both sides.
    """

    low: Ints
    high: Ints
    base: Ints

    @classmethod
    def of(cls, lane: Ints, begin: Ints, end: Ints, lanes: int) -> Self:
        """Lanes that hold these intervals.

        Args:
            lane: lane of each interval, 0 to `lanes` - 1.
            begin: begin of each, ns.
            end: end of each, ns; not before `begin`.
            lanes: how many lanes there are.
        """
        low = np.full(lanes, np.iinfo(np.int64).max, dtype=np.int64)
        high = np.full(lanes, np.iinfo(np.int64).min, dtype=np.int64)
        if lanes == 1 and len(lane):
            low[0], high[0] = begin.min(), end.max()
        elif len(lane):
            order = order_of(lane)
            heads = np.flatnonzero(np.r_[True, lane[order][1:] != lane[order][:-1]])
            present = lane[order][heads]
            low[present] = np.minimum.reduceat(begin[order], heads)
            high[present] = np.maximum.reduceat(end[order], heads)
        empty = high < low
        low[empty] = high[empty] = 0
        width = high - low + 5
        return cls(low, high, np.cumsum(width) - width)

    def place(self, lane: Ints, time: Ints) -> Ints:
        """Position of a time of a lane; times outside of the lane stay in its margin."""
        low = self.low[lane]
        return self.base[lane] + 2 + np.clip(time, low - 1, self.high[lane] + 1) - low

    def place_inside(self, lane: Ints, time: Ints) -> Ints:
        """Position of a time that is known to lie in its lane; not to be mixed with `place`."""
        if len(self.low) == 1:
            return time  # There is no other lane to reach into.
        return (self.base - self.low)[lane] + time
