# SPDX-License-Identifier: Apache-2.0
"""Host side of an nsys export: API calls, NVTX ranges and the events of graph nodes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_columns import Frame
from graphtrace.ingest.nsys_keys import Keys
from graphtrace.ingest.nsys_tables import RANGE_KINDS, process_of
from graphtrace.model.arrays import dictionary, make_table, numbers

__all__ = ["Calls", "api_table", "collect_calls", "event_table", "range_table"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_THREAD = 0xFFFFFF
_PROCESS_NUMBER = 0x0000_FFFF_FF00_0000
"""Bits of a global thread id that a domain belongs to: the process, without the machine."""


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
    frame: Frame, domains: Frame | None, keys: Keys, strings: dict[int, str]
) -> pa.Table:
    """The model's table of ranges, in order of begin, outer before inner.

    A mark ends where it begins. A range without an end was open when the recording stopped.
    """
    thread = frame.get("globalTid")
    codes, texts = _texts(frame, strings)
    domain, names = _domain_names(frame, domains, strings)
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
    order = np.lexsort((np.where(moved, end_thread, 0), codes, domain, kind, thread, -last, begin))
    columns = {
        "process": keys.process(process_of(thread))[order],
        "thread": (thread & _THREAD)[order],
        "end_thread": numbers((end_thread & _THREAD)[order], pa.int64(), moved[order]),
        "domain": dictionary(domain[order], names),
        "text": dictionary(codes[order], texts),
        "kind": dictionary(kind[order], kinds),
        "begin_ns": begin[order],
        "end_ns": numbers(end[order], pa.int64(), closed[order]),
    }
    return make_table("ranges", frame.rows, columns)


def _texts(frame: Frame, strings: dict[int, str]) -> tuple[Ints, list[str]]:
    """Message of each row: its own text, else the registered string, else empty."""
    own = frame.words.get("text", [])
    words = sorted({"", *own, *strings.values()})
    place = {word: position for position, word in enumerate(words)}
    ids, inverse = np.unique(frame.get("textId"), return_inverse=True)
    by_id = np.asarray([place[strings.get(n, "")] for n in ids.tolist()] or [0], dtype=np.int64)
    by_text = np.asarray([place[word] for word in own] or [0], dtype=np.int64)
    registered = by_id[inverse] if frame.rows else frame.get("textId")
    codes = np.where(frame.known("textId"), registered, place[""])
    plain = by_text[frame.get("text")] if own else codes
    return np.where(frame.known("text"), plain, codes), words


def _domain_names(
    frame: Frame, domains: Frame | None, strings: dict[int, str]
) -> tuple[Ints, list[str]]:
    """Domain of each row by (domain id, process); 0 is the default one, whose name is empty.

    A domain whose creation was not recorded is called by its number, as in `#3`.
    """
    known: dict[tuple[int, int], str] = {}
    if domains is not None:
        codes, words = _texts(domains, strings)
        owners = domains.get("globalTid") & _PROCESS_NUMBER
        ids = domains.get("domainId")
        created = sorted(zip(owners.tolist(), ids.tolist(), codes.tolist(), strict=True))
        for owner, number, code in created:
            known.setdefault((owner, number), words[code])
    number = np.where(frame.known("domainId"), frame.get("domainId"), 0)
    owner = frame.get("globalTid") & _PROCESS_NUMBER
    owners, owner_code = np.unique(owner, return_inverse=True)
    ids, id_code = np.unique(number, return_inverse=True)
    pairs, pair_code = np.unique(owner_code * max(len(ids), 1) + id_code, return_inverse=True)
    names: list[str] = []
    for pair in pairs.tolist():
        one, other = int(owners[pair // len(ids)]), int(ids[pair % len(ids)])
        default = "" if other == 0 else f"#{other}"
        names.append(known.get((one, other), default) if other else "")
    words = sorted(set(names))
    place = np.asarray([words.index(name) for name in names] or [0], dtype=np.int64)
    return (place[pair_code] if frame.rows else number), words


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
