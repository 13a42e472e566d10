# SPDX-License-Identifier: Apache-2.0
"""Definitions of a recorded program as tables: stages, accesses, what was refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from graphtrace.model.arrays import encode, lists, make_table, numbers, strings
from graphtrace.model.raw import RawProcess

__all__ = ["Accesses", "Refused", "Stages", "counts_of", "whole", "word"]

_PATTERNS: Final = frozenset({"contiguous", "strided", "gather", "broadcast", "unknown"})
_MAX_WORD: Final = 1024
_MAX_ITEMS: Final = 1 << 20


@dataclass(slots=True)
class Stages:
    """Stages of all processes by path; every prefix of a path is a stage."""

    keys: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    def add(self, parent: int, name: str, origin: str) -> int:
        """Key of a stage; -1 as parent is none. A `/` in the name makes several elements."""
        for part in [p for p in name.split("/") if p] or ["unnamed"]:
            path = f"{self.paths[parent]}/{part}" if parent >= 0 else part
            key = self.keys.get(path)
            if key is None:
                key = self.keys[path] = len(self.paths)
                self.paths.append(path)
                self.parents.append(parent)
                self.names.append(part)
                self.origins.append(origin)
            parent = key
        return parent

    def table(self) -> pa.Table:
        """The stages table."""
        parents = np.asarray(self.parents, dtype=np.int64)
        columns = {
            "stage": np.arange(len(parents)),
            "parent": numbers(np.maximum(parents, 0), pa.int32(), parents >= 0),
            "path": strings(self.paths),
            "name": strings(self.names),
            "origin": encode(self.origins),
        }
        return make_table("stages", len(parents), columns)


def whole(value: object, top: int = 1 << 62) -> int | None:
    """A count that a definition holds; None for anything else."""
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= top
    return value if ok and isinstance(value, int) else None


def word(value: object) -> str | None:
    """A text that a definition holds, cut where it is absurdly long; None for anything else."""
    return value[:_MAX_WORD] if isinstance(value, str) else None


@dataclass(slots=True)
class Accesses:
    """How stages of all processes touch their tensors, a row a tensor."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)

    def read(self, process: RawProcess, stage_keys: Mapping[int, int]) -> dict[int, int]:
        """Add the accesses of a process; key of the first row of each id."""
        keys: dict[int, int] = {}
        for line in process.lines.get("access", ()):
            ident, stage = whole(line.get("id")), whole(line.get("stage"))
            rows = line.get("rows")
            good = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
            if ident is None or stage is None or stage not in stage_keys or not good or not rows:
                process.bad_lines += 1
                continue
            keys[ident] = len(self.rows)
            self.rows.extend(rows)
            self.stages.extend([stage_keys[stage]] * len(rows))
        return keys

    def _numbers(self, name: str) -> pa.Array:
        values = [whole(row.get(name)) for row in self.rows]
        valid = np.asarray([value is not None for value in values], dtype=np.bool_)
        return numbers([value or 0 for value in values], pa.int64(), valid)

    def _flags(self, name: str) -> pa.Array:
        values = [row.get(name) for row in self.rows]
        valid = np.asarray([isinstance(value, bool) for value in values], dtype=np.bool_)
        return numbers(np.asarray([value is True for value in values]), pa.bool_(), valid)

    def table(self) -> pa.Table:
        """The access table."""
        patterns = [row.get("pattern") for row in self.rows]
        shapes = [row.get("shape") for row in self.rows]
        columns = {
            "access": np.arange(len(self.rows)),
            "stage": np.asarray(self.stages, dtype=np.int64),
            "tensor": strings(word(row.get("tensor")) or "" for row in self.rows),
            "pattern": encode(p if p in _PATTERNS else "unknown" for p in patterns),
            "dtype": encode(word(row.get("dtype")) for row in self.rows),
            "shape": lists((counts_of(shape) for shape in shapes), pa.int64()),
            "row_bytes": self._numbers("row_bytes"),
            "row_stride_bytes": self._numbers("row_stride"),
            "working_set_bytes": self._numbers("working_set"),
            "offset_bytes": self._numbers("offset"),
            "read": self._flags("read"),
            "written": self._flags("written"),
        }
        return make_table("access", len(self.rows), columns)


@dataclass(slots=True)
class Refused:
    """Counts of refused rows by table and reason."""

    rows: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, table: str, reason: str, count: int) -> None:
        """Count refused rows."""
        if count:
            self.rows[table, reason] = self.rows.get((table, reason), 0) + count

    def table(self) -> pa.Table:
        """The quarantine table."""
        keys = sorted(self.rows)
        columns = {
            "table": encode(key[0] for key in keys),
            "reason": encode(key[1] for key in keys),
            "count": numbers([self.rows[key] for key in keys], pa.int64()),
        }
        return make_table("quarantine", len(keys), columns)


def counts_of(value: object) -> list[int] | None:
    """A list of counts that a definition holds; None for anything else."""
    if not isinstance(value, list) or len(value) > _MAX_ITEMS:
        return None
    sizes = [whole(item) for item in value]
    return None if None in sizes else [item for item in sizes if item is not None]
