# SPDX-License-Identifier: Apache-2.0
"""Integer keys for joins and sums over rows, without a Python loop over rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

__all__ = [
    "Bools",
    "Ints",
    "Lanes",
    "Lookup",
    "join_keys",
    "pack",
    "renumbered",
    "sum_by",
    "where_valid",
]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LIMIT: Final = 1 << 62


def pack(*columns: npt.NDArray[np.integer]) -> Ints:
    """One integer a row; two are equal where all columns are, and they sort as the columns do."""
    key: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    if not len(key):
        return key
    width = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        values: Ints = column.astype(np.int64)
        span = high - low + 1
        if span >= _LIMIT:
            words, values = np.unique(values, return_inverse=True)
            low, span = 0, len(words)
        if width * span >= _LIMIT:
            words, key = np.unique(key, return_inverse=True)
            width = len(words)
        if width * span >= _LIMIT:
            words, values = np.unique(values, return_inverse=True)
            low, span = 0, len(words)
        key = key * span + (values - low)
        width *= span
    return key


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
    """Finds rows by key. Rows of one key are taken in the order in which they were given."""

    keys: Ints
    rows: Ints

    @classmethod
    def of(cls, keys: Ints) -> Self:
        """Index these keys, one a row."""
        rows = np.argsort(keys, kind="stable")
        return cls(keys[rows], rows)

    def first(self, wanted: Ints) -> Ints:
        """First row of each wanted key, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.rows[at], -1)


def sum_by(key: Ints, *values: Ints) -> tuple[Ints, tuple[Ints, ...]]:
    """First row of each distinct key, in order of the key, and the exact integer sums over it.

    `np.bincount` sums in floating point, which is not exact above 2^53 ns (104 days).
    """
    if not len(key):
        return key, tuple(np.zeros(0, dtype=np.int64) for _ in values)
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    heads = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return order[heads], tuple(np.add.reduceat(v[order].astype(np.int64), heads) for v in values)


def where_valid(values: npt.NDArray[np.integer], valid: Bools) -> Ints:
    """The values as int64, -1 where they are null."""
    return np.where(valid, values, -1).astype(np.int64)


def renumbered(keys: Ints, final: Ints) -> Ints:
    """The final key of each key; -1 stays."""
    return np.where(keys >= 0, final[np.maximum(keys, 0)], -1) if len(final) else keys


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
        if len(lane):
            order = np.argsort(lane, kind="stable")
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
