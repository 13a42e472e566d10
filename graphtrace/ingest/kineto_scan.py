# SPDX-License-Identifier: Apache-2.0
"""Walk over a trace's JSON: a few values of its header, and its events block by block."""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphtrace.ingest.kineto_lex import Ints, Strings
from graphtrace.ingest.kineto_values import PAD, Spans, Text
from graphtrace.model.errors import InputCorrupt, InputTruncated, InputUnsupported

__all__ = ["Block", "Document"]

_BLANKS: Final = b" " * PAD
_MOST_EVENT: Final = 1 << 26
"""Longest event or name of a value, bytes: real ones with call stacks take some ten thousand."""
_MOST_VALUE: Final = 1 << 24
"""Longest value of the header that is kept, bytes."""
_EVENTS: Final = "traceEvents"
_WANTED: Final = frozenset(
    {
        "schemaVersion",
        "deviceProperties",
        "distributedInfo",
        "baseTimeNanoseconds",
        "roctracer_version",
        "hip_runtime_version",
        "hip_driver_version",
        "graphtrace_synthetic",
    }
)
"""Values that are read; no other one (names of users, files, hosts) leaves this module."""
_BLANK: Final = re.compile(rb"[ \t\r\n]*+")
_SCALAR: Final = re.compile(rb"[^\s,\]}]*+")
_LIST_END: Final = re.compile(rb"[ \t\r\n]*+\]")
_GOES: Final = re.compile(rb"[ \t\r\n]*+(?:\{|\Z)")
_GOES_ON: Final = re.compile(rb"[ \t\r\n]*+(?:\Z|,[ \t\r\n]*+(?:\{|\Z))")
"""What follows an event that is not the last one: a whole or a cut separator, then an event."""
_WINDOW: Final = 1 << 16
"""How much of a value of the header is looked at in one go."""
_CLOSED: Final = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole events.

    Attributes:
        strings: text that they are in, with `PAD` blanks before and behind it.
        begin: where each begins.
        end: where what follows it begins.
    """

    strings: Strings
    begin: Ints
    end: Ints


class Document:
    """A trace that is being read, once, from beginning to end.

    Attributes:
        header: values of the top level that are wanted, by name; complete after `blocks`.
        listed: whether there was a list of events.
    """

    def __init__(self, path: Path, pieces: Iterator[bytes]) -> None:
        self._path = path
        self._pieces = pieces
        self._text = b""
        self._at = 0
        self._before = 0
        self._ended = False
        self.header: dict[str, Any] = {}
        self.listed = False

    def blocks(self) -> Iterator[Block]:
        """The events, in the order of the file.

        Raises:
            InputTruncated: the text ends too early.
            InputCorrupt: it is no JSON.
            InputUnsupported: it is no trace.
        """
        self._more()
        if self._text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputUnsupported(
                f"{self._path} is text in UTF-16.",
                "JSON is written in UTF-8, by the profiler and by every tool that reads it.",
                "Convert it first: iconv -f UTF-16 -t UTF-8 TRACE > TRACE.utf8.json",
            )
        if self._text.startswith(codecs.BOM_UTF8):
            self._drop(len(codecs.BOM_UTF8))
        first = self._next()
        if first == b"[":
            self._drop(1)
            yield from self._events()
        elif first == b"{":
            self._drop(1)
            yield from self._members()
        else:
            raise self.corrupt("It begins with neither an object nor a list.")
        if self._next(may_end=True):
            raise self.corrupt("Something follows its end.")

    def _members(self) -> Iterator[Block]:
        if self._next() == b"}":
            self._drop(1)
            return
        while True:
            if self._next() != b'"':
                raise self.corrupt("A name is missing in its top level.")
            name = self._string()
            if self._next() != b":":
                raise self.corrupt("A value is missing in its top level.")
            self._drop(1)
            begins = self._next()
            if name == _EVENTS and begins == b"[":
                self._drop(1)
                yield from self._events()
            else:
                self._value(name, begins)
            after = self._next()
            self._drop(1)
            if after == b"}":
                return
            if after != b",":
                raise self.corrupt("Values of its top level are not separated.")

    def _value(self, name: str, begins: bytes) -> None:
        wanted = name in _WANTED
        if begins in (b"{", b"["):
            text = self._container(keep=wanted)
        elif begins == b'"':
            text = json.dumps(self._string()).encode()
        else:
            text = self._scalar()
        if wanted and len(text) <= _MOST_VALUE:
            self.header[name] = self._loaded(text)

    def _loaded(self, text: bytes) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.corrupt("A value of its header is no JSON.") from error

    def _string(self) -> str:
        """The string at the current place."""
        while True:
            found = _CLOSED.match(self._text, self._at + 1)
            if found is not None:
                text = self._text[self._at + 1 : found.end() - 1]
                self._drop(found.end() - self._at)
                # Names of the top level are plain; what is not is of no interest either.
                return text.decode("utf-8", "replace")
            self._refuse_long()
            self._more(must=True)

    def _scalar(self) -> bytes:
        while True:
            found = _SCALAR.match(self._text, self._at)
            end = found.end() if found is not None else self._at
            if end < len(self._text):
                text = self._text[self._at : end]
                if not text:
                    raise self.corrupt("A value is missing in its top level.")
                self._drop(len(text))
                return text
            self._refuse_long()
            self._more(must=True)

    def _container(self, *, keep: bool) -> bytes:
        """The list or object at the current place; nothing of it is held unless it is wanted."""
        kept = b""
        inside, depth, held = False, 0, 0
        while True:
            window = self._text[self._at : self._at + max(_WINDOW, held + 1)]
            text = window.rstrip(b"\\")  # an escape must not be cut from what it escapes
            strings = Strings(text, inside=inside)
            # Of the characters of JSON only brackets are equal to these in all but one bit.
            folded = strings.bytes & 0xDF
            at = strings.outside((folded == ord("[")) | (folded == ord("]")))
            levels = depth + np.cumsum(np.where(folded[at] == ord("["), 1, -1))
            closed = np.flatnonzero(levels <= 0)
            end = int(at[closed[0]]) + 1 if len(closed) else len(text)
            if keep and len(kept) <= _MOST_VALUE:
                kept += text[:end]
            self._drop(end)
            if len(closed):
                return kept
            inside = strings.ends_inside
            depth = int(levels[-1]) if len(levels) else depth
            held = 2 * (len(window) - len(text))
            if len(self._text) - self._at <= len(window) - len(text):
                self._refuse_long()
                self._more(must=True)

    def _events(self) -> Iterator[Block]:
        """Events up to the end of their list, of which the beginning was passed."""
        if self.listed:
            raise self.corrupt("It has two lists of events, and does not say which one counts.")
        self.listed = True
        separator = b""
        while True:
            padded = b"".join((_BLANKS, memoryview(self._text)[self._at :], _BLANKS))
            strings = Strings(padded)
            begin, end = _objects(strings)
            count = self._separated(padded, begin, end, separator)
            if count:
                yield Block(strings, begin[:count], end[:count])
                separator = b","
                self._drop(int(end[count - 1]) - PAD)
            over = _LIST_END.match(self._text, self._at)
            if over is not None:
                self._drop(over.end() - self._at)
                return
            follows = (_GOES_ON if separator else _GOES).match(self._text, self._at)
            if count < len(begin) or follows is None:
                raise self.corrupt("Its list of events is no list of objects.")
            self._refuse_long()
            self._more(must=True)

    @staticmethod
    def _separated(text: bytes, begin: Ints, end: Ints, separator: bytes) -> int:
        """How many of the objects are events: separated by one comma and nothing else."""
        if not len(begin):
            return 0
        gaps = Text(text).stripped(Spans(np.r_[PAD, end[:-1]], begin))
        first = text[int(gaps.begin[0]) : int(gaps.end[0])]
        if first != separator:
            return 0
        comma = np.frombuffer(text, dtype=np.uint8)[gaps.begin] == ord(",")
        wrong = np.flatnonzero(~comma[1:] | (gaps.end - gaps.begin != 1)[1:])
        return int(wrong[0]) + 1 if len(wrong) else len(begin)

    def _next(self, *, may_end: bool = False) -> bytes:
        """The next character that is no blank, without passing it; empty at the end."""
        while True:
            found = _BLANK.match(self._text, self._at)
            self._drop(found.end() - self._at if found is not None else 0)
            if self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            if self._ended and may_end:
                return b""
            self._more(must=not may_end)

    def _drop(self, count: int) -> None:
        self._before += count
        self._at += count

    def _more(self, *, must: bool = False) -> None:
        """Read on: as much again as is held, so that a long value costs no more than its length."""
        parts = [self._text[self._at :]]
        wanted = max(len(parts[0]), 1)
        while wanted > 0:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            parts.append(piece)
            wanted -= len(piece)
        if len(parts) == 1 and must:
            raise InputTruncated(
                f"{self._path} is cut short.",
                f"Its JSON ends after {self._before + len(parts[0]):,} bytes, before it is "
                "complete.",
                "Copy or download it again, or profile again and let the export finish.",
            )
        self._text = b"".join(parts)
        self._at = 0

    def _refuse_long(self) -> None:
        if len(self._text) - self._at > _MOST_EVENT:
            raise self.corrupt(f"One event or name in it is longer than {_MOST_EVENT >> 20} MiB.")

    def corrupt(self, detail: str) -> InputCorrupt:
        """The error of a text that is no JSON, with the place that reading came to."""
        return InputCorrupt(
            f"{self._path} is no valid JSON near byte {self._before:,}.",
            detail,
            "Copy or download it again, or profile again; python -m json.tool shows the place.",
        )


def _objects(strings: Strings) -> tuple[Ints, Ints]:
    """Begin and end of the whole objects at the top level, before one that was not opened."""
    text = strings.bytes
    at = strings.outside((text == ord("{")) | (text == ord("}")))
    opens = text[at] == ord("{")
    depth = np.cumsum(np.where(opens, 1, -1))
    over = np.flatnonzero(depth < 0)
    if len(over):
        at, opens, depth = (values[: over[0]] for values in (at, opens, depth))
    begin, end = at[opens & (depth == 1)], at[~opens & (depth == 0)] + 1
    return begin[: len(end)], end
