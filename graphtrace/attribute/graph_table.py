# SPDX-License-Identifier: Apache-2.0
"""Captured graphs, their nodes and their instantiations, as the node events tell.

The profiler's node id holds the id of its graph in the upper 32 bits and the node in the lower; on
instantiation the upper ones become the id of the exec (FIELD 0.4, CAPTURE 1d).
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Ints, Lookup, join_keys, pack, rows_of
from graphtrace.attribute.work import ints
from graphtrace.model.arrays import make_table, numbers, valid_of

__all__ = ["GraphRows", "complete_graphs", "execs_of", "one_value"]

_UPPER: Final = 32


@dataclass(frozen=True, slots=True)
class GraphRows:
    """Tables, and for each row of `graph_events` its node and graph (-1 unless a creation)."""

    graphs: pa.Table
    nodes: pa.Table
    node_of_event: Ints
    graph_of_event: Ints


def _append(table: pa.Table, name: str, rows: int, columns: dict[str, Any]) -> pa.Table:
    return pa.concat_tables([table, make_table(name, rows, columns)]) if rows else table


def _owners(
    table: pa.Table, name: str, process: Ints, native: Ints
) -> tuple[Ints, tuple[Ints, Ints, Ints]]:
    """Key of each (process, native id), and the rows (key, process, native id) that are missing."""
    rows = np.flatnonzero(valid_of(table.column("native_id")))
    keys = ints(table, name)
    known, wanted = join_keys(
        [ints(table, "process")[rows], ints(table, "native_id")[rows]], [process, native]
    )
    at = Lookup.of(known).first(wanted)
    found = np.where(at >= 0, keys[rows][np.maximum(at, 0)], -1) if len(rows) else at
    open_ = np.flatnonzero(found < 0)
    base = int(keys.max(initial=-1)) + 1
    _, first, inverse = np.unique(
        pack(process[open_], native[open_]), return_index=True, return_inverse=True
    )
    found[open_] = base + inverse
    fresh = open_[first]
    return found, (base + np.arange(len(fresh)), process[fresh], native[fresh])


def complete_graphs(graphs: pa.Table, nodes: pa.Table, events: pa.Table, stage: Ints) -> GraphRows:
    """Give every creation a row in `nodes`, and its graph one in `graphs`.

    Args:
        graphs: table, as read.
        nodes: table, as read.
        events: table `graph_events`.
        stage: for each event the stage that was open, -1 for none.
    """
    none = np.full(events.num_rows, -1, dtype=np.int64)
    made = np.flatnonzero(~valid_of(events.column("origin_native_id")))
    process, node = ints(events, "process")[made], ints(events, "node_native_id")[made]
    time = ints(events, "time_ns")[made]
    order = np.lexsort((ints(events, "thread")[made], node, time, process))
    made, process, node, time = made[order], process[order], node[order], time[order]
    graph, (new, owner, native) = _owners(graphs, "graph", process, node >> _UPPER)
    own = [ints(nodes, name) for name in ("graph", "native_id", "created_ns")]
    known, wanted = join_keys(own, [graph, node, time])
    row = Lookup.of(known).first(wanted)
    fresh_nodes = np.flatnonzero(row < 0)
    key = np.where(row >= 0, ints(nodes, "node")[row], -1) if nodes.num_rows else row.copy()
    first = int(ints(nodes, "node").max(initial=-1)) + 1
    key[fresh_nodes] = first + np.arange(len(fresh_nodes))
    stages = stage[made][fresh_nodes]
    columns = {
        "node": key[fresh_nodes],
        "graph": graph[fresh_nodes],
        "ordinal": _ordinal(graph)[fresh_nodes],
        "native_id": node[fresh_nodes],
        "created_ns": time[fresh_nodes],
        "stage": numbers(stages, pa.int32(), stages >= 0),
    }
    node_of_event, graph_of_event = none.copy(), none.copy()
    node_of_event[made] = key
    graph_of_event[made] = graph
    native_ids = numbers(native, pa.int64(), native > 0)
    fresh = {"graph": new, "process": owner, "native_id": native_ids}
    return GraphRows(
        _append(graphs, "graphs", len(new), fresh),
        _append(nodes, "nodes", len(fresh_nodes), columns),
        node_of_event,
        graph_of_event,
    )


def _ordinal(graph: Ints) -> Ints:
    """Position of each row among those of its graph; rows come in order of creation."""
    order = np.argsort(graph, kind="stable")
    ordered = graph[order]
    heads = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(graph) else graph
    position = np.arange(len(graph)) - np.repeat(heads, np.diff(np.r_[heads, len(graph)]))
    ordinal = np.empty(len(graph), dtype=np.int64)
    ordinal[order] = position
    return ordinal


def one_value(group: Ints, value: Ints, groups: int) -> Ints:
    """The value of each group, -1 where its rows (those with a value >= 0) do not agree."""
    rows = rows_of(value >= 0)
    group, value = group[rows], value[rows]
    one = np.full(groups, -1, dtype=value.dtype)
    one[group] = value
    one[group[one[group] != value]] = -1
    return one.astype(np.int64)


def execs_of(execs: pa.Table, process: Ints, native: Ints, graph: Ints) -> tuple[pa.Table, Ints]:
    """The exec of each replay, and the table with those that were missing.

    Args:
        execs: table, as read.
        process: process of each replay.
        native: exec id of each, -1 where it is not known.
        graph: graph of each, -1 where it is not known.
    """
    key = np.full(len(native), -1, dtype=np.int64)
    some = np.flatnonzero(native > 0)
    key[some], (new, owner, ids) = _owners(execs, "exec", process[some], native[some])
    size = int(max(key.max(initial=-1), ints(execs, "exec").max(initial=-1))) + 1
    source = one_value(key[some], graph[some], size)
    fresh = {
        "exec": new,
        "graph": numbers(source[new], pa.int32(), source[new] >= 0),
        "process": owner,
        "native_id": ids,
    }
    table = _append(_filled(execs, source), "execs", len(new), fresh)
    return table, key


def _filled(execs: pa.Table, source: Ints) -> pa.Table:
    """Execs whose graph is not known get the one that their nodes lead to."""
    if not execs.num_rows:
        return execs
    graph = ints(execs, "graph")
    graph = np.where(graph < 0, source[ints(execs, "exec")], graph)
    at = execs.schema.get_field_index("graph")
    return execs.set_column(at, execs.schema.field(at), numbers(graph, pa.int32(), graph >= 0))
