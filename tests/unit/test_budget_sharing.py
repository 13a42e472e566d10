# SPDX-License-Identifier: Apache-2.0
"""Exact shares against an oracle that looks at every nanosecond."""

import itertools
from random import Random
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.attribute import sharing
from graphtrace.attribute.replay_table import nearest_rank
from graphtrace.attribute.sharing import Shares, blocks

Row = tuple[int, int, int, int, int]
"""Lane, begin, length, stream, unit."""


def _share(rows: list[Row], ordinals: list[int], size: int = 1 << 17) -> Shares:
    lane, begin, length, stream, _unit = (
        np.asarray(c, dtype=np.int64) for c in zip(*rows, strict=True)
    )
    end = begin + length
    unit_end = np.asarray(
        [
            max(e for r, e in zip(rows, end, strict=True) if r[0] == x[0] and r[4] == x[4])
            for x in rows
        ]
    )
    result = Shares(*(np.full(len(rows), -1, dtype=np.int64) for _ in range(3)))
    for number in np.unique(lane).tolist():
        mine = np.flatnonzero(lane == number)
        mine = mine[np.lexsort((np.asarray(ordinals)[mine], stream[mine], begin[mine]))]
        after = 0
        ends = unit_end[mine]
        for block in blocks(mine, begin, end, lambda at, cut, ends=ends: ends[at:cut], size=size):
            assert block.begin == after < block.end
            after = block.end
            place = mine[block.begin : block.end]
            result.busy[place] = block.shares.busy
            result.alone[place] = block.shares.alone
            result.idle[place] = block.shares.idle
        assert after == len(mine)
    return result


def oracle(rows: list[Row], ordinals: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Busy, alone and idle of each, by stretches between borders and by instants."""
    count = len(rows)
    busy, alone, idle = [0] * count, [0] * count, [0] * count
    order = sorted(range(count), key=lambda i: (rows[i][1], rows[i][3], ordinals[i]))
    for lane in {row[0] for row in rows}:
        mine = [i for i in order if rows[i][0] == lane]
        borders = sorted({t for i in mine for t in (rows[i][1], rows[i][1] + rows[i][2])})
        for left, right in itertools.pairwise(borders):
            now = [i for i in mine if rows[i][1] <= left < rows[i][1] + rows[i][2]]
            for place, i in enumerate(now):
                share_, rest = divmod(right - left, len(now))
                busy[i] += share_ + (place < rest)
                alone[i] += right - left if len(now) == 1 else 0
            if not now:
                units = {rows[i][4] for i in mine}
                inside = any(
                    min(rows[i][1] for i in mine if rows[i][4] == u) <= left
                    and right <= max(rows[i][1] + rows[i][2] for i in mine if rows[i][4] == u)
                    for u in units
                )
                if inside:
                    ender = next(i for i in mine if rows[i][1] == right)
                    idle[ender] += right - left
    return busy, alone, idle


rows_of = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 40),
        st.integers(0, 17),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=14,
)


@given(rows_of, st.randoms(), st.sampled_from([1, 2, 3, 1 << 17]))
def test_shares_are_those_of_the_oracle_in_any_row_order_and_any_blocks(
    rows: list[Row], random: Random, size: int
) -> None:
    ordinals = list(range(len(rows)))
    random.shuffle(ordinals)
    got = _share(rows, ordinals, size)
    assert (got.busy.tolist(), got.alone.tolist(), got.idle.tolist()) == oracle(rows, ordinals)
    turned = _share(rows[::-1], ordinals[::-1])
    assert turned.busy[::-1].tolist() == got.busy.tolist()
    assert turned.idle[::-1].tolist() == got.idle.tolist()
    with mock.patch.object(sharing, "_CELLS", 3):
        small = _share(rows, ordinals)
    assert small.busy.tolist() == got.busy.tolist()


def test_remainders_go_to_the_first_in_the_fixed_order() -> None:
    rows = [(0, 0, 10, 9, 0), (0, 0, 10, 8, 0), (0, 0, 10, 8, 0)]
    assert _share(rows, [0, 2, 1]).busy.tolist() == [3, 3, 4]


def test_epoch_times_and_times_from_zero_in_one_trace() -> None:
    rows = [(0, 1_700_000_000_000_000_000, 10, 1, 0), (1, 0, 10, 1, 1), (1, 5, 10, 2, 1)]
    got = _share(rows, [0, 1, 2])
    assert got.busy.tolist() == [10, 8, 7]
    assert got.alone.tolist() == [10, 5, 5]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.sampled_from([50, 99, 100]))
def test_nearest_rank(values: list[int], percent: int) -> None:
    got = nearest_rank(np.asarray(values, dtype=np.int64), percent)
    assert got is not None
    assert sum(v <= got for v in values) * 100 >= percent * len(values)
    assert got in values
    below = [v for v in values if v < got]
    assert not below or sum(v <= max(below) for v in values) * 100 < percent * len(values)


def test_no_values_have_no_percentile() -> None:
    assert nearest_rank(np.zeros(0, dtype=np.int64), 50) is None
