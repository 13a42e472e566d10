# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow exports of nsys give what the SQLite export of the same report gives."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nsys_samples import (
    STAGES,
    arrow_of,
    as_tables,
    assert_same,
    edit,
    kinds,
    loosen,
    parquet_of,
    refused,
    small,
)

from graphtrace.ingest import nsys_folder, nsys_parquet, nsys_sqlite
from graphtrace.ingest.load import load
from graphtrace.testing import Copy, Kernel, NsysExport, planted_vit
from graphtrace.testing.nsys_metrics import GpuMetrics
from graphtrace.testing.nsys_nvtx import Payload
from graphtrace.testing.nsys_schema import DIALECTS, DialectName

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
REAL = (
    "dynamicvit",
    "graph_granularity_rtx3060_2025.5",
    "gtls",
    "h100_2gpu_2026.2",
    "jacobi",
    "power_iteration_2025.3",
    "two_kernels_2025",
    "weatherbench2",
)
CANARY = "GT_CANARY"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parquet_of(small(tmp_path / "s.sqlite"), tmp_path / "pq")


def rich(path: Path) -> Path:
    """An export with GPU metrics, categories and payloads beside what `small` has."""
    export = NsysExport()
    process = export.process(77)
    with (
        process.range("plain", registered=False, category="io", payload=Payload(7)),
        process.range("unsigned", category=9, payload=Payload(2**64 - 5, "uint64")),
        process.range("real", domain="d", payload=Payload(0.25, "double")),
    ):
        process.eager([Kernel("void conv<float>(float*)", 21_000), Copy(64, 900, kind=1)])
    process.graph(STAGES, hops=2).replays(7, 90_000, jitter=0.1)
    metrics = GpuMetrics(export)
    time = 1_000_000_500 + 1_000 * np.arange(9)
    metrics.sample("SMs Active [Throughput %]", time, np.arange(9) * 13)
    metrics.sample("GPC Clock Frequency [MHz]", time, 1980)
    export.write(path)
    return path


def change(folder: Path, table: str, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Write a table again, changed."""
    path = folder / f"{table}.parquet"
    pq.write_table(edit(pq.read_table(path)), path)


def with_column(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, array)


@pytest.mark.parametrize("name", REAL)
def test_real_exports_give_equal_tables(tmp_path: Path, data_dir: Path, name: str) -> None:
    path = data_dir / "nsys" / f"{name}.sqlite"
    wanted = nsys_sqlite.read(path)
    options = {"row_group_size": 1000, "compression": "zstd"}
    source = nsys_parquet.read(parquet_of(path, tmp_path / "pq", **options))
    assert source.info.kind == "nsys_parquetdir"
    assert_same(source, wanted)
    said = [str(source.info), *source.warnings, str(source.nothing)]
    said += [str(table.to_pylist()) for table in source.tables.tables.values()]
    assert CANARY not in "\n".join(said)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["h100_2gpu_2026.2", "gtls"])
def test_arrow_folders_give_equal_tables(
    tmp_path: Path, data_dir: Path, name: str, stream: bool
) -> None:
    path = data_dir / "nsys" / f"{name}.sqlite"
    source = nsys_parquet.read(arrow_of(path, tmp_path / "ar", stream=stream))
    assert_same(source, nsys_sqlite.read(path))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_builder_writes_one_plan_both_ways(tmp_path: Path, dialect: DialectName) -> None:
    planted_vit(tmp_path / "a.sqlite", dialect=dialect, replays=20)
    planted_vit(tmp_path / "pq", dialect=dialect, replays=20, parquetdir=True)
    source = nsys_parquet.read(tmp_path / "pq")
    assert source.info.synthetic
    assert_same(source, nsys_sqlite.read(tmp_path / "a.sqlite"))
    assert_same(source, nsys_parquet.read(parquet_of(tmp_path / "a.sqlite", tmp_path / "copy")))


def test_the_command_says_the_same_of_both(tmp_path: Path) -> None:
    planted_vit(tmp_path / "a.sqlite", replays=20)
    planted_vit(tmp_path / "pq", replays=20, parquetdir=True)
    said = []
    for name in ("a.sqlite", "pq"):
        command = [sys.executable, "-m", "graphtrace", "analyze", "--format", "json"]
        done = subprocess.run(
            [*command, str(tmp_path / name)], capture_output=True, check=True, timeout=120
        )
        said.append(json.loads(done.stdout))
    kinds = [analysis.pop("inputs")[0]["kind"] for analysis in said]
    assert kinds == ["nsys_sqlite", "nsys_parquetdir"]
    for analysis in said:
        analysis.pop("timing")
    assert said[0] == said[1]


def test_metrics_categories_and_payloads(tmp_path: Path) -> None:
    path = rich(tmp_path / "s.sqlite")
    wanted = nsys_sqlite.read(path)
    assert wanted.tables.rows("counters")
    folder = parquet_of(path, tmp_path / "pq")
    assert_same(nsys_parquet.read(folder), wanted)
    # As a type without a sign would hold it.
    unsigned = pq.read_table(folder / "NVTX_EVENTS.parquet").column("uint64Value")
    bits = unsigned.combine_chunks().view(pa.uint64())
    assert 2**64 - 5 in bits.to_pylist()
    change(folder, "NVTX_EVENTS", lambda t: with_column(t, "uint64Value", bits))
    assert_same(nsys_parquet.read(folder), wanted)
    for kind in (pa.float64(), pa.float32(), pa.uint64()):
        change(
            folder,
            "GPU_METRICS",
            lambda t, k=kind: with_column(t, "value", t.column("value").cast(k)),
        )
        assert_same(nsys_parquet.read(folder), wanted)


def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    folder = parquet_of(path, tmp_path / "pq")
    order = np.random.default_rng(5)
    for place in folder.iterdir():
        table = pq.read_table(place)
        pq.write_table(table.take(order.permutation(table.num_rows)), place, row_group_size=3)
    assert_same(nsys_parquet.read(folder), nsys_sqlite.read(path))


@pytest.mark.parametrize("rows", [1, 7, 1 << 16])
def test_batches_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(nsys_folder, "_BATCH_ROWS", rows)
    path = small(tmp_path / "s.sqlite")
    for folder in (parquet_of(path, tmp_path / "pq"), arrow_of(path, tmp_path / "ar")):
        assert_same(nsys_parquet.read(folder), nsys_sqlite.read(path))


def narrowed(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in another type that holds the same."""
    if pa.types.is_string(array.type):
        return array.dictionary_encode()
    whole = array.combine_chunks()
    for kind in (pa.bool_(), pa.uint8(), pa.int16(), pa.uint32(), pa.int32(), pa.uint64()):
        try:
            other = whole.cast(pa.int64()).cast(kind)
        except pa.ArrowInvalid:
            continue
        if other.cast(pa.int64()).equals(whole):
            return other
    return whole


@pytest.mark.parametrize(
    "form",
    [
        lambda array: array if pa.types.is_string(array.type) else narrowed(array),
        narrowed,
        lambda array: array.dictionary_encode(),
        lambda array: array.cast(pa.large_string()) if pa.types.is_string(array.type) else array,
        lambda array: array.cast(pa.string_view()) if pa.types.is_string(array.type) else array,
    ],
)
@pytest.mark.parametrize("arrow", [False, True])
def test_types_that_hold_the_same_give_the_same(
    tmp_path: Path, form: Callable[[pa.ChunkedArray], pa.ChunkedArray], arrow: bool
) -> None:
    path = small(tmp_path / "s.sqlite")
    folder = tmp_path / "other"
    folder.mkdir()
    for name, table in as_tables(path).items():
        other = pa.table([form(column) for column in table.columns], names=table.column_names)
        if arrow:
            with pa.ipc.new_file(folder / f"{name}.arrow", other.schema) as out:
                out.write_table(other)
        else:
            pq.write_table(other, folder / f"{name}.parquet")
    assert_same(nsys_parquet.read(folder), nsys_sqlite.read(path))


@pytest.mark.parametrize("encode", [False, True])
def test_names_may_stand_where_their_ids_are_expected(tmp_path: Path, encode: bool) -> None:
    path = small(tmp_path / "s.sqlite")
    tables = as_tables(path)
    pairs = zip(*(tables["StringIds"].column(n).to_pylist() for n in ("id", "value")), strict=True)
    words = dict(pairs)
    folder = parquet_of(path, tmp_path / "pq")
    for table, columns in {
        KERNELS: ("demangledName", "shortName"),
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("nameId",),
        "NVTX_EVENTS": ("textId",),
    }.items():
        for column in columns:
            texts = pa.array([words.get(n) for n in tables[table].column(column).to_pylist()])
            texts = texts.dictionary_encode() if encode else texts
            change(folder, table, lambda t, c=column, a=texts: with_column(t, c, a))
    (folder / "StringIds.parquet").unlink()
    source = nsys_parquet.read(folder)
    wanted = nsys_sqlite.read(path)
    for name, table in wanted.tables.tables.items():
        assert source.tables.tables[name].equals(table), name
    assert "StringIds" in source.warnings[0]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([1.5] * 22), "is a real number"),
        (pa.array([1.5] * 22, pa.float32()), "is a real number"),
        (pa.array([3.0] * 22), "is a real number"),
        (pa.array(["12"] * 22), "is text"),
        (pa.array(["12"] * 22).dictionary_encode(), "is text"),
        (pa.array([2**40] * 22), "does not fit 32 bits"),
        (pa.array([2**63] * 22, pa.uint64()), "does not fit 64 bits"),
        (pa.array([b"12"] * 22), "is neither a number nor a text"),
        (pa.array([[1]] * 22), "is neither a number nor a text"),
        (pa.array([{"a": 1}] * 22), "is neither a number nor a text"),
        (pa.array([0] * 22, pa.timestamp("ns")), "is neither a number nor a text"),
    ],
)
@pytest.mark.parametrize("part", [22, 5])
def test_a_column_of_a_wrong_type_is_refused_row_by_row(
    folder: Path, values: pa.Array, reason: str, part: int
) -> None:
    some = pa.array([row < part for row in range(22)])
    column = pa.compute.if_else(some, values, pa.scalar(None, values.type))
    change(folder, KERNELS, lambda t: with_column(t, "registersPerThread", column))
    source = nsys_parquet.read(folder)
    assert refused(source) == {("activities", f"registersPerThread {reason}"): part}
    assert kinds(source).get("kernel", 0) == 22 - part


def test_only_what_is_too_wide_is_refused(folder: Path) -> None:
    values = pa.array([7, 2**63, 2**64 - 1, *[9] * 18, None], pa.uint64())
    change(folder, KERNELS, lambda t: with_column(t, "shortName", values))
    source = nsys_parquet.read(folder)
    assert refused(source) == {("activities", "shortName does not fit 64 bits"): 2}
    (sample,) = source.tables.get("quarantine").column("sample").to_pylist()
    assert sample == str(2**64 - 1)


@pytest.mark.parametrize(
    ("table", "column", "declared", "value"),
    [
        (KERNELS, "registersPerThread", "", "1.25"),
        (KERNELS, "streamId", "", "'seven'"),
        (KERNELS, "streamId", "", "NULL"),
        (KERNELS, "demangledName", "", "2.5"),
        ("NVTX_EVENTS", "eventType", "", "59.0"),
        ("NVTX_EVENTS", "eventType", "", "75.0"),
        ("NVTX_EVENTS", "eventType", "", "'push'"),
        ("NVTX_EVENTS", "eventType", "", "NULL"),
        ("NVTX_EVENTS", "text", "", "12"),
        ("NVTX_EVENTS", "text", "", "1.5"),
        ("NVTX_EVENTS", "text", "", "NULL"),
        ("NVTX_EVENTS", "end", "", "-1.5"),
        ("NVTX_EVENTS", "domainId", "", "'x'"),
        ("StringIds", "value", "", "7"),
        ("StringIds", "value", "", "NULL"),
        ("ANALYSIS_DETAILS", "duration", "", "0.5"),
        ("GPU_METRICS", "value", "", "12"),
        ("GPU_METRICS", "value", "", "12.5"),
        ("GPU_METRICS", "value", "", "9e999"),
        ("GPU_METRICS", "value", "", "'high'"),
        ("GPU_METRICS", "value", "", "NULL"),
        ("GPU_METRICS", "timestamp", "", "1.5"),
        ("NVTX_EVENTS", "uint64Value", "", "'x'"),
        ("NVTX_EVENTS", "doubleValue", "", "4"),
        ("NVTX_EVENTS", "doubleValue", "", "'x'"),
        ("TARGET_INFO_GPU", "name", "", "3"),
        ("TARGET_INFO_GPU", "smCount", "", "'many'"),
        ("META_DATA_EXPORT", "value", "", "7"),
    ],
)
def test_a_wrong_column_gives_what_it_gives_in_sqlite(
    tmp_path: Path, table: str, column: str, declared: str, value: str
) -> None:
    path = loosen(rich(tmp_path / "s.sqlite"), table)
    edit(
        path,
        f'ALTER TABLE "{table}" DROP COLUMN "{column}"',
        f'ALTER TABLE "{table}" ADD COLUMN "{column}" {declared}',
        f'UPDATE "{table}" SET "{column}" = {value}',
    )
    source = nsys_parquet.read(parquet_of(path, tmp_path / "pq"))
    assert_same(source, nsys_sqlite.read(path))


@given(
    cells=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1)), min_size=1, max_size=20)
)
def test_integers_of_any_size_are_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, cells: list[int | None]
) -> None:
    known = [cell for cell in cells if cell is not None]
    unsigned = any(cell >= 2**63 for cell in known)
    if unsigned:
        cells = [cell if cell is None or cell >= 0 else -cell for cell in cells]
    folder = tmp_path_factory.mktemp("cells") / "pq"
    folder.mkdir()
    rows = range(len(cells))
    columns: dict[str, object] = {
        "start": [1000 + row for row in rows],
        "end": [2000 + row for row in rows],
        "deviceId": pa.array([0 for _ in rows], pa.uint8()),
        "streamId": [7 for _ in rows],
        "correlationId": [row + 1 for row in rows],
        "globalPid": [1 << 48 for _ in rows],
        "bytes": pa.array(cells, pa.uint64() if unsigned else pa.int64()),
    }
    pq.write_table(pa.table(columns), folder / "CUPTI_ACTIVITY_KIND_MEMCPY.parquet")
    source = nsys_parquet.read(folder)
    kept = source.tables.get("activities").column("bytes").to_pylist()
    assert kept == [cell for cell in cells if cell is None or cell < 2**63]
    assert sum(refused(source).values()) == len(cells) - len(kept)


def test_bad_utf8_is_read_as_in_sqlite(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    edit(
        path,
        "UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE value = 'gelu'",
        "UPDATE NVTX_EVENTS SET text = CAST(x'ff00fe' AS TEXT) WHERE text = 'warm-up'",
    )
    source = nsys_parquet.read(parquet_of(path, tmp_path / "pq"))
    assert "a\ufffdb" in source.tables.get("activities").column("name").to_pylist()
    assert_same(source, nsys_sqlite.read(path))


def test_names_that_differ_in_case_and_suffix(folder: Path) -> None:
    wanted = nsys_parquet.read(folder)
    (folder / f"{KERNELS}.parquet").rename(folder / "cupti_activity_kind_kernel_V2.parquet")
    change(
        folder,
        "META_DATA_EXPORT",
        lambda t: t.rename_columns([n.upper() for n in ("name", "value")]),
    )
    change(folder, "NVTX_EVENTS", lambda t: t.rename_columns([n.upper() for n in t.column_names]))
    assert_same(nsys_parquet.read(folder), wanted)


def test_only_wanted_tables_and_columns_are_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = pa.table({"name": ["PATH"], "value": [CANARY]})
    for name in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "OSRT_API"):
        pq.write_table(environment, folder / f"{name}.parquet")
    opened = set()
    original = nsys_folder.os.open

    def spied(path: Path, *rest: int) -> int:
        opened.add(Path(path).stem)
        return original(path, *rest)

    monkeypatch.setattr(nsys_folder.os, "open", spied)
    load(folder)
    assert opened == {
        "ANALYSIS_DETAILS",
        "CUDA_GRAPH_EVENTS",
        "CUDA_GRAPH_NODE_EVENTS",
        KERNELS,
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "META_DATA_EXPORT",
        "NVTX_EVENTS",
        "StringIds",
        "TARGET_INFO_CUDA_DEVICE",
        "TARGET_INFO_GPU",
    }


def test_pandas_stays_unloaded_and_no_thread_is_left(folder: Path, tmp_path: Path) -> None:
    arrow = arrow_of(small(tmp_path / "t.sqlite"), tmp_path / "ar")
    code = (
        "import os, sys, pathlib, numpy, pyarrow, pyarrow.parquet\n"
        "tasks = '/proc/self/task'\n"
        "def threads(): return len(os.listdir(tasks)) if os.path.isdir(tasks) else 0\n"
        "before = threads()\n"
        "from graphtrace.ingest.nsys_parquet import read\n"
        "for path in sys.argv[1:]: read(pathlib.Path(path))\n"
        "sys.exit(threads() - before + 100 * ('pandas' in sys.modules))"
    )
    command = [sys.executable, "-c", code, str(folder), str(arrow)]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0
