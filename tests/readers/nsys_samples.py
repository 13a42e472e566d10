# SPDX-License-Identifier: Apache-2.0
"""Small synthetic exports, and ways to spoil them."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

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
