# SPDX-License-Identifier: Apache-2.0
"""The page reader against SQL: what it gives is what SQL gives, or it gives nothing."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtrace.ingest import sqlite_pages
from graphtrace.ingest.sqlite_pages import NotPlain, Numbers, Want, open_pages, table_chunks

EDGES = [0, 1, -1] + [
    s * 2**k + d for k in (7, 15, 23, 31, 47, 53, 62) for s in (1, -1) for d in (-1, 0, 1)
]
EDGES += [2**63 - 1, -(2**63)]
CELL = st.one_of(
    st.none(),
    st.sampled_from(EDGES),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80),
    st.binary(max_size=70),
)
DECLARED = st.sampled_from(
    ["INTEGER", "", "BLOB", "TEXT", "NUMERIC", "INT NOT NULL DEFAULT 3", "BIGINT", "FLOATING POINT"]
)


def make(
    path: Path,
    declared: Sequence[str],
    rows: Sequence[Sequence[object]],
    *pragmas: str,
    after: Sequence[str] = (),
) -> Path:
    """A file with a table `t` of columns c0, c1... and another one between its pages."""
    with closing(sqlite3.connect(path)) as connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE other (x)")
        columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(declared))
        connection.execute(f"CREATE TABLE t ({columns})")
        marks = ", ".join("?" * len(declared))
        for number, row in enumerate(rows):
            connection.execute(f"INSERT INTO t VALUES ({marks})", row)
            if number % 97 == 5:
                connection.execute("INSERT INTO other VALUES (?)", ("x" * 3_000,))
        for statement in after:
            connection.execute(statement)
        connection.commit()
    return path


def by_sql(path: Path, wants: Sequence[Want]) -> list[tuple[object, ...]]:
    cells = ", ".join(
        f"CASE typeof({w.name}) WHEN 'blob' THEN 0 ELSE {w.name} END" if w.text else w.name
        for w in wants
    )
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        connection.execute("PRAGMA cell_size_check=ON")
        return connection.execute(f"SELECT {cells} FROM t NOT INDEXED").fetchall()


def by_pages(path: Path, wants: Sequence[Want]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection,
        open_pages(path) as pages,
    ):
        connection.text_factory = bytes
        for chunk in table_chunks(pages, connection, "t", wants):
            columns = []
            for cells in chunk.columns:
                if isinstance(cells, Numbers):
                    known = [True] * chunk.rows if cells.valid is None else cells.valid.tolist()
                    pairs = zip(cells.values.tolist(), known, strict=True)
                    columns.append([value if some else None for value, some in pairs])
                else:
                    columns.append(list(cells))
            assert all(len(column) == chunk.rows for column in columns)
            rows += zip(*columns, strict=True)
    return rows


def assert_same(path: Path, wants: Sequence[Want]) -> None:
    ours, theirs = by_pages(path, wants), by_sql(path, wants)
    assert ours == theirs
    # 1 == 1.0 == True: types count too.
    assert [tuple(map(type, row)) for row in ours] == [tuple(map(type, row)) for row in theirs]


def all_of(count: int, text: Sequence[int] = ()) -> list[Want]:
    return [Want(f"c{n}", n in text) for n in range(count)]


@given(data=st.data())
def test_random_tables(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    declared = data.draw(st.lists(DECLARED, min_size=1, max_size=8))
    row = st.tuples(*(st.just(7) if "NOT NULL" in kind else CELL for kind in declared))
    plain = st.tuples(*(st.sampled_from(EDGES) for _ in declared))
    rows = data.draw(st.lists(data.draw(st.sampled_from([row, plain])), max_size=40))
    rows = rows * data.draw(st.sampled_from([1, 1, 30]))
    size = data.draw(st.sampled_from([512, 1024, 4096, 65536]))
    vacuum = data.draw(st.sampled_from([0, 1]))
    after = data.draw(st.sampled_from([(), ("DELETE FROM t WHERE rowid % 3 = 0",)]))
    folder = tmp_path_factory.mktemp("random")
    path = make(
        folder / "t.sqlite",
        declared,
        rows,
        f"page_size={size}",
        f"auto_vacuum={vacuum}",
        after=after,
    )
    text = [n for n in range(len(declared)) if data.draw(st.booleans())]
    wants = data.draw(st.permutations(all_of(len(declared), text)))
    wants = wants[: data.draw(st.integers(1, len(wants)))]
    try:
        assert_same(path, wants)
    except NotPlain as why:
        assert any(word in str(why) for word in ("overflow", "header of their own", "reals"))


@pytest.mark.parametrize("page", [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
def test_every_page_size(tmp_path: Path, page: int) -> None:
    rows = [(n, n * 2**40, -n, None if n % 3 else n, n % 2, "abc") for n in range(5_000)]
    path = make(tmp_path / "t.sqlite", ["INTEGER"] * 5 + ["TEXT"], rows, f"page_size={page}")
    assert_same(path, all_of(6, text=[5]))


@pytest.mark.parametrize("chunk", [1, 4096, 8192, 20_000])
def test_chunks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(sqlite_pages, "CHUNK_BYTES", chunk)
    rows = [(n, 2**n % 2**60, n % 200 - 100) for n in range(3_000)]
    path = make(tmp_path / "t.sqlite", ["INTEGER"] * 3, rows)
    assert_same(path, all_of(3))


def test_row_ids_of_any_length(tmp_path: Path) -> None:
    numbers = [1, 127, 128, 2**14, 2**21, 2**40, 2**55, 2**62, -1, -(2**62), 2**63 - 1]
    after = [f"INSERT INTO t (rowid, c0, c1) VALUES ({n}, {n}, 5)" for n in numbers]
    assert_same(make(tmp_path / "t.sqlite", ["INTEGER"] * 2, [], after=after), all_of(2))


def test_a_nan_that_was_stored_is_null(tmp_path: Path) -> None:
    path = make(tmp_path / "t.sqlite", ["BLOB"] * 2, [(1.25, n) for n in range(9)])
    raw = path.read_bytes()
    stored, nan = b"\x3f\xf4\0\0\0\0\0\0", b"\x7f\xf8\0\0\0\0\0\0"
    assert raw.count(stored) == 9
    path.write_bytes(raw.replace(stored, nan, 4))
    assert_same(path, all_of(2))
    assert sum(row[0] is None for row in by_pages(path, all_of(2))) == 4


@pytest.mark.parametrize(
    ("declared", "rows", "pragmas", "after"),
    [
        (["INTEGER PRIMARY KEY", "INTEGER"], [(5, 6)], [], []),
        (["INTEGER", "INTEGER"], [(5, 6)], [], ["ALTER TABLE t ADD COLUMN c2 INTEGER DEFAULT 7"]),
        (["INTEGER", "REAL"], [(5, 6)], [], []),
        (["INTEGER", "INTEGER AS (c0 + 1) STORED"], [], [], ["INSERT INTO t (c0) VALUES (3)"]),
        (["INTEGER", "INTEGER AS (c0 + 1)"], [], [], ["INSERT INTO t (c0) VALUES (3)"]),
        (["INTEGER", "TEXT"], [(1, "x" * 9_000)], [], []),
        (["INTEGER", "TEXT"], [(1, "x")], ["encoding='UTF-16le'"], []),
        (["INTEGER", "TEXT"], [(1, "x")], ["encoding='UTF-16be'"], []),
        (["INTEGER", "TEXT"], [(1, "x")], ["journal_mode=WAL"], []),
    ],
)
def test_what_is_not_plain_is_left_to_sql(
    tmp_path: Path,
    declared: list[str],
    rows: list[tuple[object, ...]],
    pragmas: list[str],
    after: list[str],
) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(declared))
        connection.execute(f"CREATE TABLE t ({columns})")
        if rows:
            marks = ", ".join("?" * len(declared))
            connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        for statement in after:
            connection.execute(statement)
        connection.commit()
    with pytest.raises(NotPlain):
        by_pages(path, all_of(2))


def test_a_table_without_row_ids_is_left_to_sql(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (c0 INTEGER PRIMARY KEY, c1) WITHOUT ROWID")
        connection.execute("INSERT INTO t VALUES (1, 2)")
        connection.commit()
    with pytest.raises(NotPlain):
        by_pages(path, all_of(2))


def test_reserved_bytes(tmp_path: Path) -> None:
    """A file whose pages end in reserved bytes, as extensions for checksums leave them."""
    path = make(tmp_path / "t.sqlite", ["INTEGER"] * 2, [(n, -n) for n in range(40)])
    raw = bytearray(path.read_bytes())
    page, at = 4096, 4096 * 2
    assert raw[at] == 13
    cells = int.from_bytes(raw[at + 3 : at + 5], "big")
    lowest = int.from_bytes(raw[at + 5 : at + 7], "big")
    content = raw[at + lowest : at + page]
    raw[at + lowest - 8 : at + page - 8] = content
    for place in [at + 5, *range(at + 8, at + 8 + 2 * cells, 2)]:
        moved = int.from_bytes(raw[place : place + 2], "big") - 8
        raw[place : place + 2] = moved.to_bytes(2, "big")
    raw[20] = 8
    path.write_bytes(raw)
    # The pages of the other tables were not moved, so that SQL cannot read the file.
    assert by_pages_without_schema(path, root=3) == [(n, -n) for n in range(40)]


def by_pages_without_schema(path: Path, root: int) -> list[tuple[int, ...]]:
    from graphtrace.ingest.sqlite_records import Decoder, Wanted

    with open_pages(path) as pages:
        decoder = Decoder(pages, 2, [Wanted(0), Wanted(1)])
        rows, columns = decoder.columns(pages.read(pages.leaves(root)), root=True)
        arrays = [column.values for column in columns if isinstance(column, Numbers)]
        assert all(len(array) == rows for array in arrays)
        return list(zip(*(array.tolist() for array in arrays), strict=True))


def test_narrow_types_and_constants(tmp_path: Path) -> None:
    rows = [(n % 100, n, n * 70_000, n * 2**40, 5, None, n % 2) for n in range(2_000)]
    path = make(tmp_path / "t.sqlite", ["INTEGER"] * 7, rows)
    with (
        closing(sqlite3.connect(path)) as connection,
        open_pages(path) as pages,
    ):
        connection.text_factory = bytes
        (chunk,) = table_chunks(pages, connection, "t", all_of(7))
    columns = [column for column in chunk.columns if isinstance(column, Numbers)]
    kinds = [column.values.dtype for column in columns]
    assert kinds == [np.int8, np.int16, np.int32, np.int64, np.int8, np.int8, np.int8]
    assert [column.values.strides == (0,) for column in columns[4:]] == [True, True, False]


def damaged(raw: bytes, order: random.Random) -> bytes:
    """A copy with bytes changed, pages swapped, pages overwritten by others, or the end missing."""
    data = bytearray(raw)
    page = 512
    pages = len(data) // page
    for _ in range(order.randint(1, 4)):
        how = order.random()
        a, b = order.randrange(pages) * page, order.randrange(pages) * page
        if how < 0.15:
            data[a : a + page] = data[b : b + page]
        elif how < 0.25:
            data[a : a + page], data[b : b + page] = data[b : b + page], data[a : a + page]
        elif how < 0.35:
            del data[order.randrange(len(data)) :]
            if len(data) < 2 * page:
                return bytes(data)
            pages = len(data) // page
        elif how < 0.7:
            # Headers of pages and their cell pointers are where most goes wrong.
            data[min(a + order.randrange(40), len(data) - 1)] = order.getrandbits(8)
        else:
            for _ in range(order.randint(1, 20)):
                data[order.randrange(len(data))] = order.getrandbits(8)
    return bytes(data)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32))
def test_damage_gives_what_sql_gives_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    order = random.Random(seed)
    path = tmp_path_factory.getbasetemp() / f"damaged-{order.randrange(6)}.sqlite"
    if not path.exists():
        rows = [
            (n, order.choice(EDGES), None if n % 5 else -n, order.choice(["", "a", "bc"]))
            for n in range(400)
        ]
        make(path, ["INTEGER"] * 3 + ["TEXT"], rows, "page_size=512", f"auto_vacuum={seed % 2}")
    wrong = path.with_name(f"{path.stem}-wrong.sqlite")
    wrong.write_bytes(damaged(path.read_bytes(), order))
    wants = all_of(4, text=[3])
    try:
        ours = by_pages(wrong, wants)
    except (NotPlain, sqlite3.DatabaseError, UnicodeDecodeError):
        return
    assert repr(ours) == repr(by_sql(wrong, wants))
