# SPDX-License-Identifier: Apache-2.0
"""A trace: typed tables that one or several inputs were read into."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from graphtrace.model.errors import NoGpuWork
from graphtrace.model.schema import TABLES, empty_table
from graphtrace.model.vocabulary import InputKind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["InputInfo", "RunCost", "TableSet", "Trace"]

_BATCH_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class InputInfo:
    """What an input is and who wrote it.

    `synthetic` is true for files built by `graphtrace.testing`: every report says so.
    """

    path: str
    kind: InputKind
    tool: str | None = None
    tool_version: str | None = None
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class RunCost:
    """What recording cost the program; a field is None where it was not measured."""

    records: int | None = None
    lost: int | None = None
    hook_ns_per_border: int | None = None
    overhead_ns: int | None = None
    profiler: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TableSet:
    """Tables by name. An absent table could not be carried by any input; an empty one was empty."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, table in self.tables.items():
            if not table.schema.equals(TABLES[name].schema):
                raise TypeError(f"table {name} does not have its declared schema: {table.schema}")

    def __repr__(self) -> str:
        """Rows by table: the tables themselves fill a screen each."""
        rows = ", ".join(f"{name}={table.num_rows}" for name, table in self.tables.items())
        return f"{type(self).__name__}({rows})"

    def has(self, name: str) -> bool:
        """Whether an input could carry this table, be it with no rows."""
        return name in self.tables

    def get(self, name: str) -> pa.Table:
        """The table, or one with no rows where it is absent."""
        return self.tables[name] if name in self.tables else empty_table(name)

    def rows(self, name: str) -> int:
        """Number of rows; 0 where the table is absent."""
        return int(self.get(name).num_rows)

    def with_tables(self, **tables: pa.Table) -> Self:
        """A copy in which these tables are added or replaced."""
        return type(self)({**self.tables, **tables})


@dataclass(frozen=True, slots=True)
class Trace:
    """Inputs and the tables that they were read into.

    Attributes:
        inputs: one entry a file, in the order given.
        tables: the tables, with keys that are unique over all inputs.
        warnings: sentences a person must read before the numbers.
        cost: what recording cost, where one of the inputs says so.
        nothing: for each input without work, the error that says why; raised by `require_work`.
    """

    inputs: tuple[InputInfo, ...]
    tables: TableSet
    warnings: tuple[str, ...] = ()
    cost: RunCost | None = None
    nothing: tuple[NoGpuWork, ...] = ()

    def __getattr__(self, name: str) -> pa.Table:
        if name in TABLES:
            return self.tables.get(name)
        raise AttributeError(f"a trace has no table {name!r}; it has {', '.join(TABLES)}")

    def table(self, name: str) -> pa.Table:
        """The table of that name; the only way to the one named `batches`."""
        if name not in TABLES:
            raise KeyError(f"no table {name!r}; there are {', '.join(TABLES)}")
        return self.tables.get(name)

    def batches(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Stream a table in record batches of bounded size.

        Args:
            table: name of the table.
            columns: columns wanted; all of them by default.
        """
        chosen = self.table(table)
        if columns is not None:
            chosen = chosen.select(list(columns))
        yield from chosen.to_batches(max_chunksize=_BATCH_ROWS)

    def to_pandas(self, table: str) -> "pd.DataFrame":
        """The table as a pandas frame; integer columns that have nulls stay integers."""
        import pandas as pd

        integers = {
            pa.int16(): pd.Int16Dtype(),
            pa.int32(): pd.Int32Dtype(),
            pa.int64(): pd.Int64Dtype(),
            pa.uint64(): pd.UInt64Dtype(),
            pa.bool_(): pd.BooleanDtype(),
        }
        frame: pd.DataFrame = self.table(table).to_pandas(types_mapper=integers.get)
        return frame

    @property
    def synthetic(self) -> bool:
        """Whether any input was built by `graphtrace.testing`."""
        return any(info.synthetic for info in self.inputs)

    def require_work(self) -> None:
        """Raise where no input holds GPU work, a recorded stage or a batch.

        Raises:
            NoGpuWork: with the reason of the first such input.
        """
        work = ("activities", "ncu_results", "batches", "ranges")
        if any(self.tables.rows(name) for name in work[:3]):
            return
        if self._has_recorded_stage():
            return
        if self.nothing:
            raise self.nothing[0]
        raise NoGpuWork(
            "There is no GPU work in the given input.",
            "It holds no kernel, no copy, no ncu result and no recorded stage or batch.",
            "Record again around the part of the program that uses the GPU.",
        )

    def _has_recorded_stage(self) -> bool:
        stage = self.tables.get("ranges").column("stage")
        return bool(stage.null_count < len(stage))
