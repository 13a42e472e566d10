# SPDX-License-Identifier: Apache-2.0
"""The ring of marks: no wrong record is ever taken, and each one is taken or counted as lost."""

import ctypes
import mmap
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtrace.capture.drain import MARK_TYPE, Block, Marks
from graphtrace.model.ring import MARK, MARK_BYTES, MIN_ROWS, TAG_MASK, block_bytes, rows_for

SOURCE = Path(__file__).parent / "ring_writer.c"


def write(
    memory: bytearray | mmap.mmap, marks: int, rows: int, replay: int, mark: int, half: str = "both"
) -> None:
    """Write a record, or one half of it, as the kernel does."""
    at = ((replay & (rows - 1)) * marks + mark) * MARK_BYTES
    tag = replay & TAG_MASK
    record = MARK.pack(replay * 1000 + mark, tag, mark, replay, tag, mark & 0xFF, 1)
    if half in ("both", "first"):
        memory[at : at + 16] = record[:16]
    if half in ("both", "second"):
        memory[at + 16 : at + 32] = record[16:]


def pairs(found: Marks) -> list[tuple[int, int]]:
    assert (found.t_ns == found.replay * 1000 + found.mark).all()
    return list(zip(found.replay.tolist(), found.mark.tolist(), strict=True))


def block(marks: int, rows: int, first: int = 1) -> tuple[bytearray, Block]:
    memory = bytearray(block_bytes(marks, rows))
    reader = Block(memoryview(memory), marks, rows)
    reader._next = first
    return memory, reader


def test_the_record_is_what_the_kernel_writes() -> None:
    assert MARK.size == MARK_BYTES == MARK_TYPE.itemsize
    assert [MARK_TYPE.fields[name][1] for name in MARK_TYPE.names] == [0, 8, 12, 16, 24, 28, 30]


@pytest.mark.parametrize(
    ("marks", "budget", "rows"),
    [
        (1, 8 * 32, 8),
        (1, 8 * 32 - 1, 0),
        (3, 1 << 20, 8192),
        (0, 1 << 20, 0),
        (50, 64 << 20, 32768),
    ],
)
def test_a_block_takes_the_most_rows_that_fit(marks: int, budget: int, rows: int) -> None:
    assert rows_for(marks, budget) == rows
    assert block_bytes(marks, rows) <= budget
    assert rows == 0 or (rows >= MIN_ROWS and rows & (rows - 1) == 0)


def test_a_block_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="3 marks and 8 rows"):
        Block(memoryview(bytearray(10)), 3, 8)


def test_a_row_is_taken_when_a_later_replay_has_begun() -> None:
    memory, reader = block(2, 8)
    for mark in (0, 1):
        write(memory, 2, 8, 1, mark)
    assert pairs(reader.step()) == []
    write(memory, 2, 8, 2, 0)
    assert pairs(reader.step()) == [(1, 0), (1, 1)]
    write(memory, 2, 8, 2, 1)
    assert pairs(reader.step(final=True)) == [(2, 0), (2, 1)]
    assert (reader.begun, reader.kept, reader.lost) == (2, 4, 0)


def test_a_late_record_is_looked_for_once_more_and_then_lost() -> None:
    memory, reader = block(2, 8)
    write(memory, 2, 8, 1, 0)
    write(memory, 2, 8, 2, 0)
    assert pairs(reader.step()) == [(1, 0)]
    write(memory, 2, 8, 1, 1)
    assert pairs(reader.step()) == [(1, 1)]
    write(memory, 2, 8, 3, 0)
    assert pairs(reader.step()) == [(2, 0)]
    assert pairs(reader.step()) == []
    write(memory, 2, 8, 2, 1)
    assert pairs(reader.step(final=True)) == [(3, 0)]
    assert (reader.begun * 2, reader.kept, reader.lost) == (6, 4, 2)


@pytest.mark.parametrize("half", ["first", "second"])
def test_half_a_record_is_none(half: str) -> None:
    memory, reader = block(2, 8)
    write(memory, 2, 8, 1, 0)
    write(memory, 2, 8, 1, 1, half)
    write(memory, 2, 8, 2, 0)
    assert pairs(reader.step(final=True)) == [(1, 0), (2, 0)]
    assert reader.lost == 2


def test_what_was_lapped_is_counted() -> None:
    memory, reader = block(3, 8)
    for replay in range(1, 101):
        for mark in range(3):
            write(memory, 3, 8, replay, mark)
    found = pairs(reader.step(final=True))
    assert found == [(replay, mark) for replay in range(93, 101) for mark in range(3)]
    assert (reader.begun, reader.kept, reader.lost) == (100, 24, 276)


def test_while_it_is_written_the_row_after_the_newest_is_not_trusted() -> None:
    memory, reader = block(1, 8)
    for replay in range(1, 10):
        write(memory, 1, 8, replay, 0)
    # Replay 10 may be writing over row 2 already.
    assert pairs(reader.step()) == [(replay, 0) for replay in range(3, 9)]
    assert reader.lost == 2


def test_numbers_go_on_after_32_bits() -> None:
    first = (1 << 32) - 3
    memory, reader = block(1, 8, first)
    for replay in range(first, first + 7):
        write(memory, 1, 8, replay, 0)
    assert pairs(reader.step(final=True)) == [(replay, 0) for replay in range(first, first + 7)]
    assert reader.lost == 0


@given(
    marks=st.integers(1, 4),
    rows=st.sampled_from([8, 16]),
    script=st.lists(st.tuples(st.integers(1, 12), st.booleans(), st.integers(0, 3)), max_size=30),
)
@settings(max_examples=200, deadline=None)
def test_each_record_is_kept_right_or_lost(
    marks: int, rows: int, script: list[tuple[int, bool, int]]
) -> None:
    """Any number of replays between two looks, the last one cut off at any mark."""
    memory, reader = block(marks, rows)
    replay, seen = 0, []
    for more, look, cut in script:
        for _ in range(more):
            replay += 1
            for mark in range(marks):
                write(memory, marks, rows, replay, mark)
        if cut and marks > 1:
            replay += 1
            for mark in range(min(cut, marks - 1)):
                write(memory, marks, rows, replay, mark)
        if look:
            seen += pairs(reader.step())
    seen += pairs(reader.step(final=True))
    assert len(seen) == len(set(seen)) == reader.kept
    assert reader.begun == replay
    assert reader.kept + reader.lost == replay * marks


class _Writer(ctypes.Structure):
    _fields_ = (
        ("ring", ctypes.c_void_p),
        ("marks", ctypes.c_uint32),
        ("rows", ctypes.c_uint32),
        ("replays", ctypes.c_uint32),
        ("pause", ctypes.c_uint32),
        ("first", ctypes.c_uint64),
        ("done", ctypes.c_int),
        ("thread", ctypes.c_uint64),
    )


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("ring") / "ring_writer.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip("the writer needs SSE2")
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize(
    ("rows", "marks", "replays", "pause", "rest_s"),
    [
        (8, 1, 3_000_000, 0, 0.0),
        (8, 5, 400_000, 20, 0.0),
        (64, 6, 200_000, 40, 0.0),
        (1024, 50, 40_000, 30, 0.002),
        (4096, 100, 20_000, 60, 0.01),
    ],
)
def test_soak(
    writer: ctypes.CDLL, rows: int, marks: int, replays: int, pause: int, rest_s: float
) -> None:
    """A thread that writes as fast as it can and stops for nobody."""
    memory = mmap.mmap(-1, block_bytes(marks, rows))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    state = _Writer(address, marks, rows, replays, pause, 1, 0, 0)
    reader = Block(memoryview(memory), marks, rows)
    wrong = taken = 0

    def look(*, final: bool = False) -> None:
        nonlocal wrong, taken
        found = reader.step(final=final)
        expected = found.replay.astype(np.uint64) * np.uint64(1000) + found.mark.astype(np.uint64)
        good = (found.t_ns == expected) & (found.clk == ~expected) & (found.sm == found.mark & 0xFF)
        wrong += int(np.count_nonzero(~good))
        taken += len(found.replay)

    assert writer.start(ctypes.byref(state)) == 0
    while not writer.finished(ctypes.byref(state)):
        look()
        time.sleep(rest_s)
    writer.wait_for(ctypes.byref(state))
    look(final=True)
    assert wrong == 0
    assert reader.begun == replays
    assert taken == reader.kept
    assert reader.kept + reader.lost == replays * marks
    assert reader.kept > 0
