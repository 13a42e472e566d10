# SPDX-License-Identifier: Apache-2.0
"""Rows that cannot be true are refused and counted, never repaired."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.model.arrays import encode, make_table, numbers, strings

__all__ = ["Quarantine", "refuse_bad_times"]

_SAMPLE_CHARS = 160


@dataclass(slots=True)
class Quarantine:
    """Counts of refused rows by table and reason, with the smallest sample of each.

    The smallest, so that the order of rows in a file changes nothing.
    """

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    samples: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, table: str, reason: str, count: int, sample: str) -> None:
        """Count refused rows.

        Args:
            table: model table that the rows were meant for.
            reason: why, in words.
            count: how many; nothing is noted where it is 0.
            sample: one of them.
        """
        if not count:
            return
        key = (table, reason)
        short = sample[:_SAMPLE_CHARS]
        self.counts[key] = self.counts.get(key, 0) + count
        self.samples[key] = min(self.samples.get(key, short), short)

    def merge(self, other: "Quarantine") -> None:
        """Add what another one counted."""
        for (table, reason), count in other.counts.items():
            self.add(table, reason, count, other.samples[(table, reason)])

    def table(self) -> pa.Table:
        """The model's quarantine table, ordered by table and reason."""
        keys = sorted(self.counts)
        columns = {
            "table": encode(key[0] for key in keys),
            "reason": encode(key[1] for key in keys),
            "count": numbers([self.counts[key] for key in keys], pa.int64()),
            "sample": strings(self.samples[key] for key in keys),
        }
        return make_table("quarantine", len(keys), columns)


def refuse_bad_times(
    quarantine: Quarantine,
    table: str,
    begin: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    *,
    longest: int | None = None,
    instant: bool = True,
) -> npt.NDArray[np.bool_]:
    """Which rows have believable times; the others are counted.

    Profilers write zero for a time they did not collect, and end before start after a buffer
    overflow (kineto#136, parcagpu#23).

    Args:
        quarantine: where refused rows are counted.
        table: model table that the rows are meant for.
        begin: start, ns.
        end: end, ns.
        longest: length of the recording, ns; no activity in it can be longer.
        instant: whether a row may end when it starts.

    Returns:
        True where the row stays.
    """
    with np.errstate(over="ignore"):
        length = end - begin
    reasons: list[tuple[str, npt.NDArray[np.bool_]]] = [
        ("time is zero: it was not collected", (begin == 0) | (end == 0)),
        ("ends before it starts", end < begin),
        # Both ends in order and still a negative length: the difference does not fit 64 bits.
        ("longer than the recording", length < 0),
    ]
    if longest is not None:
        reasons.append(("longer than the recording", length > longest))
    if not instant:
        reasons.append(("takes no time", length == 0))
    keep = np.ones(len(begin), dtype=np.bool_)
    for reason, bad in reasons:
        rows = np.flatnonzero(bad & keep)
        if len(rows):
            first = rows[np.lexsort((end[rows], begin[rows]))[0]]
            sample = f"begin {_plain(begin[first])} ns, end {_plain(end[first])} ns"
            quarantine.add(table, reason, len(rows), sample)
            keep[rows] = False
    return keep


def _plain(value: Any) -> int:
    return int(value)
