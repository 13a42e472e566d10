# SPDX-License-Identifier: Apache-2.0
"""Pages of an SQLite file, and the leaf pages of one table in order.

The format is public and fixed: sqlite.org/fileformat2.html (sections in brackets below). What is
read here is checked at least as strictly as SQLite itself does with `cell_size_check`; whatever is
not plain raises `NotPlain`, and the caller asks SQL instead.

Pages are read with `pread` into a buffer that is used again, and not mapped: a mapped file counts
as memory of the process, and one that is cut off while it is read kills it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["PAD", "Bytes", "Ints", "NotPlain", "PageFile", "open_pages"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.intp]

PAD: Final = 16
"""Zero bytes behind the pages of a buffer, so that a window of 8 bytes never leaves it."""
LEAF: Final = 13
_INTERIOR: Final = 5
_MAGIC: Final = b"SQLite format 3\0"
_PLAIN_VERSIONS: Final = b"\1\1"
"""Write and read version of a file without a write-ahead log [1.3.3]."""
_FRACTIONS: Final = bytes((64, 32, 32))
"""Payload fractions, which have never had other values [1.3.5]."""
_UTF8: Final = 1
_LOCK_BYTE: Final = 1 << 30
"""The page that holds this byte is never used [1.4]."""
_LEAST_USABLE: Final = 480
_DEEPEST: Final = 20
"""Levels of a b-tree that SQLite itself follows."""


class NotPlain(Exception):
    """The file or table is not of the plain kind that is decoded here; SQL can say what it is."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """An open file of pages.

    Attributes:
        descriptor: open for reading.
        page: bytes of a page.
        usable: bytes of it that hold content; the rest is reserved for extensions.
        pages: number of pages.
    """

    descriptor: int
    page: int
    usable: int
    pages: int

    def read(self, numbers: Ints, buffer: Bytes | None = None) -> Bytes:
        """These pages one after the other, and `PAD` zero bytes.

        Args:
            numbers: page numbers, from 1.
            buffer: memory to use again, where it is large enough.

        Raises:
            NotPlain: a page is not one of the file, or cannot be read whole.
        """
        lock = _LOCK_BYTE // self.page + 1
        if len(numbers) and (
            numbers.min() < 2 or numbers.max() > self.pages or (numbers == lock).any()
        ):
            raise NotPlain("a page number is out of range")
        size = len(numbers) * self.page
        if buffer is None or len(buffer) < size + PAD:
            buffer = np.empty(size + PAD, dtype=np.uint8)
        block = buffer[: size + PAD]
        block[size:] = 0
        view = block.data
        # Neighbours are read together.
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        starts = np.concatenate([[0], cuts, [len(numbers)]]).tolist()
        for first, last in pairwise(starts):
            part = view[first * self.page : last * self.page]
            self._fill(part, (int(numbers[first]) - 1) * self.page if len(numbers) else 0)
        return block

    def _fill(self, part: memoryview, offset: int) -> None:
        while len(part):
            try:
                got = os.preadv(self.descriptor, [part], offset)
            except OSError as error:
                raise NotPlain("the file cannot be read") from error
            if got <= 0:
                raise NotPlain("the file ends early")
            part, offset = part[got:], offset + got

    def leaves(self, root: int) -> Ints:
        """Numbers of the leaf pages of a table b-tree, in order of row id [1.6].

        Raises:
            NotPlain: it is no table b-tree, its leaves are not all equally deep, or a page is in
                it twice.
        """
        level: Ints = np.asarray([root], dtype=np.intp)
        seen = 0
        for _ in range(_DEEPEST):
            kind = int(self.read(level[:1])[0])
            if kind == LEAF:
                in_order = bool((level[1:] > level[:-1]).all())
                if not in_order and len(np.unique(level)) != len(level):
                    raise NotPlain("a page is in the tree twice")
                return level
            if kind != _INTERIOR:
                raise NotPlain("a page is of another kind")
            seen += len(level)
            if seen > self.pages:
                raise NotPlain("the tree has more pages than the file")
            level = np.concatenate([self._children(number) for number in level.tolist()])
            if len(level) > self.pages:
                raise NotPlain("the tree has more pages than the file")
        raise NotPlain("the tree is too deep")

    def _children(self, number: int) -> Ints:
        block = self.read(np.asarray([number], dtype=np.intp))
        if block[0] != _INTERIOR:
            raise NotPlain("the leaves are not equally deep")
        cells = int.from_bytes(block[3:5].tobytes(), "big")
        first = 12 + 2 * cells
        if not cells or first > self.usable:
            raise NotPlain("a page has an impossible number of cells")
        at = block[12:first].view(">u2").astype(np.intp)
        # A child, four bytes, and a row id, at most nine.
        if at.min() < first or at.max() > self.usable - 5 or _row_id_ends(block, at) > self.usable:
            raise NotPlain("a cell lies outside of its page")
        bytes_ = [block[at + n].astype(np.intp) for n in range(4)]
        children = (bytes_[0] << 24) | (bytes_[1] << 16) | (bytes_[2] << 8) | bytes_[3]
        last = int.from_bytes(block[8:12].tobytes(), "big")
        return np.append(children, np.intp(last))


def _row_id_ends(block: Bytes, at: Ints) -> int:
    """Largest end of the row ids of interior cells."""
    end = at + 4
    more = np.ones(len(at), dtype=np.bool_)
    for step in range(9):
        byte = block[np.minimum(at + 4 + step, len(block) - 1)]
        end = end + more
        more = more & (byte >= 128)
        if not more.any():
            break
    return int(end.max())


@contextmanager
def open_pages(path: Path) -> Iterator[PageFile]:
    """Open a file for reading pages; nothing is locked and nothing is created beside it.

    Raises:
        NotPlain: it is no SQLite file with UTF-8 texts and without a write-ahead log, or it
            cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise NotPlain("the file cannot be opened") from error
    try:
        yield _checked(descriptor, _head(descriptor), os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _head(descriptor: int) -> bytes:
    if not hasattr(os, "preadv"):
        raise NotPlain("this system cannot read at an offset")
    return os.pread(descriptor, 100, 0)


def _checked(descriptor: int, head: bytes, size: int) -> PageFile:
    def number(at: int, length: int) -> Any:
        return int.from_bytes(head[at : at + length], "big")

    if len(head) < 100 or not head.startswith(_MAGIC):
        raise NotPlain("it is no SQLite file")
    if head[18:20] != _PLAIN_VERSIONS or head[21:24] != _FRACTIONS:
        raise NotPlain("it has a write-ahead log, or is of a later format")
    if number(56, 4) != _UTF8:
        raise NotPlain("its texts are not UTF-8")
    page = 65536 if number(16, 2) == 1 else number(16, 2)
    usable = page - head[20]
    if page < 512 or page & (page - 1) or usable < _LEAST_USABLE:
        raise NotPlain("it has an impossible page size")
    # The count in the header holds where the writer kept it [1.3.7].
    kept = number(28, 4) > 0 and head[24:28] == head[92:96]
    whole = size // page
    pages = number(28, 4) if kept else whole
    if pages > whole:
        raise NotPlain("the file ends early")
    return PageFile(descriptor, page, usable, pages)
