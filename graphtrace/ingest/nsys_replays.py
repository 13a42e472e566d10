# SPDX-License-Identifier: Apache-2.0
"""Replays, graphs and instantiated graphs of an nsys export."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_columns import Frame
from graphtrace.ingest.nsys_host import Calls
from graphtrace.ingest.nsys_keys import Keys
from graphtrace.ingest.nsys_tables import process_of
from graphtrace.ingest.nsys_work import KINDS, Work
from graphtrace.model.arrays import make_table, numbers

__all__ = ["Graphs", "Replayed", "collect_graphs", "collect_replays", "unseen_launches"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_OPAQUE: Final = KINDS.index("opaque_replay")
_GRAPH_SHIFT: Final = 32
"""The upper 32 bits of a node id are its graph: of a replayed node, the instantiated one."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Replays in order of begin, and the replay of each activity (-1: none).

    `stream` is -1 where the nodes ran on several streams: which of them the launch was on is not
    recorded. `call` is the launching call's row, or -1.
    """

    process: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    correlated: Flags
    begin: Ints
    end: Ints
    exec_id: Ints
    exec_known: Flags
    graph_id: Ints
    graph_known: Flags
    call: Ints
    of_activity: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graphs and instantiated graphs, sorted by (process, id); `exec_graph` is a row or -1."""

    graphs: Ints
    execs: Ints
    exec_graph: Ints

    def graph_table(self) -> pa.Table:
        """The model's table of graphs."""
        rows = len(self.graphs)
        columns = {
            "graph": np.arange(rows),
            "process": self.graphs[:, 0],
            "native_id": self.graphs[:, 1],
        }
        return make_table("graphs", rows, columns)

    def exec_table(self) -> pa.Table:
        """The model's table of instantiated graphs."""
        rows = len(self.execs)
        columns = {
            "exec": np.arange(rows),
            "graph": numbers(self.exec_graph, pa.int32(), self.exec_graph >= 0),
            "process": self.execs[:, 0],
            "native_id": self.execs[:, 1],
        }
        return make_table("execs", rows, columns)


def collect_replays(work: Work, calls: Calls | None) -> Replayed:
    """Group the nodes of one launch: equal (process, correlation); an opaque replay is one row."""
    launches = work.launches
    first = launches.first
    lowest = launches.lowest(work.values["stream"])
    one_stream = lowest == launches.highest(work.values["stream"])
    process = work.values["process"][first].astype(np.int64)
    exec_id, exec_known = _exec_of(work, first)
    known = work.known("correlation")[first]
    correlation = np.where(known, work.values["correlation"][first], 0).astype(np.int64)
    opaque = work.values["kind"][first] == _OPAQUE
    return Replayed(
        process=process,
        device=work.values["device"][first].astype(np.int64),
        stream=np.where(one_stream, lowest, -1),
        correlation=correlation,
        correlated=known,
        begin=work.values["begin"][first],
        end=launches.highest(work.values["end"]),
        exec_id=exec_id,
        exec_known=exec_known,
        graph_id=work.values["graph_id"][first].astype(np.int64),
        graph_known=work.known("graph_id")[first] & opaque,
        call=_launches(process, correlation, known, calls),
        of_activity=launches.of_row,
    )


def _graph_of(node: Ints) -> Ints:
    upper: Ints = (node >> _GRAPH_SHIFT) & 0xFFFFFFFF
    return upper


def _exec_of(work: Work, first: Ints) -> tuple[Ints, Flags]:
    node = work.known("node")[first]
    by_node = _graph_of(work.values["node"][first].astype(np.int64))
    by_column = work.values["exec_id"][first].astype(np.int64)
    # A node id without an upper half is of a driver that does not put the graph there.
    known = np.where(node, by_node != 0, work.known("exec_id")[first])
    return np.where(node, by_node, by_column), known


def _launches(process: Ints, correlation: Ints, known: Flags, calls: Calls | None) -> Ints:
    """Row of the call that launched each replay; a graph launch before any other call."""
    found = np.full(len(process), -1, dtype=np.int64)
    if calls is None:
        return found
    for owner in np.unique(process).tolist():
        ours = np.flatnonzero((calls.process == owner) & calls.correlated)
        mine = np.flatnonzero((process == owner) & known)
        if not len(ours) or not len(mine):
            continue
        order = np.lexsort((ours, ~calls.graph_launch[ours], calls.correlation[ours]))
        ours = ours[order]
        at = np.searchsorted(calls.correlation[ours], correlation[mine], side="left")
        at = np.minimum(at, len(ours) - 1)
        match = calls.correlation[ours[at]] == correlation[mine]
        found[mine[match]] = ours[at[match]]
    return found


def unseen_launches(calls: Calls | None, work: Work) -> int:
    """Graph launches from which no work of the device was recorded."""
    if calls is None:
        return 0
    unseen = 0
    for owner in np.unique(calls.process[calls.graph_launch]).tolist():
        launched = calls.graph_launch & calls.correlated & (calls.process == owner)
        known = (work.values["process"] == owner) & work.known("correlation")
        seen = np.isin(calls.correlation[launched], work.values["correlation"][known])
        unseen += int(np.count_nonzero(~seen))
    return unseen


def collect_graphs(
    replayed: Replayed, node_events: Frame | None, graph_events: Frame | None, keys: Keys
) -> Graphs:
    """Graphs and instantiated graphs that an id in the export names.

    A graph is one that nodes were created in, that was instantiated, or that a replay names; the
    copies that the driver makes for itself are not. An instantiated graph's origin is known where
    a replay or its creation says it.
    """
    pairs = [_pair(replayed.process, replayed.graph_id, replayed.graph_known)]
    links = [
        np.column_stack((replayed.process, replayed.exec_id, replayed.graph_id))[
            replayed.exec_known & replayed.graph_known
        ]
    ]
    execs = [_pair(replayed.process, replayed.exec_id, replayed.exec_known)]
    if node_events is not None:
        origin = node_events.get("originalGraphNodeId")
        created = ~(node_events.known("originalGraphNodeId") & (origin != 0))
        owner = keys.process(process_of(node_events.get("globalTid"))).astype(np.int64)
        graph = _graph_of(node_events.get("graphNodeId"))
        pairs.append(_pair(owner, graph, created & (graph != 0)))
    if graph_events is not None:
        owner = keys.process(process_of(graph_events.get("globalTid"))).astype(np.int64)
        made = graph_events.known("graphExecId") & (graph_events.get("graphExecId") != 0)
        sourced = made & graph_events.known("graphId") & (graph_events.get("graphId") != 0)
        execs.append(_pair(owner, graph_events.get("graphExecId"), made))
        pairs.append(_pair(owner, graph_events.get("graphId"), sourced))
        columns = (owner, graph_events.get("graphExecId"), graph_events.get("graphId"))
        links.append(np.column_stack(columns)[sourced])
    graphs = np.unique(np.concatenate(pairs), axis=0)
    instances = np.unique(np.concatenate(execs), axis=0)
    return Graphs(graphs, instances, _origins(graphs, instances, np.concatenate(links)))


def _pair(owner: Ints, number: Ints, keep: Flags) -> Ints:
    return np.column_stack((owner, number))[keep]


def _origins(graphs: Ints, execs: Ints, links: Ints) -> Ints:
    """Row in `graphs` of each exec; -1 where nothing says it, or two sources disagree."""
    places = {pair: row for row, pair in enumerate(map(tuple, graphs.tolist()))}
    said: dict[tuple[int, int], set[int]] = {}
    for owner, instance, graph in np.unique(links, axis=0).tolist():
        said.setdefault((owner, instance), set()).add(places[(owner, graph)])
    rows = [said.get((owner, number), set()) for owner, number in execs.tolist()]
    return np.asarray([min(row) if len(row) == 1 else -1 for row in rows], dtype=np.int64)
