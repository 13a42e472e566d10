# SPDX-License-Identifier: Apache-2.0
"""How results were measured, read off the profiler's command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.ncu_mode import UNKNOWN, Measured, measured, options

OLD = "2024.1.1.0 (build 33998838) (public-release)"
NEW = "2025.4.1.0 (build 37053803) (public-release)"


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("/opt/ncu ./app", OLD, Measured("flushed", "base", "kernel")),
        ("/opt/ncu ./app", NEW, Measured("flushed", "unknown", "kernel")),
        ("/opt/ncu ./app", None, Measured("flushed", "unknown", "kernel")),
        ("ncu --cache-control none ./app", OLD, Measured("warm", "base", "kernel")),
        ("ncu --cache-control=none ./app", OLD, Measured("warm", "base", "kernel")),
        ("ncu --cache-control all ./app", OLD, Measured("flushed", "base", "kernel")),
        ("ncu --clock-control none ./app", NEW, Measured("flushed", "none", "kernel")),
        ("ncu --clock-control boost ./app", NEW, Measured("flushed", "boost", "kernel")),
        ("ncu --clock-control force-boost x", NEW, Measured("flushed", "force-boost", "kernel")),
        ("ncu --clock-control reset", OLD, Measured("flushed", "unknown", "kernel")),
        ("ncu --replay-mode application x", OLD, Measured("flushed", "base", "application")),
        ("ncu --replay-mode app-range x", OLD, Measured("flushed", "base", "range")),
        ("ncu --cache-control ncu", OLD, Measured("unknown", "base", "kernel")),
        ("ncu --cache-control", OLD, Measured("unknown", "base", "kernel")),
        ("ncu --cache none ./app", OLD, Measured("unknown", "base", "kernel")),
        ("", OLD, Measured("flushed", "base", "kernel")),
        # The last one given counts.
        ("ncu --cache-control all --cache-control none x", OLD, Measured("warm", "base", "kernel")),
        # Flags take no value; options of the program are not the profiler's.
        ("ncu -f -o x ./app --cache-control none", OLD, Measured("flushed", "base", "kernel")),
        ("ncu --nvtx --csv ./app --replay-mode range", OLD, Measured("flushed", "base", "kernel")),
        (
            "ncu -k gemm python run.py --cache-control none",
            OLD,
            Measured("flushed", "base", "kernel"),
        ),
    ],
)
def test_command_lines(line: str, version: str | None, expected: Measured) -> None:
    assert measured([line], version) == expected


def test_without_a_command_line_nothing_is_known() -> None:
    assert measured([], OLD) == UNKNOWN


def test_command_lines_that_disagree_leave_open_what_they_disagree_in() -> None:
    lines = ["ncu --cache-control none ./app", "ncu ./app"]
    assert measured(lines, OLD) == Measured("unknown", "base", "kernel")


def test_options_end_where_the_program_begins() -> None:
    line = "/opt/ncu --set full --launch-skip 29 -f -o out --page=raw mpiexec -n 1 ./app"
    assert list(options(line)) == [
        ("--set", "full"),
        ("--launch-skip", "29"),
        ("-f", ""),
        ("-o", "out"),
        ("--page", "raw"),
    ]


@given(st.text(), st.none() | st.text(max_size=12))
def test_any_text_has_a_mode(line: str, version: str | None) -> None:
    mode = measured([line], version)
    assert mode.cache in ("flushed", "warm", "unknown")
    assert mode.clock in ("base", "boost", "force-boost", "none", "unknown")
    assert mode.replay_mode in ("kernel", "application", "range", "unknown")
