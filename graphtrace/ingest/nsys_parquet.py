# SPDX-License-Identifier: Apache-2.0
"""Reader of `nsys export --type parquetdir` and `--type arrowdir`: a folder with a file a table.

Only files of tables that are wanted are opened, and of those only the columns that are wanted:
what nsys stored about the environment stays closed. All that Arrow may raise over a stranger's
file is turned into sentences where it is called, and nowhere else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from graphtrace.ingest.nsys_arrow import Direct, chunk_of, integers, texts
from graphtrace.ingest.nsys_cells import Column
from graphtrace.ingest.nsys_export import NSYS_TABLES, Export, Only, Refuse, some
from graphtrace.ingest.nsys_folder import ENDINGS, damaged, folder_names, open_table
from graphtrace.ingest.nsys_sqlite import gather, source_of
from graphtrace.ingest.source import Source
from graphtrace.ingest.sqlite_pages import Chunk
from graphtrace.model.errors import InputCorrupt, InputEmpty, InputUnsupported

__all__ = ["Folder", "open_folder", "read"]

_EXPORT_AGAIN: Final = "nsys export --type parquetdir --force-overwrite true REPORT.nsys-rep"
_NAME_IDS: Final = frozenset({"demangledname", "shortname", "nameid", "textid"})
"""Columns of ids of strings, which an export may also hold as the strings themselves."""


class _Columns(Mapping[str, Mapping[str, str]]):
    """Columns by table; a file is opened when its table is first asked for."""

    def __init__(self, path: Path, tables: Mapping[str, str]) -> None:
        self._path = path
        self._tables = tables
        self._known: dict[str, Mapping[str, str]] = {}

    def __getitem__(self, low: str) -> Mapping[str, str]:
        if low not in self._known:
            place = self._path / self._tables[low]
            with open_table(place) as file:
                self._known[low] = _by_lower_case(place, file.names)
        return self._known[low]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _by_lower_case(place: Path, names: Sequence[str]) -> dict[str, str]:
    by_low = {name.lower(): name for name in names}
    if len(by_low) < len(names):
        raise InputCorrupt(
            f"{place} has two columns of one name.",
            "Names of columns differ by more than their case in every export of nsys.",
            f"Export the report again: {_EXPORT_AGAIN}",
        )
    return by_low


@dataclass(frozen=True, slots=True)
class Folder(Export):
    """An open export of a file a table; `tables` are names of files.

    Attributes:
        direct: strings that stand in columns of ids, and the ids that they were given.
    """

    direct: Direct = field(default_factory=Direct)

    def readings(
        self, low: str, columns: Sequence[Column], only: Only | None, refuse: Refuse
    ) -> Iterator[Iterable[Chunk]]:
        """See `Export.readings`."""
        yield self._chunks(low, columns, only, refuse)

    def _chunks(
        self, low: str, columns: Sequence[Column], only: Only | None, refuse: Refuse
    ) -> Iterator[Chunk]:
        have = self.columns[low]
        names = [have[column.name.lower()] for column in columns]
        direct = [self.direct if column.name.lower() in _NAME_IDS else None for column in columns]
        tested = None if only is None else have[only.column.lower()]
        wanted = names if tested is None or tested in names else [*names, tested]
        texts = [name for name, column in zip(names, columns, strict=True) if column.text]
        place = self.path / self.tables[low]
        with open_table(place, texts) as file:
            for batch in file.batches(wanted):
                with damaged(place):
                    test = None if tested is None else batch.column(wanted.index(tested))
                    arrays = [batch.column(number) for number in range(len(names))]
                    chunk = chunk_of(arrays, columns, direct, test, only, refuse)
                if chunk.rows:
                    yield chunk

    def strings(self, ids: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
        """See `Export.strings`."""
        wanted = np.asarray(list(ids), dtype=np.int64)
        for number in wanted[wanted < 0].tolist():
            text = self.direct.text(number)
            if text is not None:
                yield number, text
        low = self.find("StringIds")
        if low is None or not len(wanted) or not self.has("StringIds", "id", "value"):
            return
        have, place = self.columns[low], self.path / self.tables[low]
        with open_table(place) as file:
            for batch in file.batches([have["id"], have["value"]]):
                with damaged(place):
                    found = integers(batch.column(0))
                    if found is None:
                        return
                    numbers, valid = found
                    rows = np.flatnonzero(np.isin(numbers, wanted) & valid)
                    values = texts(batch.column(1), rows)
                yield from zip(numbers[rows].tolist(), values, strict=True)

    def records(self, low: str, names: Sequence[str]) -> Mapping[str, str]:
        """See `Export.records`."""
        have, place = self.columns[low], self.path / self.tables[low]
        wanted = {name.encode(): name for name in names}
        found: dict[str, str] = {}
        with open_table(place) as file:
            for batch in file.batches([have["name"], have["value"]]):
                with damaged(place):
                    keys = texts(batch.column(0))
                    rows = [row for row, key in enumerate(keys) if key in wanted]
                    values = texts(batch.column(1), np.asarray(rows, dtype=np.intp))
                for row, value in zip(rows, values, strict=True):
                    if value is not None:
                        found[wanted[keys[row] or b""]] = value.decode("utf-8", "replace")
        return found


def open_folder(path: Path) -> Folder:
    """Open an export of a file a table; nothing is changed in the folder.

    Args:
        path: a folder that `nsys export --type parquetdir` or `--type arrowdir` wrote.

    Raises:
        InputMissing: there is no such folder.
        InputEmpty: it holds nothing.
        InputUnsupported: nsys did not write it, or two files of it are for one table.
    """
    names = folder_names(path)
    if not names:
        raise InputEmpty(
            f"{path} is an empty folder.",
            "It holds no file; the export may have failed.",
            f"Export the report again: {_EXPORT_AGAIN}",
        )
    tables: dict[str, str] = {}
    for name in sorted(names):
        stem, dot, ending = name.rpartition(".")
        if dot + ending not in ENDINGS or not stem:
            continue
        other = tables.setdefault(stem.lower(), name)
        if other != name:
            raise InputUnsupported(
                f"{path} holds two files for one table: {other} and {name}.",
                "Which of them belongs to the export cannot be known.",
                "Export the report again, into a new folder: "
                "nsys export --type parquetdir -o NEW REPORT.nsys-rep",
            )
    _check_nsys(path, tables)
    leftovers: tuple[str, ...] = ()
    if "stringids" not in tables:
        leftovers = (
            "There is no table StringIds: kernels, calls and ranges whose names are kept there "
            "have none here. Copy the whole folder, or export again.",
        )
    return Folder(path, tables, _Columns(path, tables), leftovers)


def _check_nsys(path: Path, tables: Mapping[str, str]) -> None:
    if any(name.startswith("cupti_activity_kind_") for name in tables):
        return
    if any(name in tables for name in ("stringids", "meta_data_export", *NSYS_TABLES)):
        return
    has = f"it has {some(tables.values())}" if tables else "it has no Parquet file"
    raise InputUnsupported(
        f"{path} is a folder, but not an export of nsys.",
        f"It has none of the tables that nsys writes; {has}.",
        f"Give the folder that this writes: {_EXPORT_AGAIN}",
    )


def read(path: Path) -> Source:
    """Read an export that `nsys export --type parquetdir` or `--type arrowdir` wrote.

    Args:
        path: the folder.

    Returns:
        What the reader of SQLite exports returns for the same report.

    Raises:
        InputMissing, InputEmpty, InputUnsupported: see `open_folder`.
        InputTruncated, InputCorrupt: see `graphtrace.ingest.nsys_folder.open_table`.
    """
    return source_of(gather(open_folder(path)), path, "nsys_parquetdir")
