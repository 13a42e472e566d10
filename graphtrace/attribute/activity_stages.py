# SPDX-License-Identifier: Apache-2.0
"""The stage of every activity, how it was found, or why it was not."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.attribute import reasons
from graphtrace.attribute.keys import Bools, Codes, Ints, pack
from graphtrace.attribute.launches import Calls
from graphtrace.attribute.open_stages import Open
from graphtrace.attribute.origin import Roots
from graphtrace.attribute.work import Work
from graphtrace.model.arrays import codes_of, dictionary, numbers, words_of
from graphtrace.model.vocabulary import Method

__all__ = ["METHODS", "Eager", "Owned", "own_stages", "write_back"]

Bytes = npt.NDArray[np.int8]

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
_FEW: Final = 1 << 16
_BLOCK: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class Owned:
    """What is known of each activity; -1 is null.

    Attributes:
        method: code into `METHODS`; -1 for a mark of our own.
        reason: code into `reasons.REASONS` where there is no stage.
        eager: the rows of work outside of graphs.
        batch: batch that launched each of these, -1 for none.
        root: row of the outermost range open at the launch of each of these, -1 for none.
    """

    stage: Codes
    method: Bytes
    reason: Bytes
    eager: Ints
    batch: Ints
    root: Ints

    def of_eager(self, values: Ints) -> Ints:
        """Values of the work outside of graphs as those of all work, -1 for the rest."""
        spread = np.full(len(self.stage), -1, dtype=np.int64)
        spread[self.eager] = values
        return spread


@dataclass(frozen=True, slots=True)
class Eager:
    """Work that is in no graph: an entry a row.

    Attributes:
        rows: its rows.
        calls: its launching calls.
        opened: what was open at each launch.
        batch: batch that each launch lies in, -1 for none.
    """

    rows: Ints
    calls: Calls
    opened: Open
    batch: Ints


def own_stages(
    activities: pa.Table, work: Work, replay: Ints, roots: Roots, created_in: Open, eager: Eager
) -> Owned:
    """Decide the stage of each activity.

    Args:
        activities: the table; a stage that a reader has set stays, with its method.
        work: its columns.
        replay: replay of each, -1 for none.
        roots: creation of the node of each activity.
        created_in: what was open at the creation that each answer of `roots` names.
        eager: the work outside of graphs.
    """
    stage, reason = work.stage.astype(np.int32), np.full(work.count, -1, dtype=np.int8)
    method = _given_methods(activities)
    open_ = (work.stage < 0) & ~work.mark
    method[open_] = _NONE
    method[work.mark & (work.stage < 0)] = -1

    why = np.where(created_in.refused, reasons.RANGES_CROSS, reasons.NO_RANGE_AT_CAPTURE)
    why = np.where(roots.event < 0, roots.reason, np.where(created_in.stage < 0, why, -1))
    found = np.where(why < 0, created_in.stage, -1)
    # Answer -1, of work without a node, reaches the last entry and is left out.
    mine, answer = open_ & work.has_node, roots.answer
    np.copyto(stage, found.astype(np.int32)[answer], where=mine)
    np.copyto(reason, why.astype(np.int8)[answer], where=mine)
    how = np.where(why < 0, _ORIGIN, _NONE).astype(np.int8)
    np.copyto(method, how[answer], where=mine)
    twice = _repeated(roots, work, replay)
    if len(twice):
        twice = twice[open_[twice]]
        stage[twice], reason[twice], method[twice] = -1, reasons.TWICE_IN_REPLAY, _NONE

    unnamed = np.flatnonzero(open_ & work.in_graph & ~work.has_node)
    reason[unnamed] = np.where(work.opaque[unnamed], reasons.OPAQUE, reasons.NO_NODE_ID)
    batch, root = _own_eager(stage, method, reason, open_, eager)
    return Owned(stage, method, reason, eager.rows, batch, root)


def _own_eager(
    stage: Codes, method: Bytes, reason: Bytes, open_: Bools, eager: Eager
) -> tuple[Ints, Ints]:
    """Set what is known of eager work; returns its batches and outermost ranges."""
    opened, calls, rows = eager.opened, eager.calls, eager.rows
    why = np.where(opened.refused, reasons.RANGES_CROSS, reasons.NO_RANGE_AT_LAUNCH)
    why = np.where(opened.stage < 0, why, -1)
    why = np.where(calls.found, why, reasons.LAUNCH_MISSING)
    why = np.where(calls.twice, reasons.LAUNCH_TWICE, why)
    mine = open_[rows]
    here, why = rows[mine], why[mine]
    stage[here] = np.where(why < 0, opened.stage[mine], -1)
    reason[here] = why
    method[here] = np.where(why < 0, np.int8(_EAGER), np.int8(_NONE))
    batch = np.where(calls.found, eager.batch, -1)
    return batch, np.where(calls.found & ~opened.refused, opened.root, -1)


def _given_methods(activities: pa.Table) -> Bytes:
    codes, words = codes_of(activities.column("method"))
    known: dict[str, int] = {word: code for code, word in enumerate(METHODS)}
    table = np.asarray([known.get(word, _NONE) for word in words] + [-1], dtype=np.int8)
    if codes.strides == (0,) and len(codes):
        return np.full(len(codes), table[codes[0]], dtype=np.int8)
    given: Bytes = table[codes]
    return given


def _repeated(roots: Roots, work: Work, replay: Ints) -> Ints:
    """Rows of nodes that ran more than once in one replay: the id then stands for several."""
    inside = work.has_node & (replay >= 0)
    count = int(np.count_nonzero(inside))
    if not count:
        return np.zeros(0, dtype=np.int64)
    cells = (int(replay.max()) + 1) * roots.ids
    if cells <= _CELLS * count + _FEW:
        ran = np.zeros(cells, dtype=np.bool_)
        for at in range(0, len(replay), _BLOCK):
            here = slice(at, at + _BLOCK)
            key = replay[here].astype(np.int64) * roots.ids + roots.number[here]
            ran[key[inside[here]]] = True
        if int(np.count_nonzero(ran)) == count:
            return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(inside)
    key = pack(replay[rows], roots.number[rows])
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(key[order][1:] == key[order][:-1])
    again: Ints = rows[np.unique(order[np.r_[same, same + 1]])]
    return again


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
    why = owned.reason
    if len(words):
        given = np.where(codes >= 0, codes + len(reasons.REASONS), -1)
        why = np.where(why >= 0, why, given)
    new = {
        "stage": numbers(stage, pa.int32(), stage >= 0),
        "replay": numbers(replay, pa.int32(), replay >= 0),
        "graph": numbers(graph, pa.int32(), graph >= 0),
        "node": numbers(node, pa.int32(), node >= 0),
        "method": dictionary(owned.method, METHODS, owned.method >= 0),
        "reason": words_of(why, [*reasons.REASONS, *words], (why >= 0) & (stage < 0)),
    }
    for name, column in new.items():
        at = activities.schema.get_field_index(name)
        activities = activities.set_column(at, activities.schema.field(at), column)
    return activities
