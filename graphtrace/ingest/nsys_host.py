# SPDX-License-Identifier: Apache-2.0
"""Host side of an nsys export: API calls, NVTX ranges and the events of graph nodes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_columns import Frame
from graphtrace.ingest.nsys_keys import Keys
from graphtrace.ingest.nsys_nvtx import category_names, domain_names, payload_columns, texts_of
from graphtrace.ingest.nsys_tables import RANGE_KINDS, process_of
from graphtrace.model.arrays import dictionary, make_table, numbers

__all__ = ["Calls", "api_table", "collect_calls", "event_table", "range_table"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_THREAD = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Calls:
    """API calls in order of begin. `graph_launch` tells launches of a graph from other calls."""

    process: npt.NDArray[np.int32]
    thread: Ints
    name: Ints
    words: list[str]
    correlation: Ints
    correlated: Flags
    begin: Ints
    end: Ints
    graph_launch: Flags


def collect_calls(frame: Frame, keys: Keys, strings: dict[int, str]) -> Calls:
    """API calls with names; the name of a call whose string is missing is empty."""
    thread = frame.get("globalTid")
    process = keys.process(process_of(thread))
    words = sorted({"", *strings.values()})
    place = {word: position for position, word in enumerate(words)}
    ids, inverse = np.unique(frame.get("nameId"), return_inverse=True)
    by_id = [place[strings.get(number, "")] for number in ids.tolist()]
    codes = np.asarray(by_id, dtype=np.int64)[inverse] if len(ids) else frame.get("nameId")
    codes = np.where(frame.known("nameId"), codes, place[""])
    begin, end, correlation = frame.get("start"), frame.get("end"), frame.get("correlationId")
    order = np.lexsort((codes, correlation, thread, -end, begin))
    # cudaGraphLaunch_v10000, cuGraphLaunch, cudaGraphLaunch_ptsz_v10000 are one thing.
    launches = np.asarray(["graphlaunch" in word.lower() for word in words], dtype=np.bool_)
    return Calls(
        process=process[order],
        thread=(thread & _THREAD)[order],
        name=codes[order],
        words=words,
        correlation=correlation[order],
        correlated=(frame.known("correlationId") & (correlation != 0))[order],
        begin=begin[order],
        end=end[order],
        graph_launch=launches[codes][order],
    )


def api_table(calls: Calls) -> pa.Table:
    """The model's table of API calls."""
    columns = {
        "process": calls.process,
        "thread": calls.thread,
        "name": dictionary(calls.name, calls.words),
        "correlation": numbers(calls.correlation, pa.int64(), calls.correlated),
        "begin_ns": calls.begin,
        "end_ns": calls.end,
    }
    return make_table("api_calls", len(calls.begin), columns)


def range_table(
    frame: Frame, definitions: Frame | None, keys: Keys, strings: dict[int, str]
) -> pa.Table:
    """The model's table of ranges, in order of begin, outer before inner.

    A mark ends where it begins. A range without an end was open when the recording stopped.

    Args:
        frame: rows of ranges and marks.
        definitions: rows that name domains and categories; None where the export has none.
        keys: keys of processes.
        strings: registered strings by id.
    """
    thread = frame.get("globalTid")
    codes, texts = texts_of(frame, strings)
    domain, names = domain_names(frame, definitions, strings)
    category, categories = category_names(frame, definitions, strings)
    kinds = sorted(set(RANGE_KINDS.values()))
    kind_of = np.zeros(max(RANGE_KINDS) + 1, dtype=np.int64)
    for number, name in RANGE_KINDS.items():
        kind_of[number] = kinds.index(name)
    kind = kind_of[frame.get("eventType")]
    begin, closed = frame.get("start"), frame.known("end")
    mark = kind == kinds.index("mark")
    end = np.where(mark, begin, frame.get("end"))
    closed = closed | mark
    # Open ranges are the outermost of those that begin together.
    last = np.where(closed, end, np.iinfo(np.int64).max)
    end_thread = frame.get("endGlobalTid")
    moved = frame.known("endGlobalTid") & (end_thread != thread)
    payload, ties = payload_columns(frame)
    order = np.lexsort(
        (*ties, category, np.where(moved, end_thread, 0), codes, domain, kind, thread, -last, begin)
    )
    columns = {
        "process": keys.process(process_of(thread))[order],
        "thread": (thread & _THREAD)[order],
        "end_thread": numbers((end_thread & _THREAD)[order], pa.int64(), moved[order]),
        "domain": dictionary(domain[order], names),
        "text": dictionary(codes[order], texts),
        "kind": dictionary(kind[order], kinds),
        "begin_ns": begin[order],
        "end_ns": numbers(end[order], pa.int64(), closed[order]),
        **{
            name: numbers(values[order], kind, valid[order])
            for name, (values, kind, valid) in payload.items()
        },
    }
    if categories:
        known = category[order]
        columns["category"] = dictionary(np.maximum(known, 0), categories, known >= 0)
    return make_table("ranges", frame.rows, columns)


def event_table(frame: Frame, keys: Keys) -> pa.Table:
    """The model's table of creations and clonings of graph nodes, in order of time."""
    thread, node, time = frame.get("globalTid"), frame.get("graphNodeId"), frame.get("start")
    origin = frame.get("originalGraphNodeId")
    cloned = frame.known("originalGraphNodeId") & (origin != 0)
    order = np.lexsort((origin, cloned, node, thread, time))
    columns = {
        "process": keys.process(process_of(thread))[order],
        "thread": (thread & _THREAD)[order],
        "time_ns": time[order],
        "node_native_id": node[order],
        "origin_native_id": numbers(origin[order], pa.int64(), cloned[order]),
    }
    return make_table("graph_events", frame.rows, columns)
