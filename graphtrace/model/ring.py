# SPDX-License-Identifier: Apache-2.0
"""Layout of the records that marks inside a graph write. Standard library only.

A captured graph owns a block: `rows` rows of one record for each of its marks. Replay number r
(the first is 1) writes row `r % rows`, mark i its column i, so that no two marks ever meet and no
writer waits. A later replay overwrites an earlier one: what was lost so is known exactly from the
numbers in the records.

A record, 32 bytes, little endian: `%globaltimer` in ns (u64); the replay's low 32 bits (u32) and
the mark's number in its block (u32); `%clock64` of its SM (u64); the replay again (u32), the SM
(u16) and the version of this layout (u16). Each half of 16 bytes carries the replay, so that a
record whose halves are of two replays is recognised without any fence.
"""

import struct
from typing import Final

__all__ = [
    "MARK",
    "MARK_BYTES",
    "MIN_ROWS",
    "RING_VERSION",
    "TAG_MASK",
    "block_bytes",
    "rows_for",
]

MARK: Final = struct.Struct("<QIIQIHH")
MARK_BYTES: Final = 32
RING_VERSION: Final = 1
TAG_MASK: Final = 0xFFFF_FFFF
MIN_ROWS: Final = 8
"""Fewer rows leave a reader no time."""


def rows_for(marks: int, budget: int) -> int:
    """Rows of a block: the most that fit, a power of two; 0 where not even `MIN_ROWS` do.

    Args:
        marks: marks of the graph.
        budget: bytes that the block may take.
    """
    fit = budget // (MARK_BYTES * marks) if marks > 0 else 0
    return 1 << (fit.bit_length() - 1) if fit >= MIN_ROWS else 0


def block_bytes(marks: int, rows: int) -> int:
    """Bytes of a block."""
    return marks * rows * MARK_BYTES
