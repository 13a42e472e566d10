# SPDX-License-Identifier: Apache-2.0
"""Host calls by (process, correlation id), and the batch or range that a call lies in."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Bools, Ints, Lookup, join_keys, pack, where_valid
from graphtrace.attribute.nvtx_stack import Nest
from graphtrace.model.arrays import as_numpy, valid_of

__all__ = ["Calls", "Steps"]


@dataclass(frozen=True, slots=True)
class Calls:
    """The launching call of each query.

    Attributes:
        found: whether there is one.
        twice: whether calls of several threads carry the correlation id, so that none is taken.
        thread: its thread; arbitrary where not `found`, as are the times.
        begin: ns.
        end: ns.
    """

    found: Bools
    twice: Bools
    thread: Ints
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, api: pa.Table, process: Ints, correlation: Ints, known: Bools) -> Self:
        """Find the calls.

        Args:
            api: table `api_calls`. Of several calls of one thread with one correlation id (a
                runtime call and the driver call in it) the first one is taken.
            process: process key of each query.
            correlation: correlation id of each.
            known: whether it has a correlation id.
        """
        usable = np.flatnonzero(valid_of(api.column("correlation")))
        begin = as_numpy(api.column("begin_ns"))
        thread = as_numpy(api.column("thread"))
        usable = usable[np.lexsort((thread[usable], begin[usable]))]
        keys, wanted = join_keys(
            [as_numpy(api.column("process"))[usable], as_numpy(api.column("correlation"))[usable]],
            [process, correlation],
        )
        lookup = Lookup.of(keys)
        at = np.where(known, lookup.first(wanted), -1)
        unclear = _several_threads(keys, thread[usable])
        twice = (at >= 0) & unclear[np.maximum(at, 0)] if len(usable) else at >= 0
        row = usable[np.maximum(at, 0)] if len(usable) else np.maximum(at, 0)
        found = (at >= 0) & ~twice

        def take(values: Ints) -> Ints:
            return values[row] if len(usable) else np.zeros(len(at), dtype=np.int64)

        return cls(found, twice, take(thread), take(begin), take(as_numpy(api.column("end_ns"))))


def _several_threads(keys: Ints, thread: Ints) -> Bools:
    """Whether each row's key occurs with more than one thread."""
    if not len(keys):
        return np.zeros(0, dtype=np.bool_)
    order = np.lexsort((thread, keys))
    key, one = keys[order], thread[order]
    same = key[1:] == key[:-1]
    bad = np.unique(key[1:][same & (one[1:] != one[:-1])])
    return np.isin(keys, bad) if len(bad) else np.zeros(len(keys), dtype=np.bool_)


class Steps:
    """The batches, by the thread that ran them. A batch without a thread is its process's."""

    def __init__(self, batches: pa.Table) -> None:
        thread = batches.column("thread")
        self._key = as_numpy(batches.column("batch")).astype(np.int64)
        self._process = as_numpy(batches.column("process")).astype(np.int64)
        self._thread = where_valid(as_numpy(thread), valid_of(thread))
        begin, end = as_numpy(batches.column("begin_ns")), as_numpy(batches.column("end_ns"))
        lanes, lane = np.unique(pack(self._process, self._thread), return_inverse=True)
        self._lane = lane.astype(np.int64)
        order = np.empty(len(self._key), dtype=np.int64)
        order[np.lexsort((self._key, -end, begin))] = np.arange(len(order))
        self._nest = Nest.of(self._lane, begin, end, order, len(lanes))

    def at(self, process: Ints, thread: Ints, time: Ints) -> Ints:
        """Key of the innermost batch of each thread at each time, -1 where none or several are."""
        nobody = np.full(len(process), -1, dtype=np.int64)
        batch = nobody.copy()
        for who in (thread, nobody):
            known, wanted = join_keys([self._process, self._thread], [process, who])
            row = Lookup.of(known).first(wanted)
            lane = np.where(row >= 0, self._lane[np.maximum(row, 0)], -1) if len(known) else row
            inner, _ = self._nest.query(lane, time)
            found = (batch < 0) & (inner >= 0)
            batch[found] = self._key[inner[found]]
        return batch
