# SPDX-License-Identifier: Apache-2.0
"""Work of one graph launch: the activities of equal (process, correlation id)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Launches", "group_launches"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches in the order of their first activity.

    Activities come as stretches of neighbouring rows that belong to one launch; most launches are
    one stretch, and there are far fewer stretches than activities.

    Attributes:
        of_row: launch of each activity, -1 for work in no graph.
        first: first row of each launch.
        heads: first row of each stretch.
        stretch: launch of each stretch, -1 for work in no graph.
    """

    of_row: npt.NDArray[np.int32]
    first: Ints
    heads: Ints
    stretch: Ints

    def highest(self, values: npt.NDArray[np.signedinteger]) -> Ints:
        """Highest value of each launch."""
        return self._reduced(np.maximum, values)

    def lowest(self, values: npt.NDArray[np.signedinteger]) -> Ints:
        """Lowest value of each launch."""
        return self._reduced(np.minimum, values)

    def _reduced(self, how: np.ufunc, values: npt.NDArray[np.signedinteger]) -> Ints:
        found = values[self.first].astype(np.int64)
        if values.strides == (0,) or not len(found):
            return found
        part = how.reduceat(values, self.heads).astype(np.int64)
        mine = self.stretch >= 0
        how.at(found, self.stretch[mine], part[mine])
        return found


def group_launches(
    process: npt.NDArray[np.signedinteger],
    correlation: npt.NDArray[np.signedinteger],
    alone: Flags,
    inside: Flags,
) -> Launches:
    """Group the work of graphs by launch.

    Args:
        process: process key of each activity.
        correlation: correlation id of each.
        alone: whether it is a launch of its own, as an opaque replay is.
        inside: whether it is work of a graph at all.
    """
    rows = len(process)
    nothing = np.zeros(0, dtype=np.int64)
    if not rows or not inside.any():
        heads = np.zeros(min(rows, 1), dtype=np.int64)
        return Launches(np.full(rows, -1, dtype=np.int32), nothing, heads, heads - 1)
    new = np.ones(rows, dtype=np.bool_)
    new[1:] = (
        (process[1:] != process[:-1])
        | (correlation[1:] != correlation[:-1])
        | (inside[1:] != inside[:-1])
        | alone[1:]
        | alone[:-1]
    )
    heads = np.flatnonzero(new)
    stretch = np.full(len(heads), -1, dtype=np.int64)
    mine = np.flatnonzero(inside[heads])
    at = heads[mine]
    own = np.where(alone[at], at + 1, 0)
    columns = (own, correlation[at].astype(np.int64), process[at].astype(np.int64))
    order = np.lexsort(columns)
    changed = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        changed[1:] |= column[order][1:] != column[order][:-1]
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(changed)
    # The sort is stable, so that the first of a group is its first row.
    starts = order[np.r_[True, changed[1:]]]
    rank = np.empty(len(starts), dtype=np.int64)
    by_row = np.argsort(at[starts], kind="stable")
    rank[by_row] = np.arange(len(starts))
    stretch[mine] = rank[group]
    sizes = np.diff(np.r_[heads, rows])
    of_row = np.repeat(stretch.astype(np.int32), sizes)
    return Launches(of_row, at[starts][by_row], heads, stretch)
