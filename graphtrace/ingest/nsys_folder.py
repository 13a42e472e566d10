# SPDX-License-Identifier: Apache-2.0
"""One file of an export of a file a table, opened as what it is: a stranger's.

Parquet is read a part of a row group at a time and Arrow's own files a batch at a time. Arrow
starts no thread here: one that still runs when Python exits aborts the process now and then.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from graphtrace.model.errors import (
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputTruncated,
    InputUnsupported,
    said_by,
)

__all__ = ["ENDINGS", "TableFile", "damaged", "folder_names", "open_table"]

ENDINGS: Final = (".parquet", ".arrow")
_PARQUET: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_ARROW: Final = b"ARROW1"
_STREAM: Final = b"\xff\xff\xff\xff"
"""First bytes of a stream of Arrow: a message follows."""
_STREAM_END: Final = _STREAM + bytes(4)
_BATCH_ROWS: Final = 1 << 16
_ROWS_PER_BYTE: Final = 64
"""More rows than this in a byte of a file are no events: each has a time of its own."""
_DO: Final = (
    "Copy the whole folder again, or export it again: "
    "nsys export --type parquetdir --force-overwrite true REPORT.nsys-rep"
)


def folder_names(path: Path) -> list[str]:
    """Names of what lies in a folder.

    Raises:
        InputMissing: it is no folder.
        InputError: the system refuses to list it.
    """
    try:
        return os.listdir(path)  # noqa: PTH208 - names, as texts, are what is looked at
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise InputMissing(
            f"{path} is not a folder.",
            "An nsys export of this kind is a folder with a file for each table.",
            "Check the path.",
        ) from error
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be opened.",
        f"The system says: {error.strerror or error}.",
        "Check its permissions and its links.",
    )


@contextmanager
def damaged(place: Path) -> Iterator[None]:
    """Turn what Arrow raises over the content of a file into sentences.

    Raises:
        InputCorrupt: instead of each of them.
    """
    try:
        yield
    except (
        pa.ArrowException,
        pa.ArrowMemoryError,
        MemoryError,
        OSError,
        OverflowError,
        UnicodeDecodeError,
    ) as error:
        raise InputCorrupt(
            f"{place} is damaged.",
            f"It starts like a file of Arrow, but reading it fails: {said_by(error)}.",
            _DO,
        ) from error


@dataclass(frozen=True, slots=True)
class TableFile:
    """An open file of one table.

    Attributes:
        place: its path.
        names: its columns.
        parquet: what Parquet is read through; None for Arrow's own format.
        file: the open file itself.
        size: its bytes.
    """

    place: Path
    names: Sequence[str]
    parquet: pq.ParquetFile | None
    file: BinaryIO
    size: int

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns, in this order, in batches of bounded size.

        Raises:
            InputCorrupt: now or later, that the file contradicts itself.
        """
        said = None if self.parquet is None else self.parquet.metadata.num_rows
        most = self.size * _ROWS_PER_BYTE if said is None else said
        rows = 0
        batches = self._all(columns)
        while True:
            with damaged(self.place):
                batch = next(batches, None)
                if batch is None:
                    break
                for array in batch.columns:
                    array.validate()
            rows += batch.num_rows
            if rows > most:
                break
            yield batch
        if rows > most or (said is not None and rows != said):
            raise InputCorrupt(
                f"{self.place} is damaged.",
                f"It holds {rows:,} rows or more, but should hold {most:,} at most."
                if rows > most
                else f"It holds {rows:,} rows, but says that it has {said:,}.",
                _DO,
            )

    def _all(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.parquet is not None:
            for group in range(self.parquet.metadata.num_row_groups):
                read = self.parquet.iter_batches(
                    _BATCH_ROWS, row_groups=[group], columns=list(columns), use_threads=False
                )
                yield from (batch.select(list(columns)) for batch in read)
        else:
            options = ipc.IpcReadOptions(
                included_fields=sorted(self.names.index(name) for name in columns),
                use_threads=False,
            )
            for whole in _stream(self.file, options):
                chosen = whole.select(list(columns))
                for at in range(0, chosen.num_rows, _BATCH_ROWS):
                    yield chosen.slice(at, _BATCH_ROWS)


def _stream(file: BinaryIO, options: ipc.IpcReadOptions) -> Any:
    """Reader of Arrow's own format: a file of it is a stream behind 8 bytes, before a footer.

    The reader of such files would start threads.
    """
    file.seek(0)
    file.seek(8 if file.read(len(_ARROW)) == _ARROW else 0)
    return ipc.open_stream(file, options=options)


@contextmanager
def open_table(place: Path, texts: Sequence[str] = ()) -> Iterator[TableFile]:
    """Open the file of a table.

    Args:
        place: the file.
        texts: columns that are better read as codes into their different texts.

    Raises:
        InputEmpty: it has no bytes.
        InputTruncated: it ends before its footer.
        InputUnsupported: it is no regular file, or of another format.
        InputCorrupt: its content contradicts itself.
        InputError: the system refuses to open it.
    """
    try:
        # A pipe that has the name of a table must not be waited for.
        descriptor = os.open(
            place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        )
    except OSError as error:
        raise _refused(place, error) from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise InputUnsupported(
            f"{place} is not a regular file.",
            "It has the name of a table of nsys, but is a folder, a pipe or a device.",
            _DO,
        )
    with os.fdopen(descriptor, "rb") as file:
        is_parquet = _check_ends(place, file, about.st_size)
        with damaged(place):
            if is_parquet:
                parquet = _parquet(place, file, about.st_size, texts)
                names = list(parquet.schema_arrow.names)
            else:
                parquet = None
                names = list(_stream(file, ipc.IpcReadOptions(use_threads=False)).schema.names)
        yield TableFile(place, names, parquet, file, about.st_size)


def _parquet(place: Path, file: BinaryIO, size: int, texts: Sequence[str]) -> pq.ParquetFile:
    source = pq.ParquetFile(file, pre_buffer=False, read_dictionary=list(texts))
    rows = source.metadata.num_rows
    if not 0 <= rows <= size * _ROWS_PER_BYTE:
        raise InputCorrupt(
            f"{place} is damaged.",
            f"It says that it has {rows:,} rows, in {size:,} bytes.",
            _DO,
        )
    return source


def _check_ends(place: Path, file: BinaryIO, size: int) -> bool:
    """Whether it is Parquet and not Arrow's own format; its first and last bytes are looked at."""
    if not size:
        raise InputEmpty(f"{place} is empty.", "It has no bytes; the export may have failed.", _DO)
    head = file.read(len(_ARROW))
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    file.seek(0)
    if head.startswith(_PARQUET) or _PARQUET.startswith(head):
        if tail[-4:] == _PARQUET and size >= 12:
            footer = int.from_bytes(tail[:4], "little")
            if footer <= size - 12:
                return True
        raise _truncated(place, size)
    if head.startswith(_ARROW) or _ARROW.startswith(head):
        if size < 12 or tail[-6:] != _ARROW:
            raise _truncated(place, size)
        return False
    if head.startswith(_STREAM):
        if tail != _STREAM_END:
            raise _truncated(place, size)
        return False
    if head.startswith(_ENCRYPTED):
        what = "It is an encrypted Parquet file."
    else:
        what = "Its first bytes are those of neither Parquet nor Arrow."
    raise InputUnsupported(f"{place} is not a table of nsys.", what, _DO)


def _truncated(place: Path, size: int) -> InputTruncated:
    return InputTruncated(
        f"{place} is cut off.",
        f"It has {size:,} bytes and has no end mark: a copy or an export was interrupted.",
        _DO,
    )
