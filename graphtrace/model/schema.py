# SPDX-License-Identifier: Apache-2.0
"""Every table of a trace, declared once: columns, types, units and meaning.

Times are int64 nanoseconds. Strings that repeat are dictionary encoded. Rows carry keys, never
positions: a column with `key` set holds a member of that key space, and joining files shifts whole
key spaces, so that keys stay unique in a trace. Null means not measured, never zero.
"""

from typing import Final

import pyarrow as pa

from graphtrace.model.schema_columns import Column, KeySpace, Table
from graphtrace.model.schema_profiled import DERIVED, PROFILED
from graphtrace.model.schema_recorded import RECORDED

__all__ = ["TABLES", "Column", "KeySpace", "Table", "empty_table"]

TABLES: Final[dict[str, Table]] = {t.name: t for t in (*RECORDED, *PROFILED, *DERIVED)}
"""Every table by name."""


def empty_table(name: str) -> pa.Table:
    """A table of the given name with no rows."""
    # The schema's own `empty_table` imports pandas; the import is here because arrays need TABLES.
    from graphtrace.model.arrays import make_table

    return make_table(name, 0, {})
