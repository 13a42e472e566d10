# SPDX-License-Identifier: Apache-2.0
"""Records of what ncu printed with `--csv`: lines of other programs left out, pages told apart.

ncu quotes every cell and doubles quotes inside. Around the page stand lines of ncu (`==PROF==`) and
of the program that was profiled; a file may hold the output of several runs, one after another.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["SYNTHETIC_MARK", "Page", "Printed", "Said", "records"]

SYNTHETIC_MARK: Final = "==PROF== graphtrace.testing synthetic"
"""Start of the line that `graphtrace.testing` leaves in the pages it builds."""
_BOMS: Final = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
_CELL: Final = re.compile(r'"((?:[^"]|"")*)"|([^,"]*)')
_MAX_LINES: Final = 2000
"""Lines of one record: rule descriptions hold line ends, nothing holds as many as this."""


@dataclass(frozen=True, slots=True)
class Page:
    """A header: which columns follow.

    Attributes:
        columns: names in order.
        kind: raw (a column a metric), details (a row a metric) or summary (over launches).
    """

    columns: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Printed:
    """One record below a header.

    Attributes:
        page: ordinal of the header in the file, and the header.
        line: number of its first line, from 1.
        cells: as many as were printed.
        whole: whether its last quote was closed.
    """

    page: tuple[int, Page]
    line: int
    cells: list[str]
    whole: bool


@dataclass(slots=True)
class Said:
    """What lines between the records say.

    Attributes:
        complaints: errors of ncu.
        synthetic: whether we built the file ourselves.
    """

    complaints: list[str] = field(default_factory=list)
    synthetic: bool = False


def _decoded(file: BinaryIO) -> io.TextIOWrapper:
    head = file.read(4)
    file.seek(0)
    encoding = next((name for bom, name in _BOMS if head.startswith(bom)), "utf-8")
    return io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=None)


def _header(line: str) -> Page | None:
    if "Kernel Name" not in line:
        return None
    columns = tuple(_cells(line))
    if "Kernel Name" not in columns:
        return None
    if {"Minimum", "Maximum", "Average"} <= set(columns):
        return Page(columns, "summary")
    if columns[0] != "ID":
        return None
    return Page(columns, "details" if "Metric Value" in columns else "raw")


def _cells(text: str) -> list[str]:
    cells: list[str] = []
    at, end = 0, len(text)
    while True:
        match = _CELL.match(text, at)
        if match is None:
            # A quote inside an unquoted cell, or an open one: the rest is one cell.
            return [*cells, text[at:].lstrip('"')]
        quoted, plain = match.group(1), match.group(2)
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        at = match.end()
        if at >= end:
            return cells
        if text[at] != ",":
            return [*cells[:-1], cells[-1] + text[at:]]
        at += 1


def _is_row(line: str, page: Page) -> bool:
    first = line[:24].lstrip('"')
    return first[:1].isdigit() or (page.kind == "raw" and line.startswith('"",'))


def records(path: Path, said: Said) -> Iterator[Printed]:
    """Records of all pages of a file, in order.

    Args:
        path: the file.
        said: filled with what the lines between the records say.

    Raises:
        OSError: the file cannot be read.
        UnicodeError: UTF-16 that breaks off.
    """
    with path.open("rb") as file, _decoded(file) as text:
        page: tuple[int, Page] | None = None
        pages = 0
        lines = enumerate(text, 1)
        for number, line in lines:
            bare = line.rstrip("\n")
            header = _header(bare)
            if header is not None:
                page, pages = (pages, header), pages + 1
                continue
            if bare.startswith("==ERROR=="):
                said.complaints.append(bare.removeprefix("==ERROR==").strip()[:200])
            said.synthetic |= bare.startswith(SYNTHETIC_MARK)
            if page is None or not _is_row(bare, page[1]):
                continue
            whole, taken = bare.count('"') % 2 == 0, 1
            while not whole and taken < _MAX_LINES:
                following = next(lines, None)
                if following is None:
                    break
                bare += "\n" + following[1].rstrip("\n")
                whole, taken = bare.count('"') % 2 == 0, taken + 1
            yield Printed(page, number, _cells(bare), whole)
