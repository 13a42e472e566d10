# SPDX-License-Identifier: Apache-2.0
"""Takes the marks of replays out of their ring while the program goes on. Makes no CUDA call.

The writers are kernels: they never wait and never look whether their row was read. The reader takes
a row when a later replay has begun, copies it, and keeps a record only if both of its halves name
the replay that it expects. Rows that a later replay may have reached during the copy are given up.
Every record is either kept or counted as lost.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.model.ring import MARK_BYTES, RING_VERSION, TAG_MASK

__all__ = ["MARK_TYPE", "Block", "Marks"]

MARK_TYPE: Final = np.dtype(
    [
        ("t_ns", "<u8"),
        ("replay", "<u4"),
        ("mark", "<u4"),
        ("clk", "<u8"),
        ("replay_again", "<u4"),
        ("sm", "<u2"),
        ("version", "<u2"),
    ]
)
_HALF: Final = 1 << 31
_MOST_ROWS: Final = 1 << 14
"""Rows copied together: a copy should be short beside the time of a lap."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks that were read, in order of replay and mark.

    Attributes:
        replay: number of the replay, from 1, in full.
        mark: number of the mark in its block.
        t_ns: time of the device's timer, ns.
        clk: clock of the SM.
        sm: the SM.
    """

    replay: Ints
    mark: Ints
    t_ns: npt.NDArray[np.uint64]
    clk: npt.NDArray[np.uint64]
    sm: npt.NDArray[np.uint16]


class Block:
    """Reader of one graph's block.

    Args:
        memory: the block's bytes, shared with the writers.
        marks: marks of the graph; mark 0 is the one that every other one follows.
        rows: rows of the block, a power of two.

    Raises:
        ValueError: the memory has another size than that.
    """

    def __init__(self, memory: memoryview, marks: int, rows: int) -> None:
        if len(memory) != marks * rows * MARK_BYTES or rows & (rows - 1) or rows < 1:
            raise ValueError(f"a block of {marks} marks and {rows} rows has not {len(memory)} B")
        self._records = np.frombuffer(memory, dtype=MARK_TYPE).reshape(rows, marks)
        self._roots = self._records["replay"][:, 0]
        self._rows, self._marks = rows, marks
        self._next = 1
        self._waiting: dict[int, npt.NDArray[np.bool_]] = {}
        self.kept = 0
        self.lost = 0

    @property
    def begun(self) -> int:
        """Replays that are known to have begun; each of their records is kept, lost or waiting."""
        return self._next - 1

    def _newest(self) -> int:
        """Number of the last replay whose first mark can be seen."""
        behind = (self._roots.astype(np.int64) - (self._next & TAG_MASK)) & TAG_MASK
        ahead = np.where(behind >= _HALF, behind - (TAG_MASK + 1), behind)
        return self._next + int(ahead.max())

    def step(self, *, final: bool = False) -> Marks:
        """Read what is complete.

        Args:
            final: nothing writes any more, so that the last replay is complete as well.
        """
        found = [self._again(final=final)]
        newest = self._newest()
        oldest = newest - self._rows + (1 if final else 2)
        if oldest > self._next:
            self.lost += (oldest - self._next) * self._marks
            self._next = oldest
        last = newest if final else newest - 1
        while self._next <= last:
            stop = min(last, self._next + _MOST_ROWS - 1)
            found.append(self._read(self._next, stop, final=final))
            self._next = stop + 1
        if final:
            # Marks that never came are lost, too.
            found.append(self._again(final=True))
        return _joined(found)

    def _read(self, first: int, last: int, *, final: bool) -> Marks:
        """Read replays; what is not there yet is looked for once more at the next step."""
        replay = np.arange(first, last + 1, dtype=np.int64)
        copied, good = self._copy(replay)
        passed = self._passed(replay, final=final)
        good &= ~passed[:, None]
        self.lost += int(np.count_nonzero(passed)) * self._marks
        missing = np.flatnonzero(~good.all(axis=1) & ~passed)
        for row in missing.tolist():
            self._waiting[int(replay[row])] = ~good[row]
        return self._kept(replay, copied, good)

    def _again(self, *, final: bool) -> Marks:
        """Look once more for what was missing; then it is lost."""
        if not self._waiting:
            return _NONE
        replay = np.asarray(sorted(self._waiting), dtype=np.int64)
        missing = np.stack([self._waiting.pop(number) for number in replay.tolist()])
        copied, good = self._copy(replay)
        good &= missing & ~self._passed(replay, final=final)[:, None]
        self.lost += int(np.count_nonzero(missing & ~good))
        return self._kept(replay, copied, good)

    def _copy(self, replay: Ints) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        copied = self._records[replay & (self._rows - 1)]
        tag = (replay & TAG_MASK).astype(np.uint32)[:, None]
        good = (copied["replay"] == tag) & (copied["replay_again"] == tag)
        good &= copied["mark"] == np.arange(self._marks, dtype=np.uint32)
        return copied, good & (copied["version"] == RING_VERSION)

    def _passed(self, replay: Ints, *, final: bool) -> npt.NDArray[np.bool_]:
        """Rows that a later replay may have written while they were copied.

        The row after the newest one may be under its writers before its first mark can be seen.
        """
        ahead = 0 if final else 1
        passed: npt.NDArray[np.bool_] = replay + self._rows <= self._newest() + ahead
        return passed

    def _kept(
        self, replay: Ints, copied: npt.NDArray[np.void], good: npt.NDArray[np.bool_]
    ) -> Marks:
        row, mark = np.nonzero(good)
        self.kept += len(row)
        records = copied[row, mark]
        return Marks(replay[row], mark, records["t_ns"], records["clk"], records["sm"])


_NONE: Final = Marks(
    np.zeros(0, dtype=np.int64),
    np.zeros(0, dtype=np.int64),
    np.zeros(0, dtype=np.uint64),
    np.zeros(0, dtype=np.uint64),
    np.zeros(0, dtype=np.uint16),
)


def _joined(parts: list[Marks]) -> Marks:
    some = [part for part in parts if len(part.replay)]
    if not some:
        return _NONE
    replay = np.concatenate([part.replay for part in some])
    mark = np.concatenate([part.mark for part in some])
    order = np.lexsort((mark, replay))
    return Marks(
        replay[order],
        mark[order],
        np.concatenate([part.t_ns for part in some])[order],
        np.concatenate([part.clk for part in some])[order],
        np.concatenate([part.sm for part in some])[order],
    )
