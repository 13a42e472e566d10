# SPDX-License-Identifier: Apache-2.0
"""Layout of what a recorded program writes: raw records and definitions. Standard library only.

A process owns files in `raw/` that share a stem: `STEM.jsonl` holds one JSON object a line
(definitions and notes), `STEM.NNNN.rec` are preallocated segments of 32-byte records that the
process maps and fills, so that a killed process loses nothing that it had written.

A record, little endian: time (u64, CLOCK_MONOTONIC ns), thread (u32), id of the stage or batch
(u32), id of the access measured there (u32, 0 none), kind (u16), flags (u16), batch open on that
thread (u32, 0 none), tag (u32: ordinal + 1, written last; anything else was never completed).
A segment header, 64 bytes: magic, layout version (u32), pid (u32), ordinal of the segment (u64),
records it can hold (u64), records wanted by the process when it ran out of room (u64, 0 while it
has not; kept in segment 0).
"""

import struct
from typing import Final

__all__ = [
    "BATCH_BEGIN",
    "BATCH_END",
    "FLAG_ABANDONED",
    "FLAG_IMPLICIT",
    "FLAG_INTERLEAVED",
    "FLAG_SUPERSEDED",
    "HEADER",
    "HEADER_BYTES",
    "LAYOUT_VERSION",
    "MAGIC",
    "RECORD",
    "RECORD_BYTES",
    "SEGMENT_BYTES",
    "SEGMENT_RECORDS",
    "STAGE_BEGIN",
    "STAGE_END",
    "WANTED_OFFSET",
    "segment_name",
]

MAGIC: Final = b"GTRECORD"
LAYOUT_VERSION: Final = 1
HEADER: Final = struct.Struct("<8sIIQQQ")
HEADER_BYTES: Final = 64
WANTED_OFFSET: Final = 32
RECORD: Final = struct.Struct("<QIIIHHII")
RECORD_BYTES: Final = 32
SEGMENT_BYTES: Final = 1 << 20
SEGMENT_RECORDS: Final = (SEGMENT_BYTES - HEADER_BYTES) // RECORD_BYTES

STAGE_BEGIN: Final = 1
STAGE_END: Final = 2
BATCH_BEGIN: Final = 3
BATCH_END: Final = 4

FLAG_ABANDONED: Final = 1
"""Closed by an enclosing stage: its own end was never seen."""
FLAG_IMPLICIT: Final = 2
"""A batch that is one call of the outermost module."""
FLAG_INTERLEAVED: Final = 4
"""Closed while a stage opened later on the same thread was still open."""
FLAG_SUPERSEDED: Final = 8
"""An implicit batch in which the program marked batches of its own."""


def segment_name(stem: str, ordinal: int) -> str:
    """File name of a segment."""
    return f"{stem}.{ordinal:04d}.rec"
