# SPDX-License-Identifier: Apache-2.0
"""Reads what a recorded program wrote: records and definitions of each process.

The writer may have been killed at any instruction and the disk may have been full: what is whole
is used, what is not is counted.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphtrace.model import records

__all__ = ["RECORD_TYPE", "RawProcess", "read_raw"]

RECORD_TYPE: Final = np.dtype(
    [
        ("time", "<u8"),
        ("thread", "<u4"),
        ("ident", "<u4"),
        ("access", "<u4"),
        ("kind", "<u2"),
        ("flags", "<u2"),
        ("batch", "<u4"),
        ("tag", "<u4"),
    ]
)

_HELLO: Final = ("pid", "begin_ns")


@dataclass(slots=True)
class RawProcess:
    """One recorded process.

    Attributes:
        hello: its first words: pid, Python version, begin.
        events: its records in the order in which they were made, with RECORD_TYPE.
        lines: its definitions and notes by type.
        lost: records that found no room, exactly.
        torn: records that were begun and never completed.
        bad_lines: definitions that cannot be read.
        bad_segments: files of records that cannot be read.
    """

    hello: dict[str, Any]
    events: npt.NDArray[np.void]
    lines: dict[str, list[dict[str, Any]]]
    lost: int = 0
    torn: int = 0
    bad_lines: int = 0
    bad_segments: int = 0

    def last(self, kind: str) -> dict[str, Any]:
        """The last line of a type; empty where there is none."""
        found = self.lines.get(kind)
        return found[-1] if found else {}

    def number(self, kind: str, name: str) -> int | None:
        """A whole number in the last line of a type."""
        value = self.last(kind).get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(slots=True)
class _Lines:
    by_type: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    bad: int = 0


def _read_lines(path: Path) -> _Lines:
    lines = _Lines()
    for raw in path.read_bytes().split(b"\n"):
        if not raw:
            continue
        try:
            item = json.loads(raw)
        except (ValueError, RecursionError):
            lines.bad += 1
            continue
        if isinstance(item, dict) and isinstance(item.get("type"), str):
            lines.by_type.setdefault(item["type"], []).append(item)
        else:
            lines.bad += 1
    return lines


def _read_segment(path: Path) -> tuple[int, int, npt.NDArray[np.void]] | None:
    """Ordinal, wanted records and slots of a segment; None where it is no segment."""
    data = path.read_bytes()
    if len(data) < records.HEADER_BYTES:
        return None
    magic, version, _, ordinal, capacity, wanted = records.HEADER.unpack_from(data)
    if magic != records.MAGIC or version != records.LAYOUT_VERSION:
        return None
    if capacity != records.SEGMENT_RECORDS or ordinal >= 1 << 20:
        return None
    whole = (len(data) - records.HEADER_BYTES) // records.RECORD_BYTES
    slots = np.frombuffer(
        data, dtype=RECORD_TYPE, count=min(whole, capacity), offset=records.HEADER_BYTES
    )
    return ordinal, wanted, slots


def _read_process(folder: Path, stem: str, lines: _Lines) -> RawProcess:
    process = RawProcess(lines.by_type["hello"][0], np.zeros(0, dtype=RECORD_TYPE), lines.by_type)
    process.bad_lines = lines.bad
    parts, wanted, last, found, used = [], 0, -1, 0, 0
    segments = sorted(folder.glob(f"{stem}.*.rec"))
    for path in segments:
        segment = _read_segment(path)
        if segment is None:
            process.bad_segments += 1
            continue
        ordinal, more, slots = segment
        wanted = max(wanted, more)
        base = ordinal * records.SEGMENT_RECORDS
        expected = (np.arange(len(slots), dtype=np.uint64) + np.uint64(base + 1)) & np.uint64(
            0xFFFFFFFF
        )
        whole = slots["tag"] == expected.astype(np.uint32)
        rows = np.flatnonzero(whole)
        used += int(np.count_nonzero(whole | (slots["tag"] != 0)))
        process.bad_segments += len(slots) < records.SEGMENT_RECORDS
        if len(rows):
            last = max(last, base + int(rows[-1]))
            found += len(rows)
            parts.append((ordinal, slots[rows]))
    parts.sort(key=lambda part: part[0])
    if parts:
        process.events = np.concatenate([part[1] for part in parts])
    # Holes before the last whole record, or what is no record of this place, whichever is more.
    process.torn = max(last + 1, used) - found
    said = process.number("bye", "lost") or 0
    room = len(segments) * records.SEGMENT_RECORDS
    process.lost = max(said, wanted - room, 0)
    return process


def read_raw(folder: Path) -> tuple[list[RawProcess], int]:
    """Read every process of a `raw` folder.

    Returns:
        Processes in the order in which they began, and how many files name no process.

    Raises:
        OSError: the folder cannot be read.
    """
    processes, nameless = [], 0
    for path in sorted(folder.glob("*.jsonl")):
        lines = _read_lines(path)
        hello = lines.by_type.get("hello", [{}])[0]
        if any(not isinstance(hello.get(key), int) for key in _HELLO):
            nameless += 1
            continue
        processes.append(_read_process(folder, path.name.removesuffix(".jsonl"), lines))
    processes.sort(key=lambda process: (process.hello["begin_ns"], process.hello["pid"]))
    return processes, nameless
