# SPDX-License-Identifier: Apache-2.0
"""Device work of an nsys export in one order, with its replays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_columns import Frame
from graphtrace.ingest.nsys_keys import Keys
from graphtrace.ingest.nsys_tables import DIMENSIONS, Raw
from graphtrace.ingest.sanity import Quarantine

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

    `valid` holds only columns with nulls. `node` is the profiler's graph node id; `graph_id` and
    `exec_id` are known of opaque replays alone.
    """

    rows: int
    words: list[str]
    values: dict[str, Ints] = field(default_factory=dict)
    valid: dict[str, Flags] = field(default_factory=dict)

    def known(self, name: str) -> Flags:
        """True where a column has a value."""
        found = self.valid.get(name)
        return np.ones(self.rows, dtype=np.bool_) if found is None else found

    def reorder(self, rows: Ints | Flags) -> None:
        """Keep these rows, in this order; columns are replaced one at a time to spare memory."""
        for name in tuple(self.values):
            self.values[name] = self.values[name][rows]
        for name in tuple(self.valid):
            self.valid[name] = self.valid[name][rows]
        self.rows = len(self.values["begin"])


def collect_work(raw: Raw, keys: Keys, strings: dict[int, str], quarantine: Quarantine) -> Work:
    """Join kernels, copies, memsets and opaque replays into one table, in order.

    The frames of `raw` are emptied on the way, for memory.

    Args:
        raw: rows that passed the checks.
        keys: keys of processes and devices.
        strings: kernel names by id.
        quarantine: where nodes that ran twice in one replay are counted.
    """
    names = _Names(strings)
    parts: list[tuple[Frame, int, Callable[[Frame], tuple[Ints, Flags]]]] = []
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
    _name_kinds(work)
    work.reorder(_order(work))
    _refuse_twins(work, quarantine)
    return work


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

    def _resolve(self, frame: Frame, column: str) -> tuple[Ints, Flags]:
        wanted = frame.get(column)
        if not len(self.ids):
            return np.zeros(frame.rows, dtype=np.int64), np.zeros(frame.rows, dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        return self.codes[at], (self.ids[at] == wanted) & frame.known(column)

    def kernels(self, frame: Frame) -> tuple[Ints, Flags]:
        """The demangled name, else the short one, else none."""
        codes, found = self._resolve(frame, "demangledName")
        if not found.all():
            short, also = self._resolve(frame, "shortName")
            codes = np.where(found, codes, short)
            found = found | also
        return codes, found

    def copies(self, frame: Frame) -> tuple[Ints, Flags]:
        """What was copied where."""
        kind = frame.get("copyKind")
        inside = (kind >= 0) & (kind < len(_COPIES)) & frame.known("copyKind")
        return self.copy_codes[np.where(inside, kind, 0)], np.ones(frame.rows, dtype=np.bool_)

    def sets(self, frame: Frame) -> tuple[Ints, Flags]:
        """All memsets have one name."""
        codes = np.full(frame.rows, self.set_code, dtype=np.int64)
        return codes, np.ones(frame.rows, dtype=np.bool_)

    def unnamed(self, frame: Frame) -> tuple[Ints, Flags]:
        """An opaque replay hides what ran."""
        return np.zeros(frame.rows, dtype=np.int64), np.zeros(frame.rows, dtype=np.bool_)


_Piece = dict[str, tuple[Ints, Flags | None]]
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


def _piece(frame: Frame, kind: int, name: tuple[Ints, Flags], keys: Keys) -> _Piece:
    process = keys.process(frame.get("globalPid"))
    device = keys.device(process, frame.get("deviceId"))
    piece: _Piece = {
        "process": (process.astype(np.int64), None),
        "device": (device.astype(np.int64), None),
        "kind": (np.full(frame.rows, kind, dtype=np.int64), None),
        "name": (np.where(name[1], name[0], 0), name[1]),
    }
    if kind == _KERNEL:
        static, dynamic = "staticSharedMemory", "dynamicSharedMemory"
        both = frame.known(static) & frame.known(dynamic)
        piece["shared"] = (np.where(both, frame.get(static) + frame.get(dynamic), 0), both)
    else:
        piece["shared"] = _absent(frame.rows)
    for ours, theirs in _PLAIN.items():
        if theirs not in frame.values:
            piece[ours] = _absent(frame.rows)
            continue
        values, valid = frame.get(theirs), frame.valid.pop(theirs, None)
        del frame.values[theirs]
        if ours in _NONE_IS_ZERO:
            some = values != 0
            valid = some if valid is None else valid & some
        piece[ours] = (values, None if valid is None or valid.all() else valid)
    return piece


def _absent(rows: int) -> tuple[Ints, Flags]:
    return np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.bool_)


def _concatenate(pieces: list[_Piece], words: list[str]) -> Work:
    work = Work(0, words)
    for name in _NUMBERS:
        columns = [piece.pop(name) for piece in pieces]
        values = [column[0] for column in columns]
        work.values[name] = np.concatenate(values) if values else np.zeros(0, dtype=np.int64)
        if any(valid is not None for _, valid in columns):
            whole = [np.ones(len(v), dtype=np.bool_) if f is None else f for v, f in columns]
            work.valid[name] = np.concatenate(whole)
    work.rows = len(work.values["begin"])
    return work


def _name_kinds(work: Work) -> None:
    """Tell our own marks and collectives from other kernels, by name."""
    kinds = np.full(max(len(work.words), 1), _KERNEL, dtype=np.int64)
    for code, word in enumerate(work.words):
        if word.startswith(_COLLECTIVE_PREFIX):
            kinds[code] = _COLLECTIVE
        elif word.split("(", 1)[0] in _MARK_KERNELS:
            kinds[code] = _MARK
    kernels = (work.values["kind"] == _KERNEL) & work.known("name")
    by_name = kinds[work.values["name"]]
    work.values["kind"] = np.where(kernels, by_name, work.values["kind"])


def _order(work: Work) -> Ints:
    """Rows by begin; rows of one begin by every other column, so that file order means nothing."""
    begin = work.values["begin"]
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


def _refuse_twins(work: Work, quarantine: Quarantine) -> None:
    """A node runs once in a replay: later rows of it are refused (ids alias, kineto#1567)."""
    inside = np.flatnonzero(work.known("node") & work.known("correlation"))
    if not len(inside):
        return
    keys = [work.values[name][inside] for name in ("node", "correlation", "process")]
    order = np.lexsort(keys)
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    twins = np.sort(inside[order[1:][same]])
    if len(twins):
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
