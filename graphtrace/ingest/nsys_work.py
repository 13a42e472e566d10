# SPDX-License-Identifier: Apache-2.0
"""Device work of an nsys export in one order, with its replays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_cells import joined
from graphtrace.ingest.nsys_frame import Frame, Integers
from graphtrace.ingest.nsys_host import Calls
from graphtrace.ingest.nsys_keys import Keys
from graphtrace.ingest.nsys_launches import Launches, group_launches
from graphtrace.ingest.nsys_tables import DIMENSIONS, Raw
from graphtrace.ingest.sanity import Quarantine
from graphtrace.model.arrays import few

__all__ = ["KINDS", "Work", "collect_work"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

KINDS: Final = ("kernel", "memcpy", "memset", "collective", "opaque_replay", "mark")
"""Kinds of activity by code."""
_KERNEL, _MEMCPY, _MEMSET, _COLLECTIVE, _OPAQUE, _MARK = range(len(KINDS))

_COPIES: Final = (
    "Unknown",
    "Host-to-Device",
    "Device-to-Host",
    "Host-to-Array",
    "Array-to-Host",
    "Array-to-Array",
    "Array-to-Device",
    "Device-to-Array",
    "Device-to-Device",
    "Host-to-Host",
    "Peer-to-Peer",
    "Unified Host-to-Device",
    "Unified Device-to-Host",
    "Unified Device-to-Device",
)
"""Labels by `copyKind`, in nsys' spelling (its table ENUM_CUDA_MEMCPY_OPER)."""
_MARK_KERNELS: Final = ("gt_mark", "gt_nop")
"""Kernels that `graphtrace capture` adds to a graph."""
_COLLECTIVE_PREFIX: Final = "nccl"

_NEAR: Final = 1 << 22
"""Widest span of string ids that are looked up in a table of the span."""
_CELLS: Final = 4
"""Cells of a table of nodes by launches that are worth a row; a sparser one is sorted instead."""
_FEW: Final = 1 << 16

_NUMBERS: Final = (
    "process",
    "device",
    "context",
    "stream",
    "kind",
    "name",
    "begin",
    "end",
    "correlation",
    *DIMENSIONS,
    "registers",
    "shared",
    "bytes",
    "node",
    "graph_id",
    "exec_id",
)


@dataclass(slots=True)
class Work:
    """Activities as columns of equal length, ordered by begin, then by everything else.

    `calls` are those that launched it. `valid` holds only columns with nulls. `node` is the
    profiler's graph node id; `graph_id` and `exec_id` are known of opaque replays alone. Columns
    are as narrow as their values allow or one value repeated, and are not written to.
    """

    rows: int
    words: list[str]
    launches: Launches
    calls: Calls | None = None
    values: dict[str, Integers] = field(default_factory=dict)
    valid: dict[str, Flags] = field(default_factory=dict)

    def known(self, name: str) -> Flags:
        """True where a column has a value."""
        found = self.valid.get(name)
        return np.broadcast_to(np.bool_(True), self.rows) if found is None else found  # noqa: FBT003 - a value

    def reorder(self, rows: Ints | Flags) -> None:
        """Keep these rows, in this order; columns are replaced one at a time to spare memory."""
        self.rows = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        columns: tuple[dict[str, Any], ...] = (self.values, self.valid)
        for column in columns:
            for name, array in column.items():
                same = array.strides == (0,) and len(array)
                column[name] = np.broadcast_to(array[0], self.rows) if same else array[rows]

    def _launched_with_graphs(self, alone: Flags) -> Ints:
        """Rows of work without a node id whose launching call launched a graph.

        Releases before 2022 name no nodes, but give the work of a replay its launch's correlation.
        """
        calls = self.calls
        none = np.zeros(0, dtype=np.int64)
        if calls is None or not calls.graph_launch.any():
            return none
        rows = np.flatnonzero(~self.known("node") & self.known("correlation") & ~alone)
        found = [none]
        process, correlation = self.values["process"][rows], self.values["correlation"][rows]
        for owner in np.unique(calls.process[calls.graph_launch]).tolist():
            launched = calls.graph_launch & calls.correlated & (calls.process == owner)
            mine = process == owner
            hit = np.isin(correlation[mine], calls.correlation[launched])
            found.append(rows[mine][hit])
        return np.concatenate(found)

    def group(self) -> None:
        """Find the launches anew."""
        alone = self.values["kind"] == _OPAQUE
        inside = alone | (self.known("node") & self.known("correlation"))
        unnamed = self._launched_with_graphs(alone)
        inside[unnamed] = True
        self.launches = group_launches(
            self.values["process"], self.values["correlation"], alone, inside
        )


def collect_work(
    raw: Raw,
    keys: Keys,
    strings: dict[int, str],
    quarantine: Quarantine,
    calls: Calls | None,
) -> Work:
    """Join kernels, copies, memsets and opaque replays into one table, in order.

    The frames of `raw` are emptied on the way, for memory.

    Args:
        raw: rows that passed the checks.
        keys: keys of processes and devices.
        strings: kernel names by id.
        quarantine: where nodes that ran twice in one replay are counted.
        calls: the calls that launched the work, where they were recorded.
    """
    names = _Names(strings)
    parts: list[tuple[Frame, int, Callable[[Frame], _Named]]] = []
    if raw.kernels is not None:
        parts.append((raw.kernels, _KERNEL, names.kernels))
    if raw.copies is not None:
        parts.append((raw.copies, _MEMCPY, names.copies))
    if raw.sets is not None:
        parts.append((raw.sets, _MEMSET, names.sets))
    if raw.opaque is not None:
        parts.append((raw.opaque, _OPAQUE, names.unnamed))
    pieces = [_piece(frame, kind, name(frame), keys) for frame, kind, name in parts]
    work = _concatenate(pieces, names.words)
    work.calls = calls
    _name_kinds(work)
    order = _order(work)
    if order is not None:
        work.reorder(order)
    work.group()
    twins = _twins(work)
    if len(twins):
        _refuse(work, twins, quarantine)
        work.group()
    return work


_Named = tuple[Integers, Flags]
"""Codes of names, and which rows have one."""


class _Names:
    """Numbers names: kernel names by string id, then what else an activity may be called."""

    def __init__(self, strings: dict[int, str]) -> None:
        self.ids = np.asarray(sorted(strings), dtype=np.int64)
        texts = [strings[number] for number in self.ids.tolist()]
        self.words = sorted({*texts, *_COPIES, "Memset"})
        place = {word: position for position, word in enumerate(self.words)}
        self.codes = np.asarray([place[text] for text in texts], dtype=np.int64)
        self.copy_codes = np.asarray([place[word] for word in _COPIES], dtype=np.int64)
        self.set_code = place["Memset"]

    def _resolve(self, frame: Frame, column: str) -> _Named:
        if not len(self.ids) or column not in frame.values:
            return self.unnamed(frame)
        wanted = frame.get(column)
        if wanted.strides == (0,) and frame.rows:
            codes, found = self._look(wanted[:1])
            return _one(int(codes[0]), frame.rows), frame.known(column) & found[0]
        codes, found = self._look(wanted)
        return codes, found & frame.known(column)

    def _look(self, wanted: Ints) -> _Named:
        low, high = int(self.ids[0]), int(self.ids[-1])
        if high - low < _NEAR:
            table = np.full(high - low + 2, -1, dtype=np.int32)
            table[self.ids - low] = self.codes
            # What lies outside of the table reaches its last entry, which stands for none.
            codes = table[np.clip(wanted, low - 1, high + 1) - low]
            return codes, codes >= 0
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        return self.codes[at], self.ids[at] == wanted

    def kernels(self, frame: Frame) -> _Named:
        """The demangled name, else the short one, else none."""
        codes, found = self._resolve(frame, "demangledName")
        if not found.all():
            short, also = self._resolve(frame, "shortName")
            codes = np.where(found, codes, short)
            found = found | also
        return codes, found

    def copies(self, frame: Frame) -> _Named:
        """What was copied where."""
        kind = frame.get("copyKind")
        inside = (kind >= 0) & (kind < len(_COPIES)) & frame.known("copyKind")
        return self.copy_codes[np.where(inside, kind, 0)], _flags(frame.rows, value=True)

    def sets(self, frame: Frame) -> _Named:
        """All memsets have one name."""
        return _one(self.set_code, frame.rows), _flags(frame.rows, value=True)

    def unnamed(self, frame: Frame) -> _Named:
        """An opaque replay hides what ran."""
        return _one(0, frame.rows), _flags(frame.rows, value=False)


def _one(value: int, rows: int) -> npt.NDArray[np.int32]:
    return np.broadcast_to(np.int32(value), rows)


def _flags(rows: int, *, value: bool) -> Flags:
    return np.broadcast_to(np.bool_(value), rows)


_Piece = dict[str, tuple[Integers, Flags | None]]
_PLAIN: Final = {
    "context": "contextId",
    "stream": "streamId",
    "begin": "start",
    "end": "end",
    "correlation": "correlationId",
    "registers": "registersPerThread",
    "bytes": "bytes",
    "node": "graphNodeId",
    "graph_id": "graphId",
    "exec_id": "graphExecId",
} | {name: name for name in DIMENSIONS}
_NONE_IS_ZERO: Final = ("correlation", "node")
"""CUPTI writes 0 where there is none."""


def _piece(frame: Frame, kind: int, name: _Named, keys: Keys) -> _Piece:
    process, device = _owners(frame, keys)
    codes, named = name
    piece: _Piece = {
        "process": (process, None),
        "device": (device, None),
        "kind": (np.broadcast_to(np.int8(kind), frame.rows), None),
        "name": (codes if named.all() else np.where(named, codes, 0), named),
        "shared": _shared(frame) if kind == _KERNEL else _absent(frame.rows),
    }
    for ours, theirs in _PLAIN.items():
        if theirs not in frame.values:
            piece[ours] = _absent(frame.rows)
            continue
        values, valid = frame.values.pop(theirs), frame.valid.pop(theirs, None)
        if ours in _NONE_IS_ZERO:
            some = values != 0
            valid = some if valid is None else valid & some
        piece[ours] = (values, None if valid is None or valid.all() else valid)
    return piece


def _owners(frame: Frame, keys: Keys) -> tuple[Integers, Integers]:
    """Keys of process and device of each row."""
    pids, ordinals = frame.get("globalPid"), frame.get("deviceId")
    if pids.strides == ordinals.strides == (0,) and frame.rows:
        process = keys.process(pids[:1])
        device = keys.device(process, ordinals[:1])
        return _one(int(process[0]), frame.rows), _one(int(device[0]), frame.rows)
    process = keys.process(pids)
    return process, keys.device(process, ordinals)


def _shared(frame: Frame) -> tuple[Integers, Flags]:
    """Static and dynamic shared memory together; both fit 32 bits."""
    static, dynamic = "staticSharedMemory", "dynamicSharedMemory"
    both = frame.known(static) & frame.known(dynamic)
    first, second = frame.get(static), frame.get(dynamic)
    if first.strides == second.strides == (0,) and frame.rows:
        return np.broadcast_to(first[0] + second[0], frame.rows), both
    total = first + second
    return total if both.all() else np.where(both, total, 0), both


def _absent(rows: int) -> tuple[Integers, Flags]:
    return _one(0, rows), _flags(rows, value=False)


def _concatenate(pieces: list[_Piece], words: list[str]) -> Work:
    nothing = np.zeros(0, dtype=np.int64)
    none = group_launches(nothing, nothing, nothing != 0, nothing != 0)
    work = Work(0, words, none)
    for name in _NUMBERS:
        columns = [piece.pop(name) for piece in pieces]
        work.values[name] = joined([column[0] for column in columns])
        if any(valid is not None for _, valid in columns):
            whole = [_flags(len(v), value=True) if f is None else f for v, f in columns]
            work.valid[name] = joined(whole) if work.values[name].size else nothing != 0
    work.rows = len(work.values["begin"])
    for name in ("begin", "end", "correlation", "node"):
        # What is calculated with is wide; one value repeated stays so.
        wide = work.values[name]
        constant = wide.strides == (0,) and len(wide)
        work.values[name] = (
            np.broadcast_to(np.int64(wide[0]), len(wide)) if constant else wide.astype(np.int64)
        )
    return work


def _name_kinds(work: Work) -> None:
    """Tell our own marks and collectives from other kernels, by name."""
    kinds = np.full(max(len(work.words), 1), _KERNEL, dtype=np.int8)
    for code, word in enumerate(work.words):
        if word.startswith(_COLLECTIVE_PREFIX):
            kinds[code] = _COLLECTIVE
        elif word.split("(", 1)[0] in _MARK_KERNELS:
            kinds[code] = _MARK
    if (kinds == _KERNEL).all():
        return
    kernels = (work.values["kind"] == _KERNEL) & work.known("name")
    by_name = kinds[work.values["name"]]
    work.values["kind"] = np.where(kernels, by_name, work.values["kind"])


def _order(work: Work) -> Ints | None:
    """Rows by begin; rows of one begin by every other column, so that file order means nothing.

    None where they are in order as they are.
    """
    begin = work.values["begin"]
    if bool((begin[1:] > begin[:-1]).all()):
        return None
    order = np.argsort(begin, kind="stable")
    tied = np.zeros(work.rows, dtype=np.bool_)
    if work.rows > 1:
        ordered = begin[order]
        same = ordered[1:] == ordered[:-1]
        tied[1:] |= same
        tied[:-1] |= same
    places = np.flatnonzero(tied)
    if len(places):
        rows = order[places]
        major = ("begin", "end", "process", "device", "stream", "kind")
        minor = [name for name in _NUMBERS if name not in major]
        keys: list[npt.NDArray[Any]] = [work.known(name)[rows] for name in minor]
        keys += [work.values[name][rows] for name in (*minor, *reversed(major))]
        order[places] = rows[np.lexsort(keys)]
    return order


def _twins(work: Work) -> Ints:
    """Rows of nodes that ran before in the same replay: a node runs once (kineto#1567)."""
    rows = np.flatnonzero(work.known("node") & work.known("correlation"))
    if not len(rows):
        return rows
    node, launch = work.values["node"], work.launches.of_row
    if len(rows) < work.rows:
        node, launch = node[rows], launch[rows]
    ids, code = few(node)
    cells = len(work.launches.first) * len(ids)
    if cells <= _CELLS * len(rows) + _FEW:
        ran = np.zeros(cells, dtype=np.bool_)
        ran[launch.astype(np.int64) * len(ids) + code] = True
        if int(np.count_nonzero(ran)) == len(rows):
            return rows[:0]
    order = np.lexsort((node, launch))
    same = (node[order][1:] == node[order][:-1]) & (launch[order][1:] == launch[order][:-1])
    return np.sort(rows[order[1:][same]])


def _refuse(work: Work, twins: Ints, quarantine: Quarantine) -> None:
    first = int(twins[0])
    sample = (
        f"node {int(work.values['node'][first])}, correlation "
        f"{int(work.values['correlation'][first])}, begin {int(work.values['begin'][first])} ns"
    )
    reason = "its graph node already ran in this replay"
    quarantine.add("activities", reason, len(twins), sample)
    keep = np.ones(work.rows, dtype=np.bool_)
    keep[twins] = False
    work.reorder(keep)
