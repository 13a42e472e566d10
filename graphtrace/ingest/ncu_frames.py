# SPDX-License-Identifier: Apache-2.0
"""The framing of an Nsight Compute report: a walk that proves the file whole before it is read.

`ncu_report` opens truncated and damaged files without a word and yields no result, or one without
a name; on some it aborts the process. So the file is walked first, in Python, by the layout that
NVIDIA publishes (`extras/FileFormat/*.proto` of Nsight Compute):

    "NVR" and a zero byte
    uint32 size, FileHeader
    blocks up to the end of the file, each:
        uint32 size, BlockHeader
        BlockHeader.PayloadSize bytes: messages, each `uint32 size, message`,
        first the sources, then the results

Damage inside a message that leaves all sizes and types whole cannot be seen by anybody.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from graphtrace.ingest.ncu_wire import BYTES, VARINT, Damage, check_metric, fields
from graphtrace.model.errors import InputCorrupt, InputEmpty, InputTruncated, InputUnsupported

__all__ = ["MAGIC", "Report", "Result", "walk"]

MAGIC: Final = b"NVR\0"
_SIZE: Final = struct.Struct("<I")
_LARGEST: Final = 2**31 - 1
"""No protocol buffer message is longer."""
_HEADER_LIMIT: Final = 1 << 16
_AGAIN: Final = "Copy or download the report again, whole, or profile again."

_SOURCES, _RESULTS = 1, 2
_COUNTS: Final = (_SOURCES, _RESULTS, 7, 8, 9, 10)
"""Counts of sources, kernel, range, command list and graph results, and graphs."""
_BLOCK_WIRE: Final[Mapping[int, int]] = {
    **dict.fromkeys(_COUNTS, VARINT),
    3: BYTES,
    4: BYTES,
    5: VARINT,
    6: BYTES,
}
_RESULT_WIRE: Final[Mapping[int, int]] = {
    **dict.fromkeys((1, 2, 3, 4, 8), VARINT),
    **dict.fromkeys((5, 6, 7, 9, 10, 11, 13, 15), BYTES),
}
_RESULT_REQUIRED: Final = frozenset(_RESULT_WIRE) - {13}
_RESULT_METRIC: Final = 13
_OTHER_METRIC: Final = 4
_CLOCK_STATUS: Final = 25
_TARGET: Final = "Nsight Compute Target"


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel result as the framing shows it.

    Attributes:
        function: name of the kernel's function.
        metrics: number of distinct metrics.
        process_id: process that launched it, where the report says.
        clock_locked: whether the profiler could lock the clocks, where it tried and says so.
        size: bytes of the result in the file.
    """

    function: str
    metrics: int
    process_id: int | None
    clock_locked: bool | None
    size: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a report holds, without the values.

    Attributes:
        results: kernel results, in the order of the file.
        others: results of ranges, command lists and whole graphs.
        version: version of the Nsight Compute that profiled.
        command_lines: command lines of the profiler; for `measured` only, never for an output.
    """

    results: tuple[Result, ...]
    others: int
    version: str | None
    command_lines: tuple[str, ...] = field(repr=False)


@dataclass(slots=True)
class _Found:
    """What the walk has gathered so far."""

    results: list[Result] = field(default_factory=list)
    others: int = 0
    version: str | None = None
    command_lines: list[str] = field(default_factory=list, repr=False)
    strings: int = 0
    highest_name: int = -1


@dataclass(frozen=True, slots=True)
class _Block:
    """Header of a block."""

    payload: int
    counts: Mapping[int, int]
    process_id: int | None


class _Reader:
    """Reads a file in steps that are checked against its size."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path = path
        self.size = size
        self.at = 0
        self._file = file

    def take(self, length: int, what: str) -> bytes:
        if length > _LARGEST:
            raise Damage(f"claims {length} bytes, more than any message can have")
        left = self.size - self.at
        if length > left:
            raise InputTruncated(
                f"{self.path} is cut short.",
                f"It is an Nsight Compute report: {what} at byte {self.at} needs {length} bytes, "
                f"and {left} are left.",
                _AGAIN,
            )
        data = self._file.read(length)
        if len(data) != length:
            raise InputTruncated(
                f"{self.path} became shorter while it was read.",
                f"It is an Nsight Compute report: {what} at byte {self.at} could not be read.",
                "Wait until it is written, then run this again.",
            )
        self.at += length
        return data

    def sized(self, what: str) -> bytes:
        (length,) = _SIZE.unpack(self.take(_SIZE.size, f"the size of {what}"))
        return self.take(length, what)


def walk(path: Path) -> Report:
    """Walk a report from its first to its last byte.

    Memory stays bounded by the largest message of the report.

    Args:
        path: a regular file.

    Raises:
        InputEmpty: the file has no bytes.
        InputUnsupported: the file does not begin as a report does.
        InputTruncated: the file ends before what its sizes announce.
        InputCorrupt: sizes, types or counts contradict each other.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        reader = _Reader(path, file, size)
        if size == 0:
            raise InputEmpty(f"{path} is empty.", "It has no bytes.", _AGAIN)
        start = file.read(len(MAGIC))
        if start != MAGIC[: len(start)]:
            raise InputUnsupported(
                f"{path} is no Nsight Compute report.",
                "It does not begin as every report does.",
                "Give a file that ncu wrote with --export.",
            )
        file.seek(0)
        found = _Found()
        block = 0
        try:
            reader.take(len(MAGIC), "the first word")
            _file_header(reader)
            while reader.at < size:
                block += 1
                _walk_block(reader, block, found)
            if not block:
                reader.take(_SIZE.size, "the first block")
            if found.highest_name >= found.strings:
                raise Damage("names a metric that its string tables do not have")
        except Damage as damage:
            what = f"block {block}" if block else "header"
            raise InputCorrupt(
                f"{path} is damaged.",
                f"It is an Nsight Compute report, but its {what} {damage.why}.",
                _AGAIN,
            ) from None
    return Report(
        tuple(found.results), found.others, found.version, tuple(dict.fromkeys(found.command_lines))
    )


def _file_header(reader: _Reader) -> None:
    (length,) = _SIZE.unpack(reader.take(_SIZE.size, "the size of the header"))
    if not 0 < length <= _HEADER_LIMIT:
        raise Damage(f"claims {length} bytes")
    data = reader.take(length, "the header")
    versions = [
        a for number, wire, a, _ in fields(data, 0, length) if (number, wire) == (1, VARINT)
    ]
    if not versions:
        raise Damage("has no version")


def _walk_block(reader: _Reader, number: int, found: _Found) -> None:
    header = reader.sized(f"the header of block {number}")
    if not header:
        raise Damage("has a header of no bytes")
    block = _block(header, found)
    if block.payload > reader.size - reader.at:
        reader.take(block.payload, f"the content of block {number}")
    end = reader.at + block.payload
    messages = 0
    while reader.at < end:
        what = f"message {messages + 1} of block {number}"
        if end - reader.at < _SIZE.size:
            raise Damage("has content that its messages do not fill")
        (length,) = _SIZE.unpack(reader.take(_SIZE.size, what))
        if length > end - reader.at:
            raise Damage("has a message that is longer than its content")
        _message(reader.take(length, what), messages, block, found)
        messages += 1
    announced = sum(block.counts.values())
    # The order and number of what newer versions add is not known; these two always agree.
    plain = set(block.counts) <= {_SOURCES, _RESULTS}
    if messages < announced or (plain and messages != announced):
        raise Damage(f"announces {announced} messages and has {messages}")


def _block(header: bytes, found: _Found) -> _Block:
    payload = 0
    process_id: int | None = None
    counts: dict[int, int] = {}
    for number, wire, first, last in fields(header, 0, len(header)):
        if wire != _BLOCK_WIRE.get(number, wire):
            raise Damage("has a header field of the wrong type")
        if number in _COUNTS:
            if first:
                counts[number] = first
        elif number == 3:
            _session(header, first, last, found)
        elif number == 4:
            found.strings += _strings(header, first, last)
        elif number == 5:
            payload = first
        elif number == 6:
            process_id = _process(header, first, last)
    if payload > _LARGEST:
        raise Damage(f"claims {payload} bytes of content, more than a report can have")
    return _Block(payload, counts, process_id)


def _strings(data: bytes, at: int, end: int) -> int:
    count = 0
    for number, wire, first, last in fields(data, at, end):
        if number == 1:
            if wire != BYTES:
                raise Damage("has a string table that holds something else")
            try:
                data[first:last].decode()
            except UnicodeDecodeError:
                raise Damage("has a string table that holds no text") from None
            count += 1
    return count


def _process(data: bytes, at: int, end: int) -> int | None:
    """The process id; the host and program names beside it are never read."""
    for number, wire, first, _ in fields(data, at, end):
        if (number, wire) == (1, VARINT):
            return first if first < 2**63 else None
    return None


def _session(data: bytes, at: int, end: int, found: _Found) -> None:
    """Take version and command line; host, environment and program are never read."""
    for number, wire, first, last in fields(data, at, end):
        if (number, wire) == (8, BYTES):
            parts = {n: data[a:b] for n, w, a, b in fields(data, first, last) if w == BYTES}
            if parts.get(1) == _TARGET.encode():
                found.version = parts.get(2, b"").decode("utf-8", "replace") or None
        elif (number, wire) == (11, BYTES):
            found.command_lines.append(data[first:last].decode("utf-8", "replace"))


def _message(data: bytes, position: int, block: _Block, found: _Found) -> None:
    sources = block.counts.get(_SOURCES, 0)
    kernels = block.counts.get(_RESULTS, 0)
    if position < sources:
        for _ in fields(data, 0, len(data)):
            pass
    elif position < sources + kernels:
        found.results.append(_kernel(data, block.process_id, found))
    else:
        found.others += 1
        for number, wire, first, last in fields(data, 0, len(data)):
            if (number, wire) == (_OTHER_METRIC, BYTES):
                check_metric(data, first, last)


def _kernel(data: bytes, process_id: int | None, found: _Found) -> Result:
    seen: set[int] = set()
    names: set[int] = set()
    function = ""
    locked: bool | None = None
    for number, wire, first, last in fields(data, 0, len(data)):
        if number == _RESULT_METRIC:
            if wire != BYTES:
                raise Damage("has a result with a metric of the wrong type")
            names.add(check_metric(data, first, last))
            continue
        seen.add(number)
        if wire != _RESULT_WIRE.get(number, wire):
            raise Damage("has a result with a field of the wrong type")
        if number == 6:
            function = data[first:last].decode("utf-8", "replace")
        elif (number, wire) == (_CLOCK_STATUS, BYTES):
            locked = _clock_locked(data, first, last)
    if _RESULT_REQUIRED - seen:
        raise Damage("has a result without a name, a size or a source")
    found.highest_name = max(found.highest_name, *names, -1)
    return Result(function, len(names), process_id, locked, len(data))


def _clock_locked(data: bytes, at: int, end: int) -> bool | None:
    flags = {n: value for n, wire, value, _ in fields(data, at, end) if wire == VARINT}
    return bool(flags.get(2)) if flags.get(1) else None
