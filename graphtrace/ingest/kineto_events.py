# SPDX-License-Identifier: Apache-2.0
"""Events of a trace as columns: device work, host calls and annotations."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.kineto_lex import (
    ARRAY,
    ARRAY_END,
    COLON,
    COMMA,
    OBJECT,
    QUOTE,
    Tokens,
    paired,
    tokens_of,
)
from graphtrace.ingest.kineto_scan import Block, Document
from graphtrace.ingest.kineto_values import NULL, Patterns, Spans, Text

__all__ = ["CALL", "CATEGORIES", "COPY", "KERNEL", "NUMBERS", "RANGE", "SET", "Events", "collect"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

KERNEL, COPY, SET, CALL, RANGE = range(1, 6)
"""What an event is."""
CATEGORIES: Final = {
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": SET,
    "memset": SET,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "runtime": CALL,
    "driver": CALL,
    "user_annotation": RANGE,
}
"""Categories that are read; those of 2021 are the short ones, written with a capital."""
_CATEGORY: Final = Patterns.of(tuple(CATEGORIES), fold=True)
_KIND: Final = np.asarray([0, *CATEGORIES.values()], dtype=np.int8)

_OWN: Final = ("cat", "ph", "name", "ts", "dur", "args", "pid", "tid")
_CAT, _PH, _NAME, _TS, _DUR, _ARGS, _PID, _TID = range(1, len(_OWN) + 1)
_INSIDE: Final = (
    "device",
    "inDevice",
    "context",
    "inContext",
    "stream",
    "correlation",
    "registers per thread",
    "shared memory",
    "bytes",
    "graph node id",
    "graph id",
    "grid",
    "block",
)
_DEVICE, _IN_DEVICE, _CONTEXT, _IN_CONTEXT, _STREAM = range(1, 6)
_GRID: Final = len(_INSIDE) - 1
_OWN_KEYS: Final = Patterns.of(_OWN)
_INSIDE_KEYS: Final = Patterns.of(_INSIDE)
_COMPLETE: Final = Patterns.of(("X",))
_LANE: Final = Patterns.of(("stream ",))
_LANE_SIZE: Final = len("stream ")

NUMBERS: Final = (
    "pid",
    "tid",
    "device",
    "context",
    "stream",
    "correlation",
    "registers",
    "shared",
    "bytes",
    "node",
    "graph_id",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
)
"""Columns of integers beside the times."""
_TIMED: Final = ("kind", "name", "begin", "dur")
_HOST: Final = (*_TIMED, "pid", "tid", "correlation")


@dataclass(slots=True)
class Events:
    """Events of interest, in the order of the file.

    Columns are int64 with `NULL` where a value is absent or none of its type: `kind`, `name` (code
    into `words`), `begin` and `dur` in ns, and `NUMBERS`, of which host events have three.

    Attributes:
        device: kernels, copies and memsets.
        host: calls and annotations.
        words: names as they stand in the file, between the quotes.
    """

    device: dict[str, Ints]
    host: dict[str, Ints]
    words: list[bytes]


def collect(document: Document) -> Events:
    """Read the events of interest; of all others nothing is kept, and but their extent checked.

    Raises:
        InputError: see `Document.blocks`.
    """
    gathered = _Gathered()
    for block in document.blocks():
        text = Text(block.strings.text)
        tokens = _tokens(block, text)
        if tokens is None:
            continue
        if not _well_formed(tokens):
            raise document.corrupt("An event in it is no object.")
        gathered.add(text, tokens)
    device = {name: gathered.column(gathered.device, name) for name in (*_TIMED, *NUMBERS)}
    host = {name: gathered.column(gathered.host, name) for name in _HOST}
    return Events(device, host, list(gathered.codes))


@dataclass(slots=True)
class _Gathered:
    """Events so far, each column still in parts; words are shared by all parts."""

    device: dict[str, list[Any]] = field(default_factory=dict)
    host: dict[str, list[Any]] = field(default_factory=dict)
    codes: dict[bytes, int] = field(default_factory=dict)

    def add(self, text: Text, tokens: Tokens) -> None:
        """Take some events of one block."""
        columns, words = _read(text, tokens)
        if not len(columns["kind"]):
            return
        shared = [self.codes.setdefault(word, len(self.codes)) for word in words]
        place = np.asarray(shared or [0], dtype=np.int64)
        named = columns["name"] >= 0
        columns["name"] = np.where(named, place[np.where(named, columns["name"], 0)], NULL)
        on_device = columns["kind"] <= SET
        parts = (
            (self.device, on_device, (*_TIMED, *NUMBERS)),
            (self.host, ~on_device, _HOST),
        )
        for kept, rows, names in parts:
            if rows.any():
                for name in names:
                    kept.setdefault(name, []).append(_narrowed(columns[name][rows]))

    @staticmethod
    def column(parts: dict[str, list[Any]], name: str) -> Ints:
        """One column whole; its parts are given up."""
        pieces = parts.pop(name, [])
        if not pieces:
            return np.zeros(0, dtype=np.int64)
        whole = np.empty(sum(len(piece) for piece in pieces), dtype=np.int64)
        at = 0
        for piece in pieces:
            there = whole[at : at + len(piece)]
            there[:] = piece
            if piece.dtype != np.int64:
                there[piece == np.iinfo(piece.dtype).min] = NULL
            at += len(piece)
        return whole


def _narrowed(values: Ints) -> npt.NDArray[Any]:
    """The values in 32 bits where they fit, absent ones as the least number of the type."""
    absent = values == NULL
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    if ((values > low) & (values <= high) | absent).all():
        return np.where(absent, low, values).astype(np.int32)
    return values


def _tokens(block: Block, text: Text) -> Tokens | None:
    """Tokens of the events that may be of interest: those with such a category anywhere in them."""
    place = text.found(b'"cat"')
    colon = text.after_blanks(place + len(b'"cat"'))
    quote = text.after_blanks(colon + (text.bytes[colon] == ord(":")))
    words = text.until_quote(quote + 1, _CATEGORY)
    place = place[text.codes(words, _CATEGORY) > 0]
    event = np.searchsorted(block.begin, place, side="right") - 1
    event = event[(event >= 0) & (place < block.end[event])]
    if not len(event):
        return None
    wanted = np.zeros(len(block.begin), dtype=np.bool_)
    wanted[event] = True
    # Bytes before the first event, then of each event, and of what follows it.
    flags = np.zeros(2 * len(wanted) + 1, dtype=np.bool_)
    flags[1::2] = wanted
    borders = np.column_stack((block.begin, block.end)).reshape(-1)
    lengths = np.diff(np.r_[0, borders, len(text.bytes)])
    return tokens_of(block.strings, np.repeat(flags, lengths))


def _well_formed(tokens: Tokens) -> bool:
    """Whether brackets match and every colon stands behind a string."""
    colon = np.flatnonzero(tokens.kind == COLON)
    if len(colon) and int(colon[0]) < 3:
        return False
    behind = (tokens.kind[colon - 1] == QUOTE) & (tokens.kind[colon - 2] == QUOTE)
    return bool(behind.all()) and paired(tokens.kind, tokens.depth)


def _read(text: Text, tokens: Tokens) -> tuple[dict[str, Ints], list[bytes]]:
    """Columns of the events of interest, and their names."""
    members = _Members(tokens, text)
    columns: dict[str, Ints] = {name: _absent(members.rows) for name in NUMBERS}
    columns["kind"] = members.kind.astype(np.int64)
    columns |= _times(members, text)
    _integers(members, text, columns)
    keep = _complete(members, text)
    codes, words = _names(members, text)
    columns["name"] = codes
    if not keep.all():
        columns = {name: values[keep] for name, values in columns.items()}
    return columns, words


def _absent(rows: int) -> Ints:
    return np.full(rows, NULL, dtype=np.int64)


class _Members:
    """The members `"key": value` of the events of interest of a block.

    Attributes:
        rows: number of these events.
        kind: what each is.
        row: event of each member.
        own, inside: code of the key of each member, of the event or of its `args`; 0 for others.
    """

    def __init__(self, tokens: Tokens, text: Text) -> None:
        self._at, self._kinds = tokens.at, tokens.kind
        opens = np.flatnonzero((tokens.kind == OBJECT) & (tokens.depth == 1))
        colon = np.flatnonzero(tokens.kind == COLON)
        level = tokens.depth[colon]
        top = colon[level == 1]
        is_category = self._keys(top, text, Patterns.of(("cat",))) > 0
        category = top[is_category]
        quoted = self._kinds[category + 1] == QUOTE
        found = np.where(quoted, _KIND[text.codes(self.values(category), _CATEGORY)], 0)
        kinds = np.zeros(len(opens), dtype=np.int8)
        kinds[np.searchsorted(opens, category) - 1] = found
        wanted = kinds > 0
        self.kind = kinds[wanted]
        self.rows = len(self.kind)
        # Tokens of other events are not looked at again.
        counts = np.diff(np.r_[opens, len(tokens.at)])
        near = np.repeat(wanted, counts)[colon] & (level <= 2)
        self.colon, level = colon[near], level[near]
        self.row = (np.cumsum(wanted) - 1)[np.searchsorted(opens, self.colon) - 1]
        self._name_keys(level, text)

    def _keys(self, colon: Ints, text: Text, patterns: Patterns) -> npt.NDArray[np.int8]:
        return text.codes(Spans(self._at[colon - 2] + 1, self._at[colon - 1]), patterns)

    def _name_keys(self, level: npt.NDArray[np.int32], text: Text) -> None:
        count = len(self.colon)
        first = np.flatnonzero(level == 1)
        self.own = np.zeros(count, dtype=np.int8)
        self.own[first] = self._keys(self.colon[first], text, _OWN_KEYS)
        # A member of depth 2 belongs to the last one of depth 1 before it; of several `args` the
        # last one counts, as everywhere.
        above = np.maximum.accumulate(np.where(level == 1, np.arange(count), -1))
        args = np.full(self.rows, -1, dtype=np.int64)
        named = np.flatnonzero(self.own == _ARGS)
        named = named[self._kinds[self.colon[named] + 1] == OBJECT]
        args[self.row[named]] = named
        second = np.flatnonzero(level == 2)
        second = second[above[second] == args[self.row[second]]]
        self.inside = np.zeros(count, dtype=np.int8)
        self.inside[second] = self._keys(self.colon[second], text, _INSIDE_KEYS)

    def values(self, colon: Ints) -> Spans:
        """Where the value behind each colon stands: a string's inside, or a scalar's text."""
        quoted = self._kinds[colon + 1] == QUOTE
        begin = np.where(quoted, self._at[colon + 1], self._at[colon]) + 1
        end = self._at[np.where(quoted, colon + 2, colon + 1)]
        return Spans(begin, end)

    def quoted(self, colon: Ints) -> Flags:
        """Whether the value behind each colon is a string."""
        flags: Flags = self._kinds[colon + 1] == QUOTE
        return flags

    def triples(self, colon: Ints) -> tuple[Flags, tuple[Spans, Spans, Spans]]:
        """Which values are lists of three scalars, and these three."""
        last = len(self._kinds) - 1
        places = [np.minimum(colon + step, last) for step in range(1, 5)]
        shape = np.ones(len(colon), dtype=np.bool_)
        for place, kind in zip(places, (ARRAY, COMMA, COMMA, ARRAY_END), strict=True):
            shape &= self._kinds[place] == kind
        at = [self._at[place[shape]] for place in places]
        spans = [Spans(one + 1, other) for one, other in pairwise(at)]
        return shape, (spans[0], spans[1], spans[2])


def _times(members: _Members, text: Text) -> dict[str, Ints]:
    which = np.flatnonzero((members.own == _TS) | (members.own == _DUR))
    spans = text.stripped(members.values(members.colon[which]))
    value = text.nanoseconds(spans)
    found = {}
    for name, code in (("begin", _TS), ("dur", _DUR)):
        mine = members.own[which] == code
        found[name] = _absent(members.rows)
        found[name][members.row[which[mine]]] = value[mine]
    return found


def _integers(members: _Members, text: Text, columns: dict[str, Ints]) -> None:
    """Fill in all columns of integers."""
    own = np.flatnonzero(members.own >= _PID)
    inside = np.flatnonzero((members.inside > 0) & (members.inside < _GRID))
    which = np.r_[own, inside]
    spans = text.stripped(members.values(members.colon[which]))
    value = text.integers(spans)
    row = members.row[which]
    codes = members.own[own]
    columns["pid"][row[: len(own)][codes == _PID]] = value[: len(own)][codes == _PID]
    tids = np.flatnonzero(codes == _TID)
    columns["tid"][row[tids]] = _lanes(text, spans.pick(tids), value[tids])
    names = ["device", "device", "context", "context", *NUMBERS[4:11]]
    codes = members.inside[inside]
    row, value = row[len(own) :], value[len(own) :]
    # The device and context that a copy ran in stand for those that a peer-to-peer copy lacks.
    for code in (_IN_DEVICE, _IN_CONTEXT, _DEVICE, _CONTEXT, *range(_STREAM, _GRID)):
        mine = codes == code
        if not mine.any():
            continue
        # Of several members of one name the last one counts, be it no number.
        said = _absent(members.rows)
        said[row[mine]] = value[mine]
        column = columns[names[code - 1]]
        column[said != NULL] = said[said != NULL]
    for name, code in (("grid", _GRID), ("block", _GRID + 1)):
        mine = np.flatnonzero(members.inside == code)
        shape, triple = members.triples(members.colon[mine])
        for axis, part in zip("xyz", triple, strict=True):
            size = np.full(len(mine), NULL, dtype=np.int64)
            size[shape] = text.integers(text.stripped(part))
            columns[f"{name}_{axis}"][members.row[mine]] = size
    device = columns["kind"] <= SET
    for name, other in (("device", "pid"), ("stream", "tid")):
        lacks = device & (columns[name] == NULL)
        columns[name][lacks] = columns[other][lacks]


def _lanes(text: Text, spans: Spans, value: Ints) -> Ints:
    """Numbers of threads or streams; in 2021 a stream was called `stream 7`."""
    odd = np.flatnonzero(value == NULL)
    if len(odd):
        begin, end = spans.begin[odd], spans.end[odd]
        start = np.minimum(begin + _LANE_SIZE, end)
        lane = text.codes(Spans(begin, start), _LANE) > 0
        value = value.copy()
        value[odd[lane]] = text.integers(Spans(start[lane], end[lane]))
    return value


def _complete(members: _Members, text: Text) -> Flags:
    """Which events are complete ones, with a begin and a duration."""
    which = np.flatnonzero(members.own == _PH)
    colon = members.colon[which]
    yes = (text.codes(members.values(colon), _COMPLETE) > 0) & members.quoted(colon)
    keep = np.zeros(members.rows, dtype=np.bool_)
    keep[members.row[which]] = yes
    return keep


def _names(members: _Members, text: Text) -> tuple[Ints, list[bytes]]:
    which = np.flatnonzero(members.own == _NAME)
    last = np.full(members.rows, -1, dtype=np.int64)
    last[members.row[which]] = members.colon[which]
    some = np.flatnonzero(last >= 0)
    some = some[members.quoted(last[some])]
    codes, words = text.words(members.values(last[some]))
    name = _absent(members.rows)
    name[some] = codes
    return name, words
