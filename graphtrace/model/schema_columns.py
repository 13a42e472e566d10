# SPDX-License-Identifier: Apache-2.0
"""What a column and a table are, and short ways to declare the kinds of column that repeat."""

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

__all__ = [
    "BOOL",
    "I16",
    "I32",
    "I64",
    "LAUNCH",
    "TEXT",
    "Column",
    "KeySpace",
    "Table",
    "integer",
    "key",
    "text",
    "time",
]

KeySpace = Literal[
    "source",
    "process",
    "device",
    "stage",
    "access",
    "graph",
    "node",
    "exec",
    "batch",
    "replay",
    "activity",
    "result",
]

TEXT: Final = pa.dictionary(pa.int32(), pa.string())
I64: Final = pa.int64()
I32: Final = pa.int32()
I16: Final = pa.int16()
BOOL: Final = pa.bool_()


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Arrow type, its unit and what a value means."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = False
    key: KeySpace | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is, and its columns in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with doc and unit as field metadata."""
        return pa.schema(
            [
                pa.field(c.name, c.type, c.nullable, metadata={"doc": c.doc, "unit": c.unit})
                for c in self.columns
            ]
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(c.name for c in self.columns)


def key(space: KeySpace, doc: str, *, nullable: bool = False, name: str | None = None) -> Column:
    """A key of a key space; named as the space unless told otherwise."""
    return Column(name or space, I32, doc, nullable=nullable, key=space)


def time(name: str, doc: str, *, nullable: bool = False) -> Column:
    """A time in ns."""
    return Column(name, I64, doc, "ns", nullable)


def text(name: str, doc: str, *, nullable: bool = False) -> Column:
    """Text that repeats."""
    return Column(name, TEXT, doc, "", nullable)


def integer(
    name: str,
    doc: str,
    unit: str = "",
    *,
    nullable: bool = True,
    type: pa.DataType = I64,  # noqa: A002 - the word of the schema
) -> Column:
    """A whole number that may be absent."""
    return Column(name, type, doc, unit, nullable)


LAUNCH: Final = tuple(
    integer(f"{what}_{axis}", f"{what} size in {axis}", "blocks" if what == "grid" else "threads")
    for what in ("grid", "block")
    for axis in "xyz"
)
