# SPDX-License-Identifier: Apache-2.0
"""Joining inputs keeps every row, keeps keys apart, and makes one stage of one path."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.load import load, merge
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import encode, make_table, numbers, strings
from graphtrace.model.errors import UsageError
from graphtrace.model.trace import InputInfo, TableSet


def a_source(paths, used, process_count=1):
    """Stages of these paths, and one range a member of `used` (an index into paths, or None)."""
    rows = len(used)
    return Source(
        InputInfo("x", "gtrace"),
        TableSet(
            {
                "processes": make_table(
                    "processes",
                    process_count,
                    {"process": range(process_count), "source": [0] * process_count},
                ),
                "stages": make_table(
                    "stages",
                    len(paths),
                    {
                        "stage": range(len(paths)),
                        "path": strings(paths),
                        "name": strings(paths),
                        "origin": encode(["module"] * len(paths)),
                    },
                ),
                "ranges": make_table(
                    "ranges",
                    rows,
                    {
                        "process": [0] * rows,
                        "thread": [1] * rows,
                        "domain": encode([""] * rows),
                        "text": encode(["t"] * rows),
                        "kind": encode(["push_pop"] * rows),
                        "begin_ns": range(rows),
                        "stage": numbers(
                            [0 if u is None else u for u in used],
                            pa.int32(),
                            valid=np.array([u is not None for u in used], dtype=bool),
                        ),
                    },
                ),
            }
        ),
    )


@st.composite
def sources(draw):
    paths = draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    used = draw(st.lists(st.none() | st.integers(0, len(paths) - 1)))
    return paths, used, draw(st.integers(1, 3))


@given(st.lists(sources(), min_size=1, max_size=4))
def test_every_range_keeps_the_path_of_its_stage(given_sources):
    trace = merge([a_source(*source) for source in given_sources])
    path_of = dict(
        zip(*(trace.stages.column(c).to_pylist() for c in ("stage", "path")), strict=True)
    )
    assert len(path_of) == trace.stages.num_rows
    assert len(set(path_of.values())) == len(path_of)
    got = [None if s is None else path_of[s] for s in trace.ranges.column("stage").to_pylist()]
    want = [None if u is None else paths[u] for paths, used, _ in given_sources for u in used]
    assert got == want


@given(st.lists(sources(), min_size=1, max_size=4))
def test_processes_of_different_inputs_stay_different(given_sources):
    trace = merge([a_source(*source) for source in given_sources])
    processes = trace.processes.column("process").to_pylist()
    assert processes == list(range(sum(count for _, _, count in given_sources)))
    origin = trace.processes.column("source").to_pylist()
    assert origin == [i for i, (_, _, count) in enumerate(given_sources) for _ in range(count)]
    for table in trace.tables.tables.values():
        table.validate(full=True)


def test_the_same_file_twice_is_refused(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="given twice"):
        load(tmp_path / "a", tmp_path / "b")
    with pytest.raises(UsageError, match="No input"):
        load()
