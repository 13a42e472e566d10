# SPDX-License-Identifier: Apache-2.0
"""Open an nsys SQLite export as what it is: a stranger's database that must not be written to."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from graphtrace.ingest.nsys_cells import Column
from graphtrace.ingest.nsys_export import NSYS_TABLES, Export, Only, Refuse, some
from graphtrace.ingest.nsys_sql import page_chunks, records, sql_chunks, strings
from graphtrace.ingest.sqlite_pages import Chunk, NotPlain, PageFile, open_pages
from graphtrace.model.errors import (
    InputCorrupt,
    InputEmpty,
    InputMissing,
    InputTruncated,
    InputUnsupported,
    said_by,
)

__all__ = ["Database", "open_export"]

_MAGIC: Final = b"SQLite format 3\0"
_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")
"""First bytes of a rollback journal that was not finished (sqlite.org/fileformat2.html 3)."""
_EXPORT_AGAIN: Final = "nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"


@dataclass(frozen=True, slots=True)
class Database(Export):
    """An open export in SQLite.

    Attributes:
        connection: open for reading only; texts come as bytes.
        pages: the same file page by page; None where only SQL may read it.
    """

    connection: sqlite3.Connection
    pages: PageFile | None = None

    def readings(
        self, low: str, columns: Sequence[Column], only: Only | None, refuse: Refuse
    ) -> Iterator[Iterable[Chunk]]:
        """See `Export.readings`; here no cell is refused, for each is of a type that we know."""
        table, have = self.tables[low], self.columns[low]
        if self.pages is not None:
            yield page_chunks(self.connection, self.pages, table, have, columns, only)
        yield sql_chunks(self.connection, table, have, columns, only)

    def strings(self, ids: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
        """See `Export.strings`."""
        low = self.find("StringIds")
        if low is None or not self.has("StringIds", "id", "value"):
            return iter(())
        have = self.columns[low]
        return strings(self.connection, self.tables[low], have["id"], have["value"], list(ids))

    def records(self, low: str, names: Sequence[str]) -> Mapping[str, str]:
        """See `Export.records`."""
        return records(self.connection, self.tables[low], self.columns[low], names)


@contextmanager
def open_export(path: Path, *, pages: bool = True) -> Iterator[Database]:
    """Open an export for reading; nothing is created or changed beside it.

    Args:
        path: an SQLite file that `nsys export --type sqlite` wrote.
        pages: whether its pages may be read past SQL.

    Raises:
        InputMissing: there is no such file.
        InputEmpty: it has no bytes.
        InputTruncated: it ends before its last page.
        InputUnsupported: it is no SQLite file, or one that nsys did not write.
        InputCorrupt: its content contradicts itself, now or later while it is read.
    """
    _check_header(path)
    # immutable: no lock, no -shm and no -wal file is made; what a -wal holds is not seen.
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection, ExitStack() as stack:
            connection.text_factory = bytes
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
                connection.execute(f"PRAGMA {pragma}")
            database = _describe(path, connection)
            if pages:
                with suppress(NotPlain):
                    database = replace(database, pages=stack.enter_context(open_pages(path)))
            yield database
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        reason = said_by(error) if isinstance(error, sqlite3.Error) else "a name in it is no text"
        raise InputCorrupt(
            f"{path} is damaged.",
            f"It starts like an SQLite file, but reading it fails: {reason}.",
            f"Copy it again, or export it again: {_EXPORT_AGAIN}",
        ) from error


def _check_header(path: Path) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(100)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputMissing(
            f"{path} is not a file.",
            "An nsys SQLite export is one file.",
            "Check the path.",
        ) from error
    except OSError as error:
        raise InputUnsupported(
            f"{path} cannot be opened.",
            f"The system says: {error.strerror}.",
            "Check who may read it.",
        ) from error
    if not size:
        raise InputEmpty(
            f"{path} is empty.",
            "It has no bytes; the export may have failed.",
            f"Export the report again: {_EXPORT_AGAIN}",
        )
    if not head.startswith(_MAGIC):
        cut = _MAGIC.startswith(head)
        if cut:
            raise _truncated(path, size, None)
        raise InputUnsupported(
            f"{path} is not an SQLite file.",
            "Its first bytes are not those of SQLite; encrypted databases look like this too.",
            f"Give the file that this writes: {_EXPORT_AGAIN}",
        )
    if len(head) < 100:
        raise _truncated(path, size, None)
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    # The page count counts only where the writer kept it (fileformat2.html 1.3.7).
    kept = pages > 0 and head[24:28] == head[92:96]
    if kept and size < page * pages:
        raise _truncated(path, size, page * pages)


def _truncated(path: Path, size: int, whole: int | None) -> InputTruncated:
    expected = "its header alone has 100" if whole is None else f"its header says {whole:,}"
    return InputTruncated(
        f"{path} is cut off.",
        f"It has {size:,} bytes, but {expected}; a copy or an export was interrupted.",
        f"Copy it again, or export it again: {_EXPORT_AGAIN}",
    )


def _describe(path: Path, connection: sqlite3.Connection) -> Database:
    # Root page 0 is a virtual table: its rows come from code, not from the file.
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    ).fetchall()
    names = sorted(_text(row[0]) for row in rows)
    tables = {name.lower(): name for name in names if not name.startswith("sqlite_")}
    columns = {low: _columns(connection, name) for low, name in tables.items()}
    database = Database(path, tables, columns, _leftovers(path), connection)
    _check_nsys(database)
    return database


def _text(cell: object) -> str:
    return cell.decode("utf-8") if isinstance(cell, bytes) else str(cell)


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    # table_info leaves generated columns out: nothing of the schema is computed.
    quoted = table.replace('"', '""')
    found = connection.execute(f'PRAGMA table_info("{quoted}")').fetchall()
    names = [_text(row[1]) for row in found]
    return {name.lower(): name for name in names}


def _leftovers(path: Path) -> tuple[str, ...]:
    sentences = []
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size:
        sentences.append(
            f"{log.name} lies beside the export and was not read: what it holds is missing here. "
            "Close the program that has the export open, or export again."
        )
    journal = path.with_name(path.name + "-journal")
    if journal.is_file():
        with journal.open("rb") as file:
            hot = file.read(8) == _HOT_JOURNAL
        if hot:
            sentences.append(
                f"{journal.name} lies beside the export: it was interrupted while it was written, "
                "and rows may be missing. Export again."
            )
    return tuple(sentences)


def _check_nsys(database: Database) -> None:
    path, tables = database.path, database.tables
    if not tables:
        raise InputUnsupported(
            f"{path} is an SQLite file without a single table.",
            "The export wrote nothing, or what it wrote is in a -wal file that is not here.",
            f"Export the report again: {_EXPORT_AGAIN}",
        )
    cuda = any(name.startswith("cupti_activity_kind_") for name in tables)
    if "stringids" in tables and (cuda or any(name in tables for name in NSYS_TABLES)):
        return
    if cuda and "stringtable" in tables:
        raise InputUnsupported(
            f"{path} was written by nvprof.",
            "nvprof knows neither CUDA graph nodes nor NVTX domains; only nsys exports are read.",
            "Record again with nsys: nsys profile --trace=cuda,nvtx --cuda-graph-trace=node",
        )
    raise InputUnsupported(
        f"{path} is an SQLite file, but not an export of nsys.",
        f"It has none of the tables that nsys writes; it has {some(tables.values())}.",
        f"Give the file that this writes: {_EXPORT_AGAIN}",
    )
