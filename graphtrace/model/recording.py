# SPDX-License-Identifier: Apache-2.0
"""A recording on the disk: a folder `NAME.gtrace` of a manifest and small Parquet files.

Every file is written beside its place and renamed into it whole; `done` comes last and names the
files with their row counts, so that an unfinished recording is known as one. What is read here was
written by others: nothing in it is believed before it was checked.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from graphtrace.model.arrays import as_numpy, codes_of, make_table, repeated
from graphtrace.model.errors import InputCorrupt, InputTruncated, InputUnsupported, said_by
from graphtrace.model.schema import TABLES
from graphtrace.model.trace import RunCost, TableSet

__all__ = [
    "DONE",
    "FORMAT",
    "FORMAT_VERSION",
    "MANIFEST",
    "RAW",
    "Manifest",
    "Origin",
    "read_manifest",
    "read_tables",
    "write_recording",
]

FORMAT: Final = "graphtrace.recording"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
DONE: Final = "done"
RAW: Final = "raw"

_MAX_JSON: Final = 16 << 20
_MANY: Final = 1 << 17
"""Rows from which a column of one value is worth shortening."""
_ROW_GROUP: Final = 1 << 26
_DICTIONARY: Final = 64 << 20
"""Bytes of a column's dictionary; beyond it words are written one by one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The foreign file that a recording was exported from; never its path or host.

    Attributes:
        kind: kind of the input.
        name: its base name.
        tool: who wrote it.
        tool_version: version of that.
        synthetic: whether `graphtrace.testing` built it.
        nothing: what, why and do, where it holds no work.
    """

    kind: str
    name: str
    tool: str | None = None
    tool_version: str | None = None
    synthetic: bool = False
    nothing: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a recording is and how it was made; never a command line, an environment or a host.

    Attributes:
        tools: versions by name: graphtrace, python, torch.
        created_ns: start of the recording, ns since 1970.
        command: name of the program, without its arguments.
        exit_code: as the program ended; None where that is unknown.
        exit_signal: signal that ended it.
        devices: name and kind of each device.
        how: depth and patterns of the modules recorded, and the clock.
        cost: what recording cost.
        missing: sentences on what the recording does not hold.
        origin: the foreign file that it was exported from.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    created_ns: int | None = None
    command: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    devices: tuple[Mapping[str, str | None], ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    cost: RunCost = field(default_factory=RunCost)
    missing: tuple[str, ...] = ()
    origin: Origin | None = None


def _put(folder: Path, name: str, write: Callable[[BinaryIO], object]) -> None:
    part = folder / f".{name}.part"
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / name)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _put_json(folder: Path, name: str, content: object) -> None:
    data = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("utf-8")
    _put(folder, name, lambda file: file.write(data))


def _rising(name: str) -> list[str]:
    """Columns whose neighbours differ by little: the key that rows begin with, times, counters."""
    columns = TABLES[name].columns
    return [
        column.name
        for place, column in enumerate(columns)
        if column.type in (pa.int32(), pa.int64())
        and (place == 0 or column.unit == "ns" or column.name == "correlation")
    ]


def _put_table(folder: Path, name: str, table: pa.Table) -> None:
    """Write one table so that it is quick to read.

    Differences where a column rises, dictionaries for words and for numbers of few values, and one
    row group, so that a column of words has one dictionary when it is read. Two million activities
    are read in 0.1 s so, in 0.3 s with the library's own choice, and take half of the room.
    """
    rising = _rising(name)
    plain = {*rising, *(c.name for c in TABLES[name].columns if c.type == pa.float64())}

    def write(file: BinaryIO) -> None:
        pq.write_table(
            table,
            file,
            compression="lz4",
            store_schema=True,
            use_dictionary=[column for column in TABLES[name].names if column not in plain],
            column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
            row_group_size=_ROW_GROUP,
            dictionary_pagesize_limit=_DICTIONARY,
        )

    _put(folder, f"{name}.parquet", write)


def write_recording(folder: Path, manifest: Manifest, tables: TableSet) -> None:
    """Write a whole recording into a folder that exists; `done` last.

    Raises:
        OSError: it cannot be written; what stands there is unfinished then.
    """
    rows = {}
    for name, table in tables.tables.items():
        _put_table(folder, name, table)
        rows[name] = table.num_rows
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(manifest)}
    _put_json(folder, MANIFEST, content)
    _put_json(folder, DONE, {"rows": rows})


def _load_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_JSON:
            raise ValueError("far too large")
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputTruncated(
            f"{path.parent} has no {path.name}.",
            "A recording is a folder that says in it what it holds; this one is incomplete.",
            "Copy the whole folder again, or record again.",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputCorrupt(
            f"{path} cannot be read.", f"{error}.", "Copy the recording again, or record again."
        ) from error
    if not isinstance(content, dict):
        raise InputCorrupt(
            f"{path} is no JSON object.",
            "The file was damaged or comes from something else.",
            "Copy the recording again, or record again.",
        )
    return content


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _words(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, str)}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a recording.

    Raises:
        InputTruncated: there is none.
        InputCorrupt: it cannot be read or is no manifest of ours.
        InputUnsupported: a newer graphtrace wrote it.
    """
    path = folder / MANIFEST
    content = _load_json(path)
    version = _whole(content.get("format_version"))
    if content.get("format") != FORMAT or version is None or version < 1:
        raise InputCorrupt(
            f"{path} is no manifest of a graphtrace recording.",
            f'It does not say "format": "{FORMAT}" and a version of it.',
            "Give a folder that `graphtrace capture` wrote.",
        )
    if version > FORMAT_VERSION:
        raise InputUnsupported(
            f"{folder} has format version {version}.",
            f"This graphtrace reads versions up to {FORMAT_VERSION}: a newer one wrote it.",
            "Update graphtrace: pip install --upgrade graphtrace",
        )
    cost, devices, how = (content.get(key) for key in ("cost", "devices", "how"))
    missing = content.get("missing")
    numbers = cost if isinstance(cost, dict) else {}
    return Manifest(
        tools=_words(content.get("tools")),
        created_ns=_whole(content.get("created_ns")),
        command=_text(content.get("command")),
        exit_code=_whole(content.get("exit_code")),
        exit_signal=_whole(content.get("exit_signal")),
        devices=tuple(_words(d) for d in devices) if isinstance(devices, list) else (),
        how=how if isinstance(how, dict) else {},
        cost=RunCost(
            records=_whole(numbers.get("records")),
            lost=_whole(numbers.get("lost")),
            hook_ns_per_border=_whole(numbers.get("hook_ns_per_border")),
            overhead_ns=_whole(numbers.get("overhead_ns")),
            profiler=_text(numbers.get("profiler")),
        ),
        missing=tuple(s for s in missing if isinstance(s, str))
        if isinstance(missing, list)
        else (),
        origin=_origin(content.get("origin")),
    )


def _origin(value: object) -> Origin | None:
    if not isinstance(value, dict):
        return None
    words, nothing = _words(value), value.get("nothing")
    told = None
    if isinstance(nothing, list) and len(nothing) == 3 and all(isinstance(s, str) for s in nothing):
        told = (nothing[0], nothing[1], nothing[2])
    return Origin(
        kind=words.get("kind", "unknown"),
        name=words.get("name", "unknown"),
        tool=words.get("tool"),
        tool_version=words.get("tool_version"),
        synthetic=value.get("synthetic") is True,
        nothing=told,
    )


def read_tables(folder: Path) -> tuple[TableSet, bool]:
    """Read the tables of a recording, each with its declared schema.

    Returns:
        The tables, and whether the recording was finished.

    Raises:
        InputTruncated: a table that the recording should hold is missing or cut short.
        InputCorrupt: a table cannot be read, or has columns of other types.
    """
    finished = (folder / DONE).exists()
    promised: dict[str, int | None] = {}
    if finished:
        rows = _load_json(folder / DONE).get("rows")
        if not isinstance(rows, dict):
            raise InputCorrupt(
                f"{folder / DONE} does not list the tables.",
                "The file was damaged.",
                "Copy the recording again, or record again.",
            )
        promised = {name: _whole(count) for name, count in rows.items()}
    else:
        promised = {name: None for name in TABLES if (folder / f"{name}.parquet").exists()}
    tables = {
        name: _read_table(folder / f"{name}.parquet", name, count)
        for name, count in promised.items()
        if name in TABLES
    }
    return TableSet(tables), finished


def _read_table(path: Path, name: str, rows: int | None) -> pa.Table:
    try:
        with path.open("rb") as file:
            fitted = _fitted(name, pq.ParquetFile(file, pre_buffer=False))
    except FileNotFoundError as error:
        raise InputTruncated(
            f"{path} is missing.",
            "The recording says that it holds this table.",
            "Copy the whole folder again, or record again.",
        ) from error
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise InputCorrupt(
            f"{path} cannot be read.",
            f"The file is damaged: {said_by(error)}.",
            "Copy the recording again, or record again.",
        ) from error
    if rows is not None and fitted.num_rows != rows:
        raise InputTruncated(
            f"{path} holds {fitted.num_rows} rows, not {rows}.",
            "The files of this folder do not belong together.",
            "Copy the whole folder again, or record again.",
        )
    return fitted


def _fitted(name: str, file: pq.ParquetFile) -> pa.Table:
    """The table with the declared columns; newer columns are not read, absent ones are null.

    Column by column, so that those of one value never take their room all at once.

    Raises:
        TypeError: a column has another type, holds nulls it may not hold, or is there twice.
    """
    columns = {}
    names = file.schema_arrow.names
    for column in TABLES[name].columns:
        if column.name not in names:
            continue
        if names.count(column.name) > 1:
            raise TypeError(f"column {column.name} is there twice")
        # Threads of Arrow that still run when Python exits abort the process, now and then.
        table = file.read(columns=[column.name], use_threads=False)
        table.validate(full=True)
        given = table.column(column.name)
        if given.type != column.type:
            raise TypeError(f"{name}.{column.name} is {given.type}, not {column.type}")
        if not column.nullable and given.null_count:
            raise TypeError(f"column {column.name} has nulls")
        columns[column.name] = _shortened(given)
    return make_table(name, file.metadata.num_rows, columns)


def _shortened(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of many rows and one value, be it null, in the memory of few."""
    rows = len(column)
    if rows < _MANY:
        return column
    if column.null_count == rows:
        return repeated(None, column.type, rows)
    if column.null_count:
        return column
    if pa.types.is_dictionary(column.type):
        codes, words = codes_of(column)
        return repeated(words[codes[0]], column.type, rows) if _same(codes) else column
    if column.type in (pa.int16(), pa.int32(), pa.int64()):
        values = as_numpy(column)
        return repeated(int(values[0]), column.type, rows) if _same(values) else column
    return column


def _same(values: npt.NDArray[Any]) -> bool:
    return bool(values[0] == values[-1] and (values == values[0]).all())
