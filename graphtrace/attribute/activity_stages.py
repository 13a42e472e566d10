# SPDX-License-Identifier: Apache-2.0
"""The stage of every activity, how it was found, or why it was not."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.attribute import reasons
from graphtrace.attribute.keys import Bools, Ints, codes_in, pack
from graphtrace.attribute.launches import Calls, Steps
from graphtrace.attribute.open_stages import Open
from graphtrace.attribute.origin import Roots
from graphtrace.attribute.work import Work
from graphtrace.model.arrays import codes_of, dictionary, numbers
from graphtrace.model.vocabulary import Method

__all__ = ["METHODS", "Owned", "own_stages", "write_back"]

METHODS: Final[tuple[Method, ...]] = (
    "none",
    "origin",
    "eager",
    "tools-id",
    "cupti-id",
    "capture-order",
)
_NONE, _ORIGIN, _EAGER = 0, 1, 2
_CELLS: Final = 4
"""Cells of a table of nodes by replays that are worth a row; a sparser one is sorted instead."""


@dataclass(frozen=True, slots=True)
class Owned:
    """What is known of each activity; -1 is null.

    Attributes:
        method: code into `METHODS`; -1 for a mark of our own.
        reason: code into `reasons.REASONS` where there is no stage.
        batch: batch that launched it, for work outside replays.
        root: row of the outermost range open at its launch, for work outside replays.
    """

    stage: Ints
    method: Ints
    reason: Ints
    batch: Ints
    root: Ints


def own_stages(
    activities: pa.Table,
    work: Work,
    replay: Ints,
    roots: Roots,
    created_in: Open,
    calls: Calls,
    launched_in: Open,
    steps: Steps,
) -> Owned:
    """Decide the stage of each activity.

    Args:
        activities: the table; a stage that a reader has set stays, with its method.
        work: its columns.
        replay: replay of each, -1 for none.
        roots: creation of each activity that has a node id (rows of `work.has_node`).
        created_in: what was open at each of these creations.
        calls: launching call of each activity.
        launched_in: what was open at each launch.
        steps: the recorded batches.
    """
    count = work.count
    stage, reason = work.stage.copy(), np.full(count, -1, dtype=np.int64)
    method = _given_methods(activities)
    open_ = (work.stage < 0) & ~work.mark
    method[open_] = _NONE
    method[work.mark & (work.stage < 0)] = -1

    node = np.flatnonzero(work.has_node)
    mine = open_[node]
    why = np.where(created_in.refused, reasons.RANGES_CROSS, reasons.NO_RANGE_AT_CAPTURE)
    why = np.where(roots.event < 0, roots.reason, np.where(created_in.stage < 0, why, -1))
    why[_repeated(work, replay)[node]] = reasons.TWICE_IN_REPLAY
    found = np.where(why < 0, created_in.stage, -1)
    _set(stage, method, reason, node[mine], found[mine], why[mine], _ORIGIN)

    unnamed = open_ & work.in_graph & ~work.has_node
    reason[unnamed] = np.where(work.opaque[unnamed], reasons.OPAQUE, reasons.NO_NODE_ID)

    eager = np.flatnonzero(open_ & ~work.in_graph)
    why = np.where(launched_in.refused, reasons.RANGES_CROSS, reasons.NO_RANGE_AT_LAUNCH)
    why = np.where(launched_in.stage < 0, why, -1)
    why = np.where(calls.found, why, reasons.LAUNCH_MISSING)
    why = np.where(calls.twice, reasons.LAUNCH_TWICE, why)[eager]
    _set(stage, method, reason, eager, np.where(why < 0, launched_in.stage[eager], -1), why, _EAGER)

    outside = calls.found & ~work.in_graph
    batch = np.full(count, -1, dtype=np.int64)
    rows = np.flatnonzero(outside)
    batch[rows] = steps.at(work.process[rows], calls.thread[rows], calls.begin[rows])
    root = np.where(outside & ~launched_in.refused, launched_in.root, -1)
    return Owned(stage, method, reason, batch, root)


def _set(
    stage: Ints, method: Ints, reason: Ints, rows: Ints, found: Ints, why: Ints, how: int
) -> None:
    stage[rows] = found
    reason[rows] = why
    method[rows] = np.where(why < 0, how, _NONE)


def _given_methods(activities: pa.Table) -> Ints:
    codes, words = codes_of(activities.column("method"))
    known: dict[str, int] = {word: code for code, word in enumerate(METHODS)}
    table = np.asarray([known.get(word, _NONE) for word in words] + [-1], dtype=np.int64)
    return table[codes]


def _repeated(work: Work, replay: Ints) -> Bools:
    """Whether a node ran more than once in one replay: its id then stands for several nodes."""
    result = np.zeros(work.count, dtype=np.bool_)
    rows = np.flatnonzero(work.has_node & (replay >= 0))
    if not len(rows):
        return result
    _, node = codes_in(work.node_id[rows])
    key = pack(replay[rows], node)
    low, span = int(key.min()), int(key.max()) - int(key.min()) + 1
    if span <= _CELLS * len(key):
        times = np.bincount(key - low, minlength=span)
        if int(times.max()) > 1:
            result[rows] = times[key - low] > 1
        return result
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    result[rows[order[1:][same]]] = True
    result[rows[order[:-1][same]]] = True
    return result


def write_back(
    activities: pa.Table, owned: Owned, stage: Ints, replay: Ints, graph: Ints, node: Ints
) -> pa.Table:
    """The table with stage, method, reason, replay, graph and node filled in.

    Args:
        activities: the table.
        owned: method and reason of each.
        stage: final stage key of each, -1 for none; the others likewise.
        replay: replay of each.
        graph: graph of each.
        node: node of the captured graph of each.
    """
    codes, words = codes_of(activities.column("reason"))
    fresh = owned.reason >= 0
    new = {
        "stage": numbers(stage, pa.int32(), stage >= 0),
        "replay": numbers(replay, pa.int32(), replay >= 0),
        "graph": numbers(graph, pa.int32(), graph >= 0),
        "node": numbers(node, pa.int32(), node >= 0),
        "method": dictionary(owned.method, METHODS, owned.method >= 0),
        "reason": dictionary(
            np.where(fresh, owned.reason, codes + len(reasons.REASONS)),
            [*reasons.REASONS, *words],
            (fresh | (codes >= 0)) & (stage < 0),
        ),
    }
    for name, column in new.items():
        at = activities.schema.get_field_index(name)
        activities = activities.set_column(at, activities.schema.field(at), column)
    return activities
