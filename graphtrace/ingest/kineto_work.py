# SPDX-License-Identifier: Apache-2.0
"""Device work and host calls of a trace: what can be true of them, whose they are, in order."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.kineto_events import CALL, KERNEL, Events
from graphtrace.ingest.kineto_values import LATE, NULL
from graphtrace.ingest.sanity import Quarantine, refuse_bad_times

__all__ = ["KINDS", "Frame", "Parts", "collect_parts"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

KINDS: Final = ("kernel", "memcpy", "memset", "mark")
"""Kinds of activity by code. Kernels of collectives are kernels: the trace does not tell them."""
_MARK: Final = KINDS.index("mark")
_MARK_KERNELS: Final = ("gt_mark", "gt_nop")
"""Kernels that `graphtrace capture` adds to a graph."""
_DAY_NS: Final = 86_400_000_000_000
"""The profiler holds a recording in memory, seconds to minutes of it: nothing in it takes a day."""
_INT32: Final = np.iinfo(np.int32)
_COPY: Final = re.compile(r"Memcpy ([HDA])to([HDA])\b")
_PLACES: Final = {"H": "Host", "D": "Device", "A": "Array"}
_STEP: Final = re.compile(r"ProfilerStep#\d+")
_MAJOR: Final = ("end", "process", "device", "stream", "kind")
_AT_LEAST: Final = {
    "correlation": 1,
    "node": 1,
    "graph_id": 1,
    "context": 0,
    "registers": 0,
    "shared": 0,
    "bytes": 0,
    "grid_x": 1,
    "grid_y": 1,
    "grid_z": 1,
    "block_x": 1,
    "block_y": 1,
    "block_z": 1,
}
"""Least values that mean something: CUPTI writes 0 for an id, and no grid has an extent of 0."""


@dataclass(slots=True)
class Frame:
    """Rows of one table as columns of int64, `NULL` where a value is absent."""

    columns: dict[str, Ints]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.columns["begin"])

    def get(self, name: str) -> Ints:
        """A column."""
        return self.columns[name]

    def known(self, name: str) -> Flags:
        """True where a column has a value."""
        known: Flags = self.columns[name] != NULL
        return known

    def reorder(self, rows: Ints | Flags) -> None:
        """Keep these rows, in this order; columns are replaced one at a time to spare memory."""
        for name in tuple(self.columns):
            self.columns[name] = self.columns[name][rows]


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows that passed the checks, in order of begin; the order of the file means nothing.

    Attributes:
        work: device work; `kind` is a code into `KINDS`, `device` an ordinal.
        calls: API calls; `launch` is 1 for launches of a graph.
        ranges: annotations; `step` is 1 for the profiler's own steps.
        words: names, sorted; columns `name` are codes into them.
        pids: process ids by process key; None, the last one, is a process that is not known.
        unsure: how many rows of device work could be of several processes.
    """

    work: Frame
    calls: Frame
    ranges: Frame
    words: list[str]
    pids: tuple[int | None, ...]
    unsure: int


def collect_parts(events: Events, quarantine: Quarantine) -> Parts:
    """Check the rows, name them, and find out whose they are.

    Args:
        events: as read; their columns are given up.
        quarantine: where refused rows are counted.
    """
    names = _Names(events.words)
    work, calls, ranges = _frames(events)
    for frame, table in ((work, "activities"), (calls, "api_calls"), (ranges, "ranges")):
        _keep_believable(frame, table, quarantine)
    _keep(work, "activities", "its device or stream is missing", _placed(work), quarantine)
    on_host = work.get("device") == _INT32.max
    _keep(work, "activities", "ran on the host", ~on_host, quarantine)
    for frame, table in ((calls, "api_calls"), (ranges, "ranges")):
        _keep(frame, table, "its thread is missing", frame.known("tid"), quarantine)
    names.settle(work, names.on_device)
    names.settle(calls, names.plain)
    names.settle(ranges, names.plain)
    work.columns["kind"] = np.where(
        names.is_mark[np.maximum(work.get("name"), 0)]
        & (work.get("kind") == KERNEL)
        & work.known("name"),
        _MARK,
        work.get("kind") - KERNEL,
    )
    calls.columns["launch"] = names.is_launch[calls.get("name")].astype(np.int64)
    ranges.columns["step"] = names.is_step[ranges.get("name")].astype(np.int64)
    for frame in (work, calls):
        _drop_senseless(frame)
    pids, unsure = _own(work, calls, ranges)
    for frame in (work, calls, ranges):
        frame.reorder(_order(frame, longest_first=frame is not work))
    _refuse_twins(work, quarantine)
    return Parts(work, calls, ranges, names.words, pids, unsure)


def _frames(events: Events) -> tuple[Frame, Frame, Frame]:
    work = Frame(dict(events.device))
    events.device.clear()
    call = events.host["kind"] == CALL
    calls, ranges = (
        Frame({name: values[rows] for name, values in events.host.items() if name != "kind"})
        for rows in (call, ~call)
    )
    events.host.clear()
    return work, calls, ranges


class _Names:
    """Words of the file, decoded; codes into the sorted ones by the code in the file.

    Attributes:
        words: all words, sorted, the empty one among them.
        plain, on_device: new code by old one, as written, and in the spelling of nsys for copies.
        is_mark, is_launch, is_step: what a word names.
    """

    def __init__(self, raw: Sequence[bytes]) -> None:
        plain = [_decoded(word) for word in raw]
        on_device = [_standard(word) for word in plain]
        self.words = sorted({"", *plain, *on_device})
        place = {word: code for code, word in enumerate(self.words)}
        self.plain = np.asarray([*map(place.__getitem__, plain), place[""]], dtype=np.int64)
        self.on_device = np.asarray([*map(place.__getitem__, on_device), NULL], dtype=np.int64)
        self.is_mark = self._which(lambda word: word.split("(", 1)[0] in _MARK_KERNELS)
        # cudaGraphLaunch, cudaGraphLaunch_ptsz, cuGraphLaunch and hipGraphLaunch are one thing.
        self.is_launch = self._which(lambda word: "graphlaunch" in word.lower())
        self.is_step = self._which(lambda word: _STEP.fullmatch(word) is not None)

    def _which(self, test: Callable[[str], bool]) -> Flags:
        return np.asarray([test(word) for word in self.words], dtype=np.bool_)

    @staticmethod
    def settle(frame: Frame, codes: Ints) -> None:
        """Replace the names of a frame; the last code stands for an absent one."""
        name = frame.get("name")
        frame.columns["name"] = codes[np.where(name == NULL, len(codes) - 1, name)]


def _decoded(word: bytes) -> str:
    text = word.decode("utf-8", "replace")
    if "\\" in text:
        try:
            text = str(json.loads(f'"{text}"', strict=False))
        except ValueError:
            return text  # no escape that JSON knows: left as it stands
    # Half a surrogate pair cannot be written anywhere.
    return text.encode("utf-8", "replace").decode("utf-8")


def _standard(word: str) -> str:
    """A copy or memset in the spelling of nsys (its table ENUM_CUDA_MEMCPY_OPER)."""
    copy = _COPY.match(word)
    if copy is not None:
        return f"{_PLACES[copy[1]]}-to-{_PLACES[copy[2]]}"
    if word.startswith("Memcpy PtoP"):
        return "Peer-to-Peer"
    return "Memset" if word.startswith("Memset (") else word


def _keep_believable(frame: Frame, table: str, quarantine: Quarantine) -> None:
    """Drop rows without usable times, and turn durations into ends."""
    there = frame.known("begin") & frame.known("dur")
    _keep(frame, table, "its time is missing or no number", there, quarantine)
    _keep(frame, table, "its time is negative", frame.get("begin") >= 0, quarantine)
    begin, dur = frame.get("begin"), frame.columns.pop("dur")
    frame.columns["end"] = begin + dur
    usable = refuse_bad_times(quarantine, table, begin, begin + dur, longest=_DAY_NS)
    if not usable.all():
        frame.reorder(usable)
    _keep(frame, table, "its time is too late", frame.get("end") < LATE, quarantine)


def _keep(frame: Frame, table: str, reason: str, good: Flags, quarantine: Quarantine) -> None:
    if good.all():
        return
    bad = frame.get("begin")[~good]
    known = bad[bad != NULL]
    sample = f"begin {int(known.min())} ns" if len(known) else "no begin"
    quarantine.add(table, reason, len(bad), sample)
    frame.reorder(good)


def _placed(work: Frame) -> Flags:
    device = work.get("device")
    return (device >= 0) & (device <= _INT32.max) & work.known("stream")


def _drop_senseless(frame: Frame) -> None:
    """Make null what cannot be a value of its column."""
    for name, least in _AT_LEAST.items():
        if name in frame.columns:
            most = _INT32.max if name in ("context", "registers") else np.iinfo(np.int64).max
            values = frame.columns[name]
            frame.columns[name] = np.where((values >= least) & (values <= most), values, NULL)


def _own(work: Frame, calls: Frame, ranges: Frame) -> tuple[tuple[int | None, ...], int]:
    """Give every row its process, and say which processes there are.

    A row of device work does not name its process. It is that of the only process, else of the
    only one that has a call with its correlation id.
    """
    seen = np.unique(np.concatenate([calls.get("pid"), ranges.get("pid")]))
    pids = seen[seen != NULL]
    unknown = len(pids)
    for frame in (calls, ranges):
        pid = frame.columns.pop("pid")
        frame.columns["process"] = np.where(pid == NULL, unknown, np.searchsorted(pids, pid))
    del work.columns["pid"], work.columns["tid"]
    unsure = 0
    if len(seen) == 1:
        work.columns["process"] = np.zeros(work.rows, dtype=np.int64)
    else:
        known = calls.known("correlation")
        pairs = np.unique(
            np.column_stack((calls.get("correlation")[known], calls.get("process")[known])), axis=0
        )
        ids, first, times = np.unique(pairs[:, 0], return_index=True, return_counts=True)
        ids, owner = ids[times == 1], pairs[first[times == 1], 1]
        at = np.minimum(np.searchsorted(ids, work.get("correlation")), max(len(ids) - 1, 0))
        found = ids[at] == work.get("correlation") if len(ids) else np.zeros_like(at, dtype=bool)
        work.columns["process"] = np.where(found, owner[at] if len(ids) else 0, unknown)
        unsure = int(np.count_nonzero(~found)) if unknown else 0
    used = any((frame.get("process") == unknown).any() for frame in (work, calls, ranges))
    return (*pids.tolist(), *([None] if used else [])), unsure


def _order(frame: Frame, *, longest_first: bool) -> Ints:
    """Rows by begin; rows of one begin by every other column, so that file order means nothing."""
    begin = frame.get("begin")
    order = np.argsort(begin, kind="stable")
    ordered = begin[order]
    same = ordered[1:] == ordered[:-1]
    tied = np.r_[False, same] | np.r_[same, False] if len(order) else np.zeros(0, dtype=np.bool_)
    places = np.flatnonzero(tied)
    if len(places):
        rows = order[places]
        major = [name for name in _MAJOR if name in frame.columns]
        minor = sorted(set(frame.columns) - {*major, "begin"})
        keys = [frame.get(name)[rows] for name in (*minor, *reversed(major))]
        if longest_first:
            keys[-1] = -keys[-1]
        order[places] = rows[np.lexsort([*keys, begin[rows]])]
    return order


def _refuse_twins(work: Frame, quarantine: Quarantine) -> None:
    """A node runs once in a replay: later rows of it are refused (ids alias, kineto#1567)."""
    inside = np.flatnonzero(work.known("node") & work.known("correlation"))
    if not len(inside):
        return
    keys = [work.get(name)[inside] for name in ("node", "correlation", "process")]
    order = np.lexsort(keys)
    same = np.ones(len(order) - 1, dtype=np.bool_)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    twins = np.sort(inside[order[1:][same]])
    if len(twins):
        first = int(twins[0])
        sample = (
            f"node {int(work.get('node')[first])}, correlation "
            f"{int(work.get('correlation')[first])}, begin {int(work.get('begin')[first])} ns"
        )
        reason = "its graph node already ran in this replay"
        quarantine.add("activities", reason, len(twins), sample)
        keep = np.ones(work.rows, dtype=np.bool_)
        keep[twins] = False
        work.reorder(keep)
