# SPDX-License-Identifier: Apache-2.0
"""Columns of one table of an export, narrow as they were stored."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Frame", "Integers"]

_SPAN = 1 << 20
"""Widest span of values that are marked in a table instead of sorted."""

Integers = npt.NDArray[np.signedinteger[Any]]


@dataclass(slots=True)
class Frame:
    """Columns of one table, of equal length.

    A column that the export does not have is absent from `values`. `valid` holds only columns that
    have nulls. Columns of reals stand in `reals`. Arrays are as narrow as their values allow, may
    be one value repeated, and are not written to.
    """

    rows: int
    values: dict[str, Integers] = field(default_factory=dict)
    valid: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    reals: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def get(self, name: str) -> npt.NDArray[np.int64]:
        """Values of a column in 64 bits; zeros where the export does not have it."""
        found = self.values.get(name)
        if found is None:
            return np.broadcast_to(np.int64(0), self.rows)
        if found.strides == (0,) and self.rows:
            return np.broadcast_to(np.int64(found[0]), self.rows)
        return found.astype(np.int64, copy=False)

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """True where a column has a value."""
        if name not in self.values and name not in self.reals:
            return np.broadcast_to(np.bool_(False), self.rows)  # noqa: FBT003 - a value
        found = self.valid.get(name)
        return np.broadcast_to(np.bool_(True), self.rows) if found is None else found  # noqa: FBT003 - a value

    def distinct(self, name: str) -> npt.NDArray[np.int64]:
        """The distinct values of a column, in order; what stands where it is null is among them."""
        values = self.values.get(name)
        if values is None or not self.rows or values.strides == (0,):
            return self.get(name)[:1]
        low, high = int(values.min()), int(values.max())
        if high - low >= _SPAN:
            return np.unique(values).astype(np.int64)
        present = np.zeros(high - low + 1, dtype=np.bool_)
        present[values.astype(np.int64, copy=False) - low] = True
        return np.flatnonzero(present) + low

    def take(self, rows: npt.NDArray[Any]) -> "Frame":
        """The rows of a mask or an index."""
        kept = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)

        def picked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if array.strides == (0,) and len(array):
                return np.broadcast_to(array[0], kept)
            some: npt.NDArray[Any] = array[rows]
            return some

        values = {name: picked(array) for name, array in self.values.items()}
        valid = {name: picked(array) for name, array in self.valid.items()}
        reals = {name: picked(array) for name, array in self.reals.items()}
        return Frame(kept, values, valid, self.words, reals)
