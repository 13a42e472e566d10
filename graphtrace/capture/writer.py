# SPDX-License-Identifier: Apache-2.0
"""Writes the raw records and definitions of one process. Standard library only.

No file descriptor stays open: programs close, count and reuse descriptors, and one of ours that
was closed and reused would end in their file. Records go through a mapping made by `mmap(2)` itself
(Python's own mapping objects keep a descriptor), definitions through open, append, close.
Segments are allocated whole before they are mapped: writing to a mapping of a hole on a full disk
would kill the program with SIGBUS.
"""

import ctypes
import errno
import itertools
import json
import mmap
import os
import resource
import threading
from typing import Any, Final

from graphtrace.model import records

__all__ = ["Writer"]

_MAX_PENDING: Final = 4096
_SHARED: Final = mmap.MAP_SHARED
_READ_WRITE: Final = mmap.PROT_READ | mmap.PROT_WRITE


def _check_size_limit(size: int) -> None:
    """Refuse a file larger than RLIMIT_FSIZE: the kernel would send SIGXFSZ."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != resource.RLIM_INFINITY and size > soft:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _allocate(descriptor: int, size: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        if os.write(descriptor, bytes(size)) != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def _map_new(path: str, size: int) -> Any:
    """A new file of that size, whole on the disk, mapped into memory for good.

    Raises:
        OSError: no room, no permission, or the file exists.
    """
    _check_size_limit(size)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        _allocate(descriptor, size)
        address = libc.mmap(None, size, _READ_WRITE, _SHARED, descriptor, 0)
    except OSError:
        os.unlink(path)  # noqa: PTH108 - pathlib would be one more import in every process
        raise
    finally:
        os.close(descriptor)
    if address in (None, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return (ctypes.c_char * size).from_address(address)


class Writer:
    """The files of one process.

    Args:
        folder: the `raw` folder, absolute.
        stem: what the names of all files of this process begin with.
        segments: segments it may fill; records beyond them are counted, not stored.
    """

    def __init__(self, folder: str, stem: str, segments: int) -> None:
        self.stem = stem
        self.folder = folder
        self._lines = f"{folder}/{stem}.jsonl"
        self.limit = segments
        self._segments: list[Any] = []
        self._ordinals = itertools.count()
        self._full: str | None = None
        self._wanted = 0
        self._lock = threading.RLock()
        self._pending: list[bytes] = []
        self.lost_lines = 0

    def put(
        self, time_ns: int, thread: int, ident: int, access: int, kind: int, flags: int, batch: int
    ) -> None:
        """Store one record, or count it where there is no room."""
        ordinal = next(self._ordinals)
        segment, slot = divmod(ordinal, records.SEGMENT_RECORDS)
        try:
            buffer = self._segments[segment]
        except IndexError:
            buffer = self._grow(segment, ordinal)
            if buffer is None:
                return
        records.RECORD.pack_into(
            buffer,
            records.HEADER_BYTES + slot * records.RECORD_BYTES,
            time_ns,
            thread,
            ident,
            access,
            kind,
            flags,
            batch,
            (ordinal + 1) & 0xFFFFFFFF,
        )

    def _grow(self, segment: int, ordinal: int) -> Any:
        with self._lock:
            while self._full is None and len(self._segments) <= segment:
                self._open_segment(len(self._segments))
            if segment < len(self._segments):
                return self._segments[segment]
            self._wanted = max(self._wanted, ordinal + 1)
            if self._segments:
                self._segments[0][records.WANTED_OFFSET : records.WANTED_OFFSET + 8] = (
                    self._wanted.to_bytes(8, "little")
                )
            return None

    def _open_segment(self, number: int) -> None:
        if number >= self.limit:
            self._stop(f"the limit of {self.limit} MiB was reached")
            return
        path = f"{self.folder}/{records.segment_name(self.stem, number)}"
        try:
            buffer = _map_new(path, records.SEGMENT_BYTES)
        except OSError as error:
            self._stop(os.strerror(error.errno or 0))
            return
        records.HEADER.pack_into(
            buffer,
            0,
            records.MAGIC,
            records.LAYOUT_VERSION,
            os.getpid(),
            number,
            records.SEGMENT_RECORDS,
            0,
        )
        self._segments.append(buffer)

    def _stop(self, why: str) -> None:
        self._full = why
        self.line(type="full", why=why)

    @property
    def lost(self) -> int:
        """Records that found no room so far."""
        with self._lock:
            room = len(self._segments) * records.SEGMENT_RECORDS
            return max(0, self._wanted - room)

    def line(self, **fields: object) -> None:
        """Append a definition or note; kept for the next try where it cannot be written."""
        text = json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
        with self._lock:
            self._pending.append(text.encode("ascii") + b"\n")
            if len(self._pending) > _MAX_PENDING:
                self._pending.pop(0)
                self.lost_lines += 1
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pending)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._lines, flags, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                _check_size_limit(size + len(data))
                if os.write(descriptor, data) != len(data):
                    os.ftruncate(descriptor, size)
                    return
            finally:
                os.close(descriptor)
        except OSError:
            return
        self._pending.clear()
