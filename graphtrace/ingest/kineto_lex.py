# SPDX-License-Identifier: Apache-2.0
"""Structure of JSON text by numpy: where strings, brackets, colons and commas are.

Whether a byte is inside a string is the parity of the quotes before it, computed 64 bytes at a time
on bit masks (G. Langdale, D. Lemire, "Parsing gigabytes of JSON per second", 2019). Positions are
made only of what is needed of the events that are wanted.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "ARRAY",
    "ARRAY_END",
    "COLON",
    "COMMA",
    "OBJECT",
    "OBJECT_END",
    "QUOTE",
    "Strings",
    "Tokens",
    "paired",
    "tokens_of",
]

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

QUOTE, OBJECT, OBJECT_END, ARRAY, ARRAY_END, COLON, COMMA = range(1, 8)
_CHARACTERS: Final = b'"{}[]:,'
_TABLE: Final = bytes(_CHARACTERS.find(bytes([n])) + 1 for n in range(256))
_STEP: Final = np.asarray([0, 0, 1, -1, 1, -1, 0, 0], dtype=np.int8)
"""What each kind of token does to the depth."""
_SHIFTS: Final = tuple(np.uint64(1 << n) for n in range(6))
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Structural characters outside of strings, and the quotes around strings, in order.

    Attributes:
        at: position of each.
        kind: what it is.
        depth: how many brackets are open after it.
    """

    at: Ints
    kind: Bytes
    depth: npt.NDArray[np.int32]


class Strings:
    """Which bytes of a text are inside strings.

    Args:
        text: any part of a document that does not begin behind a backslash.
        inside: whether it begins inside a string.

    Attributes:
        bytes: the text as numbers.
        ends_inside: whether it ends inside a string.
    """

    def __init__(self, text: bytes, *, inside: bool = False) -> None:
        self.text = text
        self.bytes = np.frombuffer(text, dtype=np.uint8)
        quotes = self.bytes == ord('"')
        if b"\\" in text:
            quotes[_escaped(self.bytes)] = False
        self.quotes = _packed(quotes)
        words = self.quotes.view(np.uint64).copy()
        for shift in _SHIFTS:
            words ^= words << shift
        # The highest bit is the parity of the whole word; it carries into all that follow.
        carry = np.bitwise_xor.accumulate(words >> np.uint64(63))
        before = np.empty_like(carry)
        before[:1], before[1:] = int(inside), carry[:-1] ^ np.uint64(inside)
        words ^= before * _ALL
        # A string's first quote is inside it, its last one is not.
        self.inside = words.view(np.uint8)
        self.ends_inside = bool((carry[-1] ^ np.uint64(inside)) & np.uint64(1))

    def outside(self, characters: Flags) -> Ints:
        """Places of these characters that are in no string."""
        at = np.flatnonzero(characters)
        inside = (self.inside[at >> 3] >> (at & 7).astype(np.uint8)) & 1
        places: Ints = at[inside == 0]
        return places


def _packed(flags: Flags) -> Bytes:
    """One bit a flag, filled up to whole words of 64 bits, and at least one."""
    bits = np.zeros(max((len(flags) + 63) // 64, 1) * 8, dtype=np.uint8)
    packed = np.packbits(flags, bitorder="little")
    bits[: len(packed)] = packed
    return bits


def _escaped(text: Bytes) -> Ints:
    """Places behind an odd run of backslashes."""
    slashes = np.flatnonzero(text == ord("\\"))
    first = np.flatnonzero(np.r_[True, slashes[1:] != slashes[:-1] + 1])
    length = np.diff(np.r_[first, len(slashes)])
    after: Ints = (slashes[first] + length)[length % 2 == 1]
    return after[after < len(text)]


def tokens_of(strings: Strings, near: Flags) -> Tokens:
    """Tokens of some parts of a text, each of which begins and ends outside of strings.

    Args:
        strings: the text.
        near: which bytes are looked at.
    """
    code = np.frombuffer(strings.text.translate(_TABLE), dtype=np.uint8)
    bits = _packed((code != 0) & near)
    bits &= ~strings.inside | strings.quotes
    at = np.flatnonzero(np.unpackbits(bits, count=len(code), bitorder="little").view(np.bool_))
    kind = code[at]
    return Tokens(at, kind, np.cumsum(_STEP[kind], dtype=np.int32))


def paired(kind: Bytes, depth: npt.NDArray[np.int32]) -> bool:
    """Whether every bracket is closed by its own kind.

    Args:
        kind: tokens that begin and end at depth 0.
        depth: depth after each.
    """
    rows = np.flatnonzero((kind >= OBJECT) & (kind <= ARRAY_END))
    if not len(rows):
        return True
    kinds = kind[rows]
    closes = (kinds == OBJECT_END) | (kinds == ARRAY_END)
    level: npt.NDArray[Any] = depth[rows] + closes
    if int(level.min()) < 1 or depth[-1] != 0:
        return False
    if int(level.max()) < 1 << 8:
        level = level.astype(np.uint8)  # numpy sorts these in linear time
    order = np.argsort(level, kind="stable")
    # On one level brackets open and close in turn, and an end is one more than its begin.
    opened, closed = kinds[order[0::2]], kinds[order[1::2]]
    return bool(np.array_equal(opened + 1, closed))
