# SPDX-License-Identifier: Apache-2.0
"""Words, integers and times out of JSON text, a column at a time.

Digits are read eight at a time as one 64-bit word (D. Lemire, "Quickly parsing eight digits",
2022), so no number becomes a Python object and no time passes through a float.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.model.arrays import numbers

__all__ = ["NULL", "PAD", "Patterns", "Spans", "Text"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for an absent number."""
LATE: Final = 1 << 62
"""Times from here on, ns (year 2116), are none: a sum of two would leave 64 bits."""
_EIGHT: Final = 8
PAD: Final = 32
"""Blanks on both sides of a text, so that reading words of eight bytes never leaves it."""
_BLANKS: Final = 4096
"""Most blanks around a value; what has more is taken for damaged."""
_ODD: Final = re.compile(rb"(-?)(\d{1,40})(?:\.(\d{1,400}))?[eE]([+-]?\d{1,3})")


def _u64(value: int) -> np.uint64:
    return np.uint64(value)


_ZEROS: Final = _u64(0x3030303030303030)
_SIXES: Final = _u64(0x7676767676767676)
_HIGH: Final = _u64(0x8080808080808080)
_PAIRS: Final = _u64(0x000000FF000000FF)
_KEEP_LAST: Final = np.asarray(
    [0, *(((1 << (8 * n)) - 1) << (8 * (8 - n)) for n in range(1, 9))], dtype=np.uint64
)
"""Masks that keep the last n bytes of a word."""
_KEEP_FIRST: Final = np.asarray([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_FOLD: Final = _u64(0x2020202020202020)
_TENS: Final = np.asarray([10**n for n in range(19)], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches of a text, from `begin` to before `end`."""

    begin: Ints
    end: Ints

    def pick(self, rows: Ints | Flags) -> "Spans":
        """Some of them."""
        return Spans(self.begin[rows], self.end[rows])


@dataclass(frozen=True, slots=True)
class Patterns:
    """Words to recognise: of each length, first, last and second eight bytes, and the code."""

    by_length: tuple[tuple[int, tuple[tuple[int, int, int, int], ...]], ...]
    fold: bool

    @classmethod
    def of(cls, words: Sequence[str], *, fold: bool = False) -> "Patterns":
        """Patterns whose code is one more than their place; `fold` takes capitals for small ones.

        Words may be at most 24 bytes long, so that three reads see every byte.
        """
        lengths: dict[int, list[tuple[int, int, int, int]]] = {}
        for code, word in enumerate(words, start=1):
            data = word.encode()
            parts = (data[:_EIGHT], data[-_EIGHT:], data[_EIGHT : 2 * _EIGHT])
            numbers_ = [int.from_bytes(part, "little") for part in parts]
            if fold:
                masks = [int.from_bytes(b" " * len(part), "little") for part in parts]
                numbers_ = [n | m for n, m in zip(numbers_, masks, strict=True)]
            entry = (numbers_[0], numbers_[1], numbers_[2], code)
            lengths.setdefault(len(data), []).append(entry)
        return cls(tuple((n, tuple(entries)) for n, entries in lengths.items()), fold)


class Text:
    """A text with at least `PAD` blanks on both sides.

    Args:
        data: the text, padded.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, dtype=np.uint8)
        # Every position begins a word of eight bytes; they overlap.
        self._words: Words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
        self._last = len(data) - 1
        self._points: Ints | None = None

    def codes(self, spans: Spans, patterns: Patterns) -> npt.NDArray[np.int8]:
        """Which pattern each stretch is, 0 for none."""
        found = np.zeros(len(spans.begin), dtype=np.int8)
        length = spans.end - spans.begin
        for size, entries in patterns.by_length:
            rows = np.flatnonzero(length == size)
            if not len(rows):
                continue
            begin = spans.begin[rows]
            first = self._words[begin] & _KEEP_FIRST[min(size, _EIGHT)]
            last = self._words[begin + max(size - _EIGHT, 0)] & _KEEP_FIRST[min(size, _EIGHT)]
            # Of words up to 16 bytes the two cover all.
            middle = self._words[begin + _EIGHT] if size > 2 * _EIGHT else None
            if patterns.fold:
                blank = _FOLD & _KEEP_FIRST[min(size, _EIGHT)]
                first, last = first | blank, last | blank
                middle = None if middle is None else middle | _FOLD
            for one, two, three, code in entries:
                same = (first == _u64(one)) & (last == _u64(two))
                if middle is not None:
                    same &= middle == _u64(three)
                found[rows[same]] = code
        return found

    def stripped(self, spans: Spans) -> Spans:
        """The stretches without blanks around them; of one of blanks alone nothing is left."""
        begin, end = spans.begin.copy(), spans.end.copy()
        for place, other, step, at in ((begin, end, 1, 0), (end, begin, -1, -1)):
            rows = np.flatnonzero(begin < end)
            for _ in range(_BLANKS):
                here = self.bytes[place[rows] + at]
                blank = (here == 32) | ((here >= 9) & (here <= 13))
                rows = rows[blank & (place[rows] != other[rows])]
                if not len(rows):
                    break
                place[rows] += step
        return Spans(begin, np.maximum(begin, end))

    def found(self, word: bytes) -> Ints:
        """Places of a word of two to eight bytes."""
        here = (self.bytes[:-1] == word[0]) & (self.bytes[1:] == word[1])
        at = np.flatnonzero(here[: len(self._words)])
        same = (self._words[at] & _KEEP_FIRST[len(word)]) == _u64(int.from_bytes(word, "little"))
        places: Ints = at[same]
        return places

    def after_blanks(self, at: Ints) -> Ints:
        """The place of the first byte that is no blank, from each place on."""
        at = at.copy()
        rows = np.arange(len(at))
        for _ in range(_BLANKS):
            here = self.bytes[at[rows]]
            rows = rows[((here == 32) | ((here >= 9) & (here <= 13))) & (at[rows] < self._last)]
            if not len(rows):
                break
            at[rows] += 1
        return at

    def until_quote(self, begin: Ints, patterns: Patterns) -> Spans:
        """From each place to the first quote that follows within the length of a pattern."""
        end = begin.copy()
        for size in sorted({size for size, _ in patterns.by_length}):
            place = np.minimum(begin + size, self._last)
            end = np.where((end == begin) & (self.bytes[place] == ord('"')), place, end)
        return Spans(begin, end)

    def _digits(self, begin: Ints, end: Ints) -> tuple[Ints, Flags]:
        """Value of each stretch of at most 18 digits, and whether it is one; empty is 0."""
        length = end - begin
        good = (length >= 0) & (length <= 18)
        length = np.where(good, length, 0)
        value = np.zeros(len(begin), dtype=np.int64)
        for part in range(3):
            if part and not (length > part * _EIGHT).any():
                break
            here = np.clip(length - part * _EIGHT, 0, _EIGHT)
            last = np.where(good, end - part * _EIGHT, PAD)
            word = (self._words[last - _EIGHT] ^ _ZEROS) & _KEEP_LAST[here]
            good &= ((word | (word + _SIXES)) & _HIGH) == 0
            value += _eight(word) * _TENS[part * _EIGHT]
        return value, good

    def integers(self, spans: Spans) -> Ints:
        """Integers; `NULL` where a stretch is none, or does not fit 64 bits."""
        begin = spans.begin
        minus = self.bytes[begin] == ord("-")
        begin = begin + minus
        size = spans.end - begin
        value, good = self._digits(np.where(size <= 18, begin, spans.end), spans.end)
        good &= (size > 0) & (size <= 18)
        value = np.where(minus, -value, value)
        longer = np.flatnonzero((size == 19) | ((size > 19) & (size < 24)))
        if len(longer):
            # Nineteen digits may or may not fit: such ids are rare enough for two halves each.
            high, one = self._digits(begin[longer], spans.end[longer] - 9)
            low, two = self._digits(spans.end[longer] - 9, spans.end[longer])
            fits = one & two & ((high < 9223372036) | ((high == 9223372036) & (low <= 854775807)))
            high, low = np.where(fits, high, 0), np.where(fits, low, 0)
            whole = high * 1_000_000_000 + low
            value[longer] = np.where(minus[longer], -whole, whole)
            good[longer] = fits
        return np.where(good, value, NULL)

    def nanoseconds(self, spans: Spans) -> Ints:
        """Times in ns of numbers in microseconds, rounded half to even.

        Returns:
            `NULL` where a stretch is no number, or one of `LATE` or more.
        """
        begin = spans.begin
        minus = self.bytes[begin] == ord("-")
        begin = begin + minus
        point = self._point_in(begin, spans.end)
        dot = point < spans.end
        whole, good = self._digits(begin, point)
        after = np.where(dot, point + 1, spans.end)
        size = spans.end - after
        part, fine = self._digits(after, np.minimum(spans.end, after + 18))
        good &= fine & (begin < point) & ~(dot & (size == 0))
        if (size > 18).any():
            _, rest = self._digits(np.minimum(after + 18, spans.end), spans.end)
            good &= rest
        good &= whole < LATE // 1000
        value = np.where(good, whole, 0) * 1000 + _thousandths(part, np.clip(size, 0, 18))
        value = np.where(minus, -value, value)
        odd = np.flatnonzero(~good & (spans.end - begin > 2))
        for row in odd[self._has_exponent(spans.pick(odd))].tolist():
            # Of all tools only a few write exponents, and those only of times next to nothing.
            exact = _scientific(self.data[spans.begin[row] : spans.end[row]])
            if exact is not None and abs(exact) < LATE:
                good[row], value[row] = True, exact
        return np.where(good, value, NULL)

    def _point_in(self, begin: Ints, end: Ints) -> Ints:
        """Place of the first point in each stretch, its end where there is none."""
        if self._points is None:
            self._points = np.flatnonzero(self.bytes == ord("."))
        if not len(self._points):
            return end
        row = np.searchsorted(self._points, begin)
        place = self._points[np.minimum(row, len(self._points) - 1)]
        return np.where((row < len(self._points)) & (place < end), place, end)

    def _has_exponent(self, spans: Spans) -> Flags:
        size = np.clip(spans.end - spans.begin, 0, 48)
        found = np.zeros(len(size), dtype=np.bool_)
        for place in range(int(size.max(initial=0))):
            here = place < size
            found[here] |= (self.bytes[spans.begin[here] + place] | 32) == ord("e")
        return found

    def words(self, spans: Spans) -> tuple[npt.NDArray[np.int32], list[bytes]]:
        """Codes of the stretches, which must follow each other, and the words they stand for."""
        if not len(spans.begin):
            return np.zeros(0, dtype=np.int32), []
        # Stretches and the gaps between them are the elements of one array over the text.
        offsets = np.empty(2 * len(spans.begin) + 1, dtype=np.int32)
        offsets[0:-1:2], offsets[1::2] = spans.begin, spans.end
        offsets[-1] = spans.end[-1]
        every = pa.Array.from_buffers(
            pa.binary(),
            len(offsets) - 1,
            [None, pa.py_buffer(offsets.data), pa.py_buffer(self.data)],
            0,
        )
        mine = numbers(np.arange(0, len(offsets) - 1, 2), pa.int64())
        coded: Any = every.take(mine).dictionary_encode()
        indices = coded.indices
        return np.frombuffer(
            indices.buffers()[1], dtype=np.int32, count=len(indices)
        ), coded.dictionary.to_pylist()


def _eight(word: Words) -> Ints:
    """Value of eight bytes that hold one digit each, the first one the most significant."""
    pairs = word * _u64(10) + (word >> _u64(8))
    upper = (pairs & _PAIRS) * _u64(0x000F424000000064)
    lower = ((pairs >> _u64(16)) & _PAIRS) * _u64(0x0000271000000001)
    value: Ints = ((upper + lower) >> _u64(32)).astype(np.int64)
    return value


def _thousandths(part: Ints, digits: Ints) -> Ints:
    """Thousand times the fraction of `digits` digits, rounded half to even."""
    few = np.clip(digits, 0, 3)
    short = part * _TENS[3 - few]
    scale = _TENS[np.clip(digits - 3, 0, 18)]
    value, rest = part // scale, part % scale
    twice = rest * 2
    value += (twice > scale) | ((twice == scale) & ((value & 1) == 1))
    return np.where(digits <= 3, short, value)


def _scientific(text: bytes) -> int | None:
    """A time like 1.5e-3 µs in ns, exactly; None where it is no such number."""
    found = _ODD.fullmatch(text)
    if found is None:
        return None
    sign, whole, part, exponent = found.groups()
    digits = int(whole + (part or b""))
    power = int(exponent) - len(part or b"") + 3
    scale: int = 10 ** abs(power)
    if power >= 0:
        value = digits * scale
    else:
        value, rest = divmod(digits, scale)
        value += rest * 2 > scale or (rest * 2 == scale and value % 2 == 1)
    return -value if sign else value
