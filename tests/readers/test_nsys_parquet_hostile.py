# SPDX-License-Identifier: Apache-2.0
"""Damaged, foreign and lying folders of Parquet and Arrow."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nsys_samples import arrow_of, as_tables, edit, parquet_of, small

from graphtrace.ingest.load import load
from graphtrace.ingest.nsys_parquet import read
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputTruncated,
    InputUnsupported,
)
from graphtrace.testing.nsys import Kernel, NsysExport

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
TABLES = (KERNELS, "NVTX_EVENTS.parquet", "StringIds.parquet", "META_DATA_EXPORT.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parquet_of(small(tmp_path / "s.sqlite", replays=40), tmp_path / "pq")


@pytest.fixture
def arrow(tmp_path: Path) -> Path:
    return arrow_of(small(tmp_path / "t.sqlite", replays=40), tmp_path / "ar")


def failure(path: Path, kind: type[GraphtraceError]) -> GraphtraceError:
    with pytest.raises(kind) as caught:
        load(path)
    assert str(path) in caught.value.what
    assert all("\n" not in s for s in (caught.value.what, caught.value.why, caught.value.do))
    return caught.value


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_a_file_cut_short(folder: Path, table: str, share: float) -> None:
    path = folder / table
    path.write_bytes(path.read_bytes()[: max(int(path.stat().st_size * share), 2)])
    assert table in failure(folder, InputTruncated).what


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
def test_a_file_of_arrow_cut_short(tmp_path: Path, stream: bool, share: float) -> None:
    folder = arrow_of(small(tmp_path / "t.sqlite"), tmp_path / "ar", stream=stream)
    path = folder / "StringIds.arrow"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    failure(folder, InputTruncated)


def test_a_stream_cut_between_two_messages(tmp_path: Path) -> None:
    folder = arrow_of(small(tmp_path / "t.sqlite"), tmp_path / "ar", stream=True)
    path = folder / "StringIds.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    failure(folder, InputTruncated)


def test_a_footer_that_is_larger_than_its_file(folder: Path) -> None:
    path = folder / KERNELS
    path.write_bytes(path.read_bytes()[-200:-8] + b"\xff\xff\0\0PAR1")
    path.write_bytes(b"PAR1" + path.read_bytes())
    failure(folder, InputTruncated)


def test_missing_empty_foreign_and_damaged_have_sentences_of_their_own(
    folder: Path, tmp_path: Path
) -> None:
    empty, foreign, nothing = (tmp_path / name for name in ("empty", "foreign", "nothing"))
    empty.mkdir()
    foreign.mkdir()
    pq.write_table(pa.table({"x": [1]}), foreign / "visits.parquet")
    nothing.mkdir()
    (nothing / "notes.txt").write_text("x")
    cut = shutil.copytree(folder, tmp_path / "cut")
    (cut / KERNELS).write_bytes((cut / KERNELS).read_bytes()[:-9])
    torn = shutil.copytree(folder, tmp_path / "torn")
    raw = bytearray((torn / KERNELS).read_bytes())
    raw[-300:-12] = b"\xff" * 288
    (torn / KERNELS).write_bytes(raw)
    hollow = shutil.copytree(folder, tmp_path / "hollow")
    (hollow / KERNELS).write_bytes(b"")
    said = set()
    for place, kind in {
        tmp_path / "absent": InputMissing,
        folder / KERNELS: InputMissing,
        empty: InputEmpty,
        hollow: InputEmpty,
        foreign: InputUnsupported,
        nothing: InputUnsupported,
        cut: InputTruncated,
        torn: InputCorrupt,
    }.items():
        with pytest.raises(kind) as caught:
            read(place)
        said.add((caught.value.what.rpartition("/")[2], caught.value.why))
    assert len(said) == 8
    failure(foreign, InputMissing)
    failure(empty, InputEmpty)


def test_no_gpu_work(tmp_path: Path) -> None:
    export = NsysExport()
    with export.process(1).range("x"):
        pass
    export.write_parquetdir(tmp_path / "pq")
    source = read(tmp_path / "pq")
    assert source.nothing is not None
    assert source.nothing.exit_code == 4
    assert str(tmp_path / "pq") in source.nothing.what


def test_other_files_beside_the_tables_are_left_alone(folder: Path) -> None:
    (folder / "notes.txt").write_text("x")
    (folder / ".parquet").write_text("x")
    (folder / "OSRT_API.parquet").write_text("x")
    (folder / "TARGET_INFO_SYSTEM_ENV.parquet").mkdir()
    os.mkfifo(folder / "SCHED_EVENTS.parquet")
    load(folder)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_loop(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("absent"))


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [a_folder, a_pipe, a_loop, a_link_to_nothing, a_device])
@pytest.mark.parametrize("table", [KERNELS, "StringIds.parquet"])
def test_what_has_the_name_of_a_table_and_is_none(
    folder: Path, table: str, make: Callable[[Path], None]
) -> None:
    (folder / table).unlink()
    make(folder / table)
    assert table in failure(folder, InputError).what


def test_a_link_to_a_table_is_one(folder: Path, tmp_path: Path) -> None:
    (folder / KERNELS).rename(tmp_path / "elsewhere")
    (folder / KERNELS).symlink_to(tmp_path / "elsewhere")
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert load(link).tables.rows("replays") == 40


@pytest.mark.parametrize("other", [KERNELS.lower().replace(".parquet", ".parquet"), "arrow"])
def test_two_files_for_one_table(folder: Path, other: str) -> None:
    name = KERNELS.replace("parquet", "arrow") if other == "arrow" else other
    shutil.copy(folder / KERNELS, folder / name)
    error = failure(folder, InputUnsupported)
    assert name in error.what and KERNELS in error.what


def test_two_columns_of_one_name(folder: Path) -> None:
    table = pq.read_table(folder / KERNELS)
    twice = table.append_column("START", table.column("start"))
    pq.write_table(twice, folder / KERNELS)
    assert "two columns" in failure(folder, InputCorrupt).what


def test_other_formats_under_the_name_of_a_table(folder: Path) -> None:
    for content, word in ((b"hello, this is text", "neither"), (b"PARE" + bytes(99), "encrypted")):
        (folder / KERNELS).write_bytes(content)
        assert word in failure(folder, InputUnsupported).why


def test_a_needed_column_that_is_absent_is_named(folder: Path) -> None:
    table = pq.read_table(folder / KERNELS)
    pq.write_table(table.drop_columns(["streamId"]), folder / KERNELS)
    assert "streamId" in failure(folder, InputUnsupported).why


def varint(number: int) -> bytes:
    """A zigzag varint of Thrift's compact protocol."""
    number *= 2
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("rows", [10**15, 2**62, 1_000_000, 999])
@pytest.mark.parametrize("which", range(12))
def test_row_counts_that_are_lies(tmp_path: Path, rows: int, which: int) -> None:
    export = NsysExport()
    export.process(1).eager([Kernel("k", 1_000)] * 1_234)
    export.write_parquetdir(tmp_path / "pq")
    path = tmp_path / "pq" / KERNELS
    raw = path.read_bytes()
    length = int.from_bytes(raw[-8:-4], "little")
    body, footer = raw[: -8 - length], raw[-8 - length : -8]
    places = [at for at in range(len(footer)) if footer.startswith(varint(1_234), at)]
    # The last two are those of the row group and, behind the schema, the file.
    chosen = [places[which]] if which < len(places) - 1 else places
    chosen = places if which == 0 else chosen
    for at in reversed(chosen):
        footer = footer[:at] + varint(rows) + footer[at + len(varint(1_234)) :]
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    try:
        load(tmp_path / "pq")
    except InputError:
        return
    # Where every count says the same, nothing contradicts it.
    agreed = rows if chosen == places and rows < 1_234 else 1_234
    assert load(tmp_path / "pq").tables.rows("activities") == agreed


def test_more_rows_than_a_file_can_hold(folder: Path) -> None:
    column = pa.array([7] * 5_000_000)
    pq.write_table(pa.table({"id": column, "value": column}), folder / "StringIds.parquet")
    assert "5,000,000 rows" in failure(folder, InputCorrupt).why
    (folder / "StringIds.parquet").unlink()
    (folder / KERNELS).unlink()
    table = as_tables(folder.parent / "s.sqlite")["CUPTI_ACTIVITY_KIND_KERNEL"]
    nothing = pa.table({name: pa.nulls(5_000_000) for name in table.column_names})
    with pa.ipc.new_file(folder / KERNELS.replace("parquet", "arrow"), nothing.schema) as out:
        out.write_table(nothing)
    assert "rows or more" in failure(folder, InputCorrupt).why


def mutated(raw: bytes, order: random.Random, *, late: bool) -> bytes:
    """A few bytes changed, a run repeated, zeroed or dropped; late ones are those of the footer."""
    damaged = bytearray(raw)
    start = max(len(raw) - 4_000, 4) if late else 4
    for _ in range(order.choice([1, 1, 2, 5, 20])):
        at = order.randrange(start, len(damaged) - 8)
        size = order.choice([1, 1, 1, 4, 16])
        match order.randrange(4):
            case 0:
                damaged[at] ^= 1 << order.randrange(8)
            case 1:
                damaged[at : at + size] = order.randbytes(size)
            case 2:
                damaged[at : at + size] = b"\xff" * size
            case _:
                damaged[at : at + size] = bytes(size)
    return bytes(damaged)


@pytest.mark.parametrize("seed", range(30))
def test_damage_gives_sentences_or_rows(folder: Path, seed: int) -> None:
    survived(folder, seed)


@pytest.mark.parametrize("seed", range(15))
def test_damage_to_arrow_gives_sentences_or_rows(arrow: Path, seed: int) -> None:
    survived(arrow, seed)


def survived(folder: Path, seed: int) -> None:
    """Ten kinds of damage, each of which may be refused and may not do anything else."""
    order = random.Random(seed)
    files = sorted(place for place in folder.iterdir() if place.stem + ".parquet" in TABLES)
    for _ in range(10):
        place = order.choice(files)
        raw = place.read_bytes()
        place.write_bytes(mutated(raw, order, late=order.random() < 0.5))
        try:
            source = read(folder)
        except GraphtraceError as error:
            assert error.what and error.why and error.do
        else:
            begin = source.tables.get("activities").column("begin_ns").to_pylist()
            assert begin == sorted(begin)
        place.write_bytes(raw)


def test_any_optional_table_may_be_absent(folder: Path) -> None:
    for place in sorted(folder.iterdir()):
        if place.name == KERNELS:
            continue
        raw = place.read_bytes()
        place.unlink()
        assert read(folder).nothing is None
        place.write_bytes(raw)


@pytest.mark.parametrize("name", ["a b", "a?b=c", "a#b%20", "é'\"", "-o"])
def test_hostile_folder_names(tmp_path: Path, name: str) -> None:
    path = edit(small(tmp_path / "s.sqlite"))
    assert load(parquet_of(path, tmp_path / name)).tables.rows("replays") == 7
