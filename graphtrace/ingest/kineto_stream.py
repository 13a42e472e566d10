# SPDX-License-Identifier: Apache-2.0
"""The text of a trace in pieces, unpacked on the way where it is compressed."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from graphtrace.model.errors import (
    InputCorrupt,
    InputEmpty,
    InputMissing,
    InputTruncated,
    InputUnsupported,
)

__all__ = ["PIECE", "pieces"]

PIECE: Final = 1 << 22
"""Most bytes of a piece: small enough that what is made from one stays in memory caches."""
_GZIP: Final = b"\x1f\x8b"
_MOST_RATIO: Final = 300
"""Traces pack 8 to 40 times (the real ones in the tests); deflate itself ends at 1032 (zlib)."""
_SUSPECT: Final = 1 << 28
"""Unpacked bytes from which on the ratio is looked at."""


def pieces(path: Path) -> Iterator[bytes]:
    """Read a file from its beginning, in pieces of at most `PIECE` bytes.

    Args:
        path: plain text, or gzip of one or several members.

    Raises:
        InputMissing: the file is not there.
        InputEmpty: it has no bytes.
        InputTruncated: the compressed stream ends too early.
        InputCorrupt: it cannot be unpacked, or something else follows it.
        InputUnsupported: it unpacks to more than any trace would.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise InputMissing(
            f"{path} does not exist.",
            "There is no file of this name.",
            "Check the name and the working directory.",
        ) from error
    with file:
        head = file.read(PIECE)
        if not head:
            raise InputEmpty(
                f"{path} is empty.",
                "It has no bytes: the profiler or the download did not finish.",
                "Copy or download it again, or profile again.",
            )
        if head.startswith(_GZIP):
            yield from _unpacked(path, file, head)
            return
        while head:
            yield head
            head = file.read(PIECE)


def _unpacked(path: Path, file: BinaryIO, data: bytes) -> Iterator[bytes]:
    limit = max(_SUSPECT, _MOST_RATIO * path.stat().st_size)
    total = 0
    member = zlib.decompressobj(wbits=31)
    while True:
        try:
            out = member.decompress(data, PIECE)
        except zlib.error as error:
            raise _damaged(path, f"{error}") from error
        total += len(out)
        if total > limit:
            raise _bomb(path, total)
        if out:
            yield out
        if member.eof:
            data = member.unused_data or file.read(PIECE)
            # gzip itself ignores zeros that fill up a block, and reads what is joined to it.
            while data and not data.strip(b"\0"):
                data = file.read(PIECE)
            if not data:
                return
            data = data.lstrip(b"\0")
            if len(data) < len(_GZIP):
                data += file.read(PIECE)
            if not data.startswith(_GZIP):
                raise _damaged(path, "something that is not gzip follows it")
            member = zlib.decompressobj(wbits=31)
            continue
        data = member.unconsumed_tail or file.read(PIECE)
        # With neither input nor output left, the stream ends before its end is written.
        if not data and not out:
            raise InputTruncated(
                f"{path} is cut short.",
                "Its gzip stream ends before it is complete.",
                "Copy or download it again, or profile again and let the export finish.",
            )


def _damaged(path: Path, detail: str) -> InputCorrupt:
    return InputCorrupt(
        f"{path} is a damaged gzip file.",
        f"It cannot be unpacked: {detail}.",
        "Copy or download it again, whole.",
    )


def _bomb(path: Path, total: int) -> InputUnsupported:
    return InputUnsupported(
        f"{path} unpacks to more than {total >> 20:,} MiB, over {_MOST_RATIO} times its size.",
        "No trace packs that well: it is made to fill memory, or it is damaged.",
        "If you trust it, unpack it yourself (gunzip) and give the plain file.",
    )
