# SPDX-License-Identifier: Apache-2.0
"""Device work as columns: what attribution and budget read of the table `activities`."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Bools, Ints, where_valid
from graphtrace.model.arrays import as_numpy, codes_of, valid_of

__all__ = ["Work", "ints", "is_word"]


def ints(table: pa.Table, column: str) -> Ints:
    """A numeric column, -1 where it is null; as wide as the schema says, not to be written to."""
    values = table.column(column)
    return where_valid(as_numpy(values), valid_of(values))


def is_word(table: pa.Table, column: str, *words: str) -> Bools:
    """Whether a text column holds one of these words."""
    codes, known = codes_of(table.column(column))
    # Null is code -1, which reaches the last entry.
    hits = np.asarray([*(word in words for word in known), False], dtype=np.bool_)
    if codes.strides == (0,) and len(codes):
        return np.broadcast_to(hits[codes[0]], len(codes))
    found: Bools = hits[codes]
    return found


@dataclass(frozen=True, slots=True)
class Work:
    """Columns of `activities`, in the table's own memory where it has no null; -1 is null.

    Attributes:
        node_id: the profiler's graph node id; arbitrary where there is none.
        has_node: whether it gave one.
        mark: a mark of our own, which belongs to no stage and is not counted.
        opaque: a whole replay without its nodes.
        kernel: a kernel or a collective, as `stage_times.kernels` counts them.
        in_graph: whether it is known to be part of a graph launch.
    """

    key: Ints
    process: Ints
    device: Ints
    stream: Ints
    begin: Ints
    end: Ints
    correlation: Ints
    has_correlation: Bools
    node_id: Ints
    has_node: Bools
    replay: Ints
    graph: Ints
    stage: Ints
    mark: Bools
    opaque: Bools
    kernel: Bools
    in_graph: Bools

    @classmethod
    def of(cls, activities: pa.Table) -> Self:
        """Read the columns."""
        has_node = valid_of(activities.column("node_native_id"))
        opaque = is_word(activities, "kind", "opaque_replay")
        replay = ints(activities, "replay")
        return cls(
            key=ints(activities, "activity"),
            process=ints(activities, "process"),
            device=ints(activities, "device"),
            stream=ints(activities, "stream"),
            begin=ints(activities, "begin_ns"),
            end=ints(activities, "end_ns"),
            correlation=ints(activities, "correlation"),
            has_correlation=valid_of(activities.column("correlation")),
            node_id=as_numpy(activities.column("node_native_id")),
            has_node=has_node,
            replay=replay,
            graph=ints(activities, "graph"),
            stage=ints(activities, "stage"),
            mark=is_word(activities, "kind", "mark"),
            opaque=opaque,
            kernel=is_word(activities, "kind", "kernel", "collective"),
            in_graph=has_node | opaque | (replay >= 0),
        )

    @property
    def count(self) -> int:
        """Number of activities."""
        return len(self.key)
