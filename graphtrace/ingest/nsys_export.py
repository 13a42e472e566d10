# SPDX-License-Identifier: Apache-2.0
"""What a reader of nsys exports asks of one, whatever file or folder it is stored as."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphtrace.ingest.nsys_cells import Column
from graphtrace.ingest.sqlite_pages import Chunk

__all__ = ["NSYS_TABLES", "Export", "Only", "Refuse", "some"]

_SUFFIX: Final = re.compile(r"_v(\d+)\Z")
NSYS_TABLES: Final = (
    "nvtx_events",
    "target_info_session_start_time",
    "target_info_system_env",
    "processstreams",
    "analysis_details",
)
"""Tables beside those of CUPTI that nobody else writes, in lower case."""

Refuse = Callable[[str, int, str], None]
"""Counts rows that a reading itself refuses: reason, how many, the smallest sample."""


@dataclass(frozen=True, slots=True)
class Only:
    """A condition: rows whose cell in `column` is one of `values`.

    Attributes:
        odd: whether rows whose cell there is no integer are read too, to be counted as refused.
    """

    column: str
    values: tuple[int, ...]
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Export(ABC):
    """An open export: its tables and columns under lower-case names.

    Attributes:
        path: the file or folder, as the user named it.
        tables: real table name by lower-case name.
        columns: by lower-case table name, the real column name by lower-case name.
        leftovers: sentences on what the export lost before it came here.
    """

    path: Path
    tables: Mapping[str, str]
    columns: Mapping[str, Mapping[str, str]]
    leftovers: tuple[str, ...]

    def find(self, name: str) -> str | None:
        """Lower-case name of a table: the name itself, else its highest `_V2`, `_V3`... form."""
        low = name.lower()
        if low in self.tables:
            return low
        numbered = [
            (int(suffix[1]), table)
            for table in self.tables
            if table.startswith(low) and (suffix := _SUFFIX.fullmatch(table[len(low) :]))
        ]
        return max(numbered)[1] if numbered else None

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table is there and has all these columns."""
        low = self.find(table)
        return low is not None and all(c.lower() in self.columns[low] for c in columns)

    @abstractmethod
    def readings(
        self, low: str, columns: Sequence[Column], only: Only | None, refuse: Refuse
    ) -> Iterator[Iterable[Chunk]]:
        """Ways to read columns of a table, the best first; each gives all rows, in chunks.

        A way may raise `NotPlain` while it is read, if another one follows: what it gave and
        refused is void then.

        Args:
            low: lower-case name of a table.
            columns: columns that it has; a chunk holds them in this order.
            only: which rows; its column is there.
            refuse: counts rows that are left out because a cell fits no type of ours.
        """

    @abstractmethod
    def strings(self, ids: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
        """Strings of `StringIds` with these ids and no other; None is a value that is no text."""

    @abstractmethod
    def records(self, low: str, names: Sequence[str]) -> Mapping[str, str]:
        """Texts in column `value` of a table, by `name`: records of these names and no other."""


def some(names: Iterable[str]) -> str:
    """A few of these names, and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(name[:40] for name in ordered[:4])
    return shown if len(ordered) <= 4 else f"{shown} and {len(ordered) - 4} more"
