# SPDX-License-Identifier: Apache-2.0
"""Reader of `graphtrace capture` recordings, finished or not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import as_numpy, numbers, valid_of
from graphtrace.model.assembly import assemble
from graphtrace.model.errors import InputCorrupt, InputMissing, NoGpuWork
from graphtrace.model.recording import RAW, Manifest, read_manifest, read_tables
from graphtrace.model.schema import TABLES, KeySpace
from graphtrace.model.trace import InputInfo, RunCost, TableSet

__all__ = ["read"]

_OWNERS: Final[dict[KeySpace, str]] = {
    "process": "processes",
    "device": "devices",
    "stage": "stages",
    "access": "access",
    "graph": "graphs",
    "node": "nodes",
    "exec": "execs",
    "batch": "batches",
    "replay": "replays",
    "activity": "activities",
    "result": "ncu_results",
}
"""Table in which each key is declared, by the column of the key's name."""

_WORK: Final = ("batches", "ranges", "activities", "ncu_results")


def read(path: Path) -> Source:
    """Read a recording.

    A recording without `done` is read from its raw records and says that it is unfinished.

    Args:
        path: the folder.

    Raises:
        InputMissing: there is no such folder.
        InputTruncated: files of it are missing or cut short.
        InputCorrupt: a file of it contradicts itself or is no file of a recording.
        InputUnsupported: a newer graphtrace wrote it.
    """
    if not path.is_dir():
        raise InputMissing(
            f"{path} is no recording.",
            "A recording is a folder, as `graphtrace capture` writes it.",
            "Check the path.",
        )
    manifest = read_manifest(path)
    tables, finished = read_tables(path)
    warnings = list(manifest.missing)
    cost = manifest.cost
    if not finished:
        raw = _from_raw(path)
        if raw is not None:
            tables, cost, missing = raw
            warnings.extend(missing)
        warnings.insert(0, f"{path.name} is unfinished: graphtrace was stopped while it recorded.")
    tables = _checked(path, tables)
    return Source(
        info=_info(path, manifest),
        tables=tables,
        warnings=tuple(dict.fromkeys(warnings)),
        # What recording cost is known of captures; a file that was exported says nothing of it.
        cost=cost if manifest.origin is None else None,
        nothing=_nothing(path, manifest, tables, warnings),
        manifest=manifest,
    )


def _info(path: Path, manifest: Manifest) -> InputInfo:
    origin = manifest.origin
    if origin is None:
        version = manifest.tools.get("graphtrace")
        return InputInfo(str(path), "gtrace", "graphtrace capture", version)
    return InputInfo(str(path), "gtrace", origin.tool, origin.tool_version, origin.synthetic)


def _from_raw(path: Path) -> tuple[TableSet, RunCost, tuple[str, ...]] | None:
    raw = path / RAW
    if not raw.is_dir():
        return None
    try:
        assembled = assemble(raw)
    except OSError as error:
        raise InputCorrupt(
            f"{raw} cannot be read.", f"{error.strerror or error}.", "Copy the recording again."
        ) from error
    return assembled.tables, assembled.cost, assembled.missing


def _bad(path: Path, table: str, why: str) -> InputCorrupt:
    return InputCorrupt(
        f"{path / table}.parquet contradicts the rest of the recording.",
        f"{why}.",
        "Copy the whole recording again, or record again.",
    )


def _checked(path: Path, tables: TableSet) -> TableSet:
    """Keys that exist and times that run forward; what cannot be true is refused.

    Raises:
        InputCorrupt: a key is not declared where it should be, or twice.
    """
    sizes = {space: tables.rows(owner) for space, owner in _OWNERS.items()}
    sizes["source"] = 1
    for name, table in tables.tables.items():
        for column in TABLES[name].columns:
            if column.key is None:
                continue
            values = table.column(column.name)
            keys = as_numpy(values)[valid_of(values)]
            if _OWNERS.get(column.key) == name and column.name == column.key:
                if not _count_up(keys, table.num_rows):
                    raise _bad(path, name, f"Its {column.name} keys do not count from 0")
            elif len(keys) and (keys.min() < 0 or keys.max() >= sizes[column.key]):
                raise _bad(path, name, f"It names a {column.key} that is not there")
    _check_tree(path, tables)
    return _forward(tables)


def _count_up(keys: npt.NDArray[np.int32], rows: int) -> bool:
    """Whether each of the numbers from 0 on is there once."""
    wanted = np.arange(rows, dtype=np.int32)
    if len(keys) != rows:
        return False
    return bool((keys == wanted).all()) or bool((np.sort(keys) == wanted).all())


def _check_tree(path: Path, tables: TableSet) -> None:
    """Every stage lies in one whose path begins its own; this rules out circles, too."""
    stages = tables.get("stages")
    paths, names = stages.column("path").to_pylist(), stages.column("name").to_pylist()
    parents = as_numpy(stages.column("parent"))
    has_parent = valid_of(stages.column("parent"))
    where = {int(key): row for row, key in enumerate(as_numpy(stages.column("stage")))}
    for row, (whole, name) in enumerate(zip(paths, names, strict=True)):
        above = f"{paths[where[int(parents[row])]]}/" if has_parent[row] else ""
        if whole != f"{above}{name}" or not name:
            raise _bad(path, "stages", "A stage's path is not its parent's and its own name")
    if len(set(paths)) != len(paths):
        raise _bad(path, "stages", "Two stages have one path")


def _forward(tables: TableSet) -> TableSet:
    """Refuse ranges and batches that end before they begin; what lay in them lies in none."""
    quarantine = Quarantine()
    ranges = tables.get("ranges")
    good = _kept(ranges, "ranges", quarantine)
    batches = tables.get("batches")
    kept = _kept(batches, "batches", quarantine)
    if good.all() and kept.all():
        return tables
    changed = {"ranges": ranges.filter(numbers(good, pa.bool_()))}
    old = as_numpy(batches.column("batch"))[kept]
    new = np.full(batches.num_rows, -1, dtype=np.int64)
    new[old] = np.arange(len(old))
    for name, table in {**tables.tables, **changed}.items():
        if name == "batches" or "batch" not in TABLES[name].names:
            continue
        column = table.column("batch")
        valid = valid_of(column)
        target = np.where(valid, new[np.where(valid, as_numpy(column), 0)], -1)
        changed[name] = _with(table, "batch", target)
    rest = batches.filter(numbers(kept, pa.bool_()))
    changed["batches"] = _with(rest, "batch", np.arange(len(old)))
    both = pa.concat_tables([tables.get("quarantine"), quarantine.table()])
    return tables.with_tables(**changed, quarantine=both)


def _kept(table: pa.Table, name: str, quarantine: Quarantine) -> npt.NDArray[np.bool_]:
    """True where a row does not end before it begins; the others are counted."""
    begin, end = as_numpy(table.column("begin_ns")), as_numpy(table.column("end_ns"))
    good: npt.NDArray[np.bool_] = (end >= begin) | ~valid_of(table.column("end_ns"))
    refused = int(np.count_nonzero(~good))
    quarantine.add(name, "ends before it begins", refused, "")
    return good


def _with(table: pa.Table, column: str, keys: npt.NDArray[np.int64]) -> pa.Table:
    """The table with other keys in one column; below 0 is null."""
    index = table.column_names.index(column)
    values = numbers(np.maximum(keys, 0), pa.int32(), keys >= 0)
    return table.set_column(index, table.schema.field(index), values)


def _nothing(
    path: Path, manifest: Manifest, tables: TableSet, warnings: Sequence[str]
) -> NoGpuWork | None:
    origin = manifest.origin
    if origin is not None:
        return None if origin.nothing is None else NoGpuWork(*origin.nothing)
    if any(tables.rows(name) for name in _WORK):
        return None
    return NoGpuWork(
        f"{path} holds no stage and no batch.",
        warnings[0] if warnings else "The program called no torch module.",
        "Name stages with graphtrace.stage, or run the program with the Python it needs.",
    )
