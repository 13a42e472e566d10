# SPDX-License-Identifier: Apache-2.0
"""Small synthetic exports, and ways to spoil them."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from graphtrace.ingest.source import Source
from graphtrace.testing.nsys import Copy, Kernel, NsysExport, Set, Stage
from graphtrace.testing.nsys_schema import DialectName

STAGES = (
    Stage("stem", [Set(4096, 1_500), Kernel("void conv<float>(float*)", 20_000)]),
    Stage("blocks.0/attn", [Kernel("ampere_sgemm_128x64_tn", 9_000, (64, 2, 1))], gap_ns=5_000),
    Stage("blocks.0/mlp", [Kernel("gelu", 4_000, stream=1), Copy(8192, 3_000)]),
)
NODES = 5


def small(path: Path, *, dialect: DialectName = "2025", replays: int = 7) -> Path:
    """One process, a few eager kernels, a graph and its replays."""
    export = NsysExport(dialect)
    process = export.process(77)
    with process.range("warm-up", registered=False), process.range("job", kind="start_end"):
        process.eager([Kernel("void conv<float>(float*)", 21_000), Copy(64, 900, kind=1)])
    graph = process.graph(STAGES, hops=2)
    graph.replays(replays, 90_000, jitter=0.1, labels=["a", "b"], upload=Copy(512, 2_000, kind=1))
    export.write(path)
    return path


def edit(path: Path, *statements: str) -> Path:
    """Change an export in place."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def loosen(path: Path, table: str) -> Path:
    """Let a table hold anything: copy it without NOT NULL."""
    return edit(
        path,
        f'CREATE TABLE loose AS SELECT * FROM "{table}"',
        f'DROP TABLE "{table}"',
        f'ALTER TABLE loose RENAME TO "{table}"',
    )


def shuffled(path: Path, out: Path, seed: int) -> Path:
    """A copy of an export in which the rows of each table come in another order."""
    order = random.Random(seed)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(out)) as target:
        master = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        for name, statement in master.fetchall():
            target.execute(statement)
            rows = source.execute(f'SELECT * FROM "{name}"').fetchall()
            order.shuffle(rows)
            marks = ", ".join("?" * len(rows[0])) if rows else ""
            if rows:
                target.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        target.commit()
    return out


def refused(source: Source) -> dict[tuple[str, str], int]:
    """Counts of the quarantine by table and reason."""
    rows = source.tables.get("quarantine").to_pylist()
    return {(row["table"], row["reason"]): row["count"] for row in rows}


def kinds(source: Source) -> dict[str, int]:
    """Number of activities by kind."""
    found = source.tables.get("activities").column("kind").to_pylist()
    return {kind: found.count(kind) for kind in sorted(set(found))}


def sql(path: Path, statement: str) -> Sequence[tuple[object, ...]]:
    """Rows of a query."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def as_tables(path: Path) -> dict[str, pa.Table]:
    """Tables of an SQLite export with a typed column for each of theirs."""
    tables = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        master = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in master.fetchall():
            table = name.decode()
            if table.startswith("sqlite_"):
                continue
            info = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
            names = [row[1].decode() for row in info]
            chosen = ", ".join(f'"{column}"' for column in names)
            rows = connection.execute(f'SELECT {chosen} FROM "{table}"').fetchall()
            cells = list(zip(*rows, strict=True)) or [()] * len(names)
            arrays = [
                typed(column, row[2].decode()) for row, column in zip(info, cells, strict=True)
            ]
            tables[table] = pa.Table.from_arrays(arrays, names=names)
    return tables


def typed(cells: Sequence[object], declared: str) -> pa.Array:
    """Cells of SQLite as a typed array."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    if kinds <= {bytes} and ("TEXT" in declared or kinds):
        # Bytes that are no UTF-8 are kept, as a profiler would write them.
        plain = pa.array(cells, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(plain), plain.buffers(), plain.null_count)
    return pa.array(cells, pa.float64() if float in kinds else pa.int64())


def parquet_of(path: Path, folder: Path, **options: object) -> Path:
    """The same export as a folder of Parquet files."""
    folder.mkdir()
    for name, table in as_tables(path).items():
        pq.write_table(table, folder / f"{name}.parquet", **options)
    return folder


def arrow_of(path: Path, folder: Path, *, stream: bool = False) -> Path:
    """The same export as a folder of Arrow's own files."""
    folder.mkdir()
    for name, table in as_tables(path).items():
        with (folder / f"{name}.arrow").open("wb") as file:
            writer = ipc.new_stream if stream else ipc.new_file
            with writer(file, table.schema) as out:
                out.write_table(table)
    return folder


def assert_same(one: Source, other: Source) -> None:
    """Two sources say the same, bit by bit, but for what they were read from."""
    assert set(one.tables.tables) == set(other.tables.tables)
    for name, table in one.tables.tables.items():
        assert table.equals(other.tables.tables[name]), name
    assert one.info.tool_version == other.info.tool_version
    assert one.info.synthetic == other.info.synthetic
    assert one.warnings == other.warnings
    assert (one.nothing is None) == (other.nothing is None)
    if one.nothing is not None and other.nothing is not None:
        assert (one.nothing.why, one.nothing.do) == (other.nothing.why, other.nothing.do)
