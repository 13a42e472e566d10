# SPDX-License-Identifier: Apache-2.0
"""Columns of an export as numpy arrays, cell types checked."""

from collections.abc import Iterable, Sequence

from graphtrace.ingest.nsys_cells import Column, Pile
from graphtrace.ingest.nsys_export import Export, Only
from graphtrace.ingest.nsys_frame import Frame
from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.sqlite_pages import NotPlain
from graphtrace.model.errors import InputUnsupported

__all__ = ["Column", "Frame", "Only", "fetch", "lookup"]


def fetch(
    export: Export,
    table: str,
    wanted: Sequence[Column],
    quarantine: Quarantine,
    *,
    meant_for: str,
    only: Only | None = None,
) -> Frame | None:
    """Read columns of a table.

    Args:
        export: the export.
        table: nsys' name of the table.
        wanted: columns; one that is absent is left out, unless it is needed.
        quarantine: where rows with wrongly typed cells are counted.
        meant_for: model table that the rows are meant for.
        only: which rows to read; a condition on a column that is absent reads all.

    Returns:
        The columns, or None where the table is absent.

    Raises:
        InputUnsupported: the table lacks a column that its rows mean nothing without.
        sqlite3.DatabaseError, InputCorrupt: the export is damaged.
    """
    low = export.find(table)
    if low is None:
        return None
    have = export.columns[low]
    missing = [
        column.name for column in wanted if column.needed and column.name.lower() not in have
    ]
    if missing:
        raise InputUnsupported(
            f"{export.path} is an export of nsys in a form that is not known.",
            f"Its table {export.tables[low]} has no column {', '.join(missing)}.",
            "Export the report again with a newer nsys: nsys export --type sqlite REPORT.nsys-rep",
        )
    columns = [column for column in wanted if column.name.lower() in have]
    if not columns:
        return Frame(0)
    if only is not None and only.column.lower() not in have:
        only = None
    own = Quarantine()

    def refuse(reason: str, count: int, sample: str) -> None:
        own.add(meant_for, reason, count, sample)

    void: NotPlain | None = None
    for chunks in export.readings(low, columns, only, refuse):
        own = Quarantine()  # What was read and counted so far is let go.
        pile = Pile(columns)
        try:
            for chunk in chunks:
                pile.add(chunk.rows, chunk.columns, own, meant_for)
        except NotPlain as error:
            void = error
            continue
        quarantine.merge(own)
        return pile.frame()
    raise AssertionError("no reading of the table was left") from void


def lookup(
    export: Export, ids: Iterable[int], quarantine: Quarantine, *, meant_for: str
) -> dict[int, str]:
    """Strings of `StringIds` by id: these ids and no other, for the table holds host names too.

    An id without a text is left out; a text that is no UTF-8 has its bad bytes replaced.
    """
    found: dict[int, str] = {}
    for number, text in export.strings(sorted(set(ids))):
        if text is None:
            quarantine.add(meant_for, "StringIds.value is not text", 1, f"id {number}")
        else:
            found[number] = text.decode("utf-8", "replace")
    return found
