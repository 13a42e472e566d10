# SPDX-License-Identifier: Apache-2.0
"""Sampled GPU metrics of synthetic exports; no real export at hand has any."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.analysis.engine import analyze
from graphtrace.ingest.load import load
from graphtrace.ingest.nsys_sqlite import read
from graphtrace.testing.nsys import Kernel, NsysExport
from graphtrace.testing.nsys_metrics import GpuMetrics

ACTIVE = "SMs Active [Throughput %]"


def export_of(*devices, dialect="2025"):
    export = NsysExport(dialect)
    for number, device in enumerate(devices or (0,)):
        export.process(pid=100 + number, device=device).eager([Kernel("k", 1_000)])
    return export


def written(tmp_path, export, *changes):
    path = tmp_path / "m.sqlite"
    export.write(path, force=True)
    with closing(sqlite3.connect(path)) as connection:
        for change in changes:
            connection.execute(change)
        connection.commit()
    return path


def counters(path, **options):
    return read(path, **options).tables.get("counters").to_pylist()


def refused(source):
    rows = source.tables.get("quarantine").to_pylist()
    return {row["reason"]: row["count"] for row in rows if row["table"] == "counters"}


NAMES = {
    ACTIVE: ("SMs Active", "%"),
    "SM Active [Throughput %]": ("SMs Active", "%"),
    "Compute Warps In Flight [Throughput %]": ("Compute Warps in Flight", "%"),
    "Compute Warps in Flight [Avg Warps per Cycle]": (
        "Compute Warps in Flight",
        "Avg Warps per Cycle",
    ),
    "GPC Clock Frequency [MHz]": ("GPC Clock Frequency", "MHz"),
    "PCIe Read Requests to BAR1 [Requests]": ("PCIe Read Requests to BAR1", "Requests"),
    "NVLink RX": ("NVLink RX", ""),
}
series = st.lists(
    st.tuples(
        st.sampled_from(sorted(NAMES)),
        st.integers(0, 2),
        st.lists(
            st.tuples(st.integers(-5, 10_000), st.one_of(st.integers(-3, 120), st.floats(-3, 120))),
            max_size=6,
        ),
    ),
    max_size=5,
)


@given(planted=series, dialect=st.sampled_from(["2025", "2026"]), seed=st.integers(0, 9))
def test_planted_samples_are_read_or_refused(tmp_path_factory, planted, dialect, seed):
    export = export_of(0, 1, dialect=dialect)
    sampled = [GpuMetrics(export, gpu) for gpu in range(3)]
    expected, bad = [], 0
    for name, gpu, samples in planted:
        time = np.array([t for t, _ in samples], dtype=np.int64)
        value = np.array([v for _, v in samples], dtype=object)
        sampled[gpu].sample(name, time, value)
        bare, unit = NAMES[name]
        for when, number in samples:
            good = when > 0 and number >= 0 and (unit != "%" or number <= 100) and gpu < 2
            bad += not good
            if good:
                expected.append((when, gpu, bare, unit, float(number)))
    # The order of rows in an export says nothing.
    blocks = export.rows.blocks.get("GPU_METRICS", [])
    np.random.default_rng(seed).shuffle(blocks)
    path = written(tmp_path_factory.mktemp("metrics"), export)
    source = read(path)
    plain = read(path, pages=False)
    assert [t.to_pylist() for t in source.tables.tables.values()] == [
        t.to_pylist() for t in plain.tables.tables.values()
    ]
    if not any(samples for _, _, samples in planted):
        assert not source.tables.has("counters")
        return
    rows = source.tables.get("counters").to_pylist()
    ordinals = {d["device"]: d["ordinal"] for d in source.tables.get("devices").to_pylist()}
    got = [(r["time_ns"], ordinals[r["device"]], r["name"], r["unit"], r["value"]) for r in rows]
    assert got == sorted(expected)
    assert sum(refused(source).values()) == bad
    assert all(r["process"] is None and r["stage"] is None for r in rows)


def test_percentages_beyond_their_range_are_never_clamped(tmp_path):
    export = export_of()
    metrics = GpuMetrics(export)
    time = np.arange(1, 6, dtype=np.int64) * 100_000
    metrics.sample(ACTIVE, time, np.array([0, 100, 101, -1, 50]))
    metrics.sample("GPC Clock Frequency [MHz]", time, np.array([1980, 210, 0, -5, 1980]))
    source = read(written(tmp_path, export))
    rows = source.tables.get("counters").to_pylist()
    assert sorted(r["value"] for r in rows if r["unit"] == "%") == [0, 50, 100]
    assert sorted(r["value"] for r in rows if r["unit"] == "MHz") == [0, 210, 1980, 1980]
    assert refused(source) == {"percentage outside of 0 to 100": 2, "value is negative": 1}
    (sample,) = [
        row["sample"]
        for row in source.tables.get("quarantine").to_pylist()
        if row["reason"].startswith("percentage")
    ]
    assert sample == "SMs Active -1 at 400000 ns"


def test_a_gpu_that_ran_nothing_is_not_taken_for_another(tmp_path):
    export = export_of(3)
    for gpu in (3, 0):
        GpuMetrics(export, gpu).sample(ACTIVE, np.array([1_000, 2_000]), 7 + gpu)
    source = read(written(tmp_path, export))
    assert [r["value"] for r in source.tables.get("counters").to_pylist()] == [10, 10]
    assert refused(source) == {"sampled on a GPU that ran no work": 2}


def test_without_facts_of_gpus_the_number_is_the_ordinal(tmp_path):
    export = export_of(0, 1)
    for gpu in (0, 1):
        GpuMetrics(export, gpu).sample(ACTIVE, np.array([1_000]), 7 + gpu)
    path = written(tmp_path, export, "DROP TABLE TARGET_INFO_GPU")
    source = read(path)
    ordinals = {d["device"]: d["ordinal"] for d in source.tables.get("devices").to_pylist()}
    found = {ordinals[r["device"]]: r["value"] for r in source.tables.get("counters").to_pylist()}
    assert found == {0: 7, 1: 8}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("DROP TABLE TARGET_INFO_GPU_METRICS", {("#0", "")}),
        ("DELETE FROM TARGET_INFO_GPU_METRICS", {("#0", "")}),
        ("ALTER TABLE TARGET_INFO_GPU_METRICS DROP COLUMN typeId", {("SMs Active", "%")}),
        ("UPDATE TARGET_INFO_GPU_METRICS SET typeId = typeId + 1", {("#0", "")}),
        ("UPDATE TARGET_INFO_GPU_METRICS SET metricName = '[%]'", {("[%]", "")}),
        ("UPDATE TARGET_INFO_GPU_METRICS SET metricName = ' x [ [%] '", {("x [", "%")}),
    ],
)
def test_names_that_are_missing_or_odd(tmp_path, change, names):
    export = export_of()
    GpuMetrics(export).sample(ACTIVE, np.array([1_000]), 7)
    rows = counters(written(tmp_path, export, change))
    assert {(r["name"], r["unit"]) for r in rows} == names


@pytest.mark.parametrize(
    ("change", "left", "reason"),
    [
        ("UPDATE GPU_METRICS SET value = 'x' WHERE rowid = 1", 1, "value is text"),
        ("UPDATE GPU_METRICS SET value = 9e999 WHERE rowid = 1", 1, "value is not finite"),
        ("UPDATE GPU_METRICS SET timestamp = 0 WHERE rowid = 1", 1, "time is zero"),
        ("UPDATE GPU_METRICS SET typeId = 0.5 WHERE rowid = 1", 1, "typeId is a real number"),
        ("ALTER TABLE GPU_METRICS DROP COLUMN typeId", None, "GPU_METRICS has columns of its own"),
    ],
)
@pytest.mark.parametrize("pages", [True, False])
def test_odd_rows_and_tables(tmp_path, change, left, reason, pages):
    export = export_of()
    GpuMetrics(export).sample(ACTIVE, np.array([1_000, 2_000]), 7)
    source = read(written(tmp_path, export, change), pages=pages)
    assert source.nothing is None
    assert (source.tables.rows("counters") if left else None) == left
    assert source.tables.has("counters") == (left is not None)
    ((said, count),) = refused(source).items()
    assert said.startswith(reason)
    assert count == 1


def test_reals_are_read_as_they_are(tmp_path):
    export = export_of()
    GpuMetrics(export).sample(ACTIVE, np.array([1_000, 2_000]), np.array([0.25, 99.75]))
    path = written(tmp_path, export)
    for pages in (True, False):
        assert [r["value"] for r in counters(path, pages=pages)] == [0.25, 99.75]


def test_exports_without_samples_have_no_counters(tmp_path):
    assert not read(written(tmp_path, export_of())).tables.has("counters")
    assert not read(written(tmp_path, export_of(dialect="2022"))).tables.has("counters")


def test_inputs_are_joined_and_analyzed(tmp_path):
    paths = []
    for number in range(2):
        export = export_of()
        GpuMetrics(export).sample(ACTIVE, np.array([1_000]), 40 + number)
        (tmp_path / str(number)).mkdir()
        paths.append(written(tmp_path / str(number), export))
    trace = load(*paths)
    rows = trace.tables.get("counters").to_pylist()
    assert {(r["device"], r["value"]) for r in rows} == {(0, 40.0), (1, 41.0)}
    assert analyze(trace).synthetic
