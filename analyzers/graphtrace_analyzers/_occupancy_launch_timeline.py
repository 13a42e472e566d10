# SPDX-License-Identifier: Apache-2.0
"""Small grids from a timeline: kernels with fewer blocks than SMs that nothing else overlaps.

Only work inside replays counts where there are any: the wall time is theirs. Blocks, SMs and
overlap are all that a timeline knows; what the idle SMs could have done is bounded, not measured.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphtrace.model.analysis import Abstention, Evidence
from graphtrace.model.arrays import as_numpy, codes_of, narrow, valid_of
from graphtrace.model.metric_view import function_name
from graphtrace.model.plugin import Claim
from graphtrace.model.trace import TableSet
from graphtrace_analyzers._claims import PROGRAM, duration, ncu_command, percent, severity
from graphtrace_analyzers._occupancy_launch_options import ID, Options

__all__ = ["alone_on_device", "timeline"]

Ints = npt.NDArray[np.signedinteger[Any]]
Flags = npt.NDArray[np.bool_]


def timeline(
    tables: TableSet, options: Options
) -> tuple[tuple[Claim, ...], tuple[Abstention, ...]]:
    """Claims and abstentions for the activities of a trace."""
    kernels = _Kernels.of(tables)
    if not kernels.is_kernel.any():
        return (), ()
    if not (kernels.blocks[kernels.is_kernel] > 0).any():
        reason = "Whether grids are too small cannot be said: the input has no launch shapes."
        return (), (Abstention(ID, reason, _nsys()),)
    if not (kernels.sms[kernels.is_kernel] > 0).any():
        reason = (
            "Whether grids are too small cannot be said: the input does not say how many SMs the"
            " device has, or it is a MIG instance."
        )
        rerun = "nsys export --type sqlite --lazy=false --force-overwrite true REPORT.nsys-rep"
        return (), (Abstention(ID, reason, rerun),)
    small = kernels.small(options)
    groups = kernels.groups(small, options.min_launches)
    wall = _wall_ns(tables)
    if groups and not wall:
        reason = (
            "What small grids cost cannot be said: there is no replay, step or named range whose"
            " wall time they could be a share of."
        )
        return (), (Abstention(ID, reason, _nsys()),)
    worth = options.min_share * wall
    return tuple(_claim(kernels, rows, ns, wall) for rows, ns in groups if ns >= worth), ()


def _nsys() -> str:
    return f"nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run {PROGRAM}"


def _wall_ns(tables: TableSet) -> int:
    times = tables.get("stage_times")
    return int(as_numpy(times.column("busy_ns")).sum() + as_numpy(times.column("idle_ns")).sum())


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Columns of the activities that the question needs, a row each.

    Attributes:
        is_kernel: a kernel, inside a replay where the trace has replays.
        counts: work that may fill SMs; all but our own marks.
        blocks: blocks of the grid, 0 where unknown.
        sms: SMs of the device, 0 where unknown or not all its own.
        stage: key of the stage, -1 where there is none.
        replay: key of the replay, -1 where there is none.
    """

    names: npt.NDArray[np.int32]
    words: list[str]
    is_kernel: Flags
    counts: Flags
    blocks: Ints
    sms: Ints
    device: Ints
    stage: Ints
    replay: Ints
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, tables: TableSet) -> "_Kernels":
        activities = tables.get("activities")
        kinds, kind_words = codes_of(activities.column("kind"))
        names, words = codes_of(activities.column("name"))
        replay = _keys(activities, "replay")
        device = as_numpy(activities.column("device"))
        inside = replay >= 0 if tables.rows("replays") else np.ones(len(kinds), dtype=np.bool_)
        return cls(
            names=names,
            words=words,
            is_kernel=_of_kind(kinds, kind_words, "kernel") & inside,
            counts=~_of_kind(kinds, kind_words, "mark"),
            blocks=_blocks([_keys(activities, f"grid_{axis}", 0) for axis in "xyz"]),
            sms=_sm_counts(tables, device),
            device=device,
            stage=_keys(activities, "stage"),
            replay=replay,
            begin=as_numpy(activities.column("begin_ns")),
            end=as_numpy(activities.column("end_ns")),
        )

    def small(self, options: Options) -> Flags:
        """Kernels that leave SMs without a block while nothing else runs."""
        few = self.is_kernel & (self.blocks > 0) & (self.blocks < self.sms)
        long = few & (self.end - self.begin >= options.grid_min_ns)
        if not long.any():
            return long
        alone = np.zeros(len(long), dtype=np.bool_)
        rows = np.flatnonzero(self.counts)
        alone[rows] = alone_on_device(self.device[rows], self.begin[rows], self.end[rows])
        return long & alone

    def groups(self, flagged: Flags, least: int) -> list[tuple[Ints, int]]:
        """Rows and lost time of each stage and kernel name with at least so many launches.

        Lost is at most duration x (SMs - blocks) / SMs, summed.
        """
        rows = np.flatnonzero(flagged)
        if not len(rows):
            return []
        group = (self.stage[rows] + 1) * (len(self.words) + 1) + self.names[rows] + 1
        order = np.argsort(narrow(group), kind="stable")
        rows, group = rows[order], group[order]
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        ends = np.r_[starts[1:], len(rows)]
        spent = self.end[rows] - self.begin[rows]
        idle = spent * (self.sms[rows] - self.blocks[rows]) // self.sms[rows]
        lost = np.add.reduceat(idle, starts)
        return [
            (rows[starts[g] : ends[g]], int(lost[g]))
            for g in np.flatnonzero(ends - starts >= least).tolist()
        ]


def _keys(table: object, name: str, absent: int = -1) -> Ints:
    column = table.column(name)  # type: ignore[attr-defined]  # an Arrow table; it has no types
    values, valid = as_numpy(column), valid_of(column)
    return values if valid.all() else np.where(valid, values, values.dtype.type(absent))


def _blocks(axes: list[Ints]) -> Ints:
    """Blocks of each grid, from its sizes along the three axes."""
    common, blocks = 1, None
    for sizes in axes:
        if sizes.strides == (0,) and len(sizes):
            common *= max(int(sizes[0]), 0)
        else:
            positive = np.maximum(sizes, 0).astype(np.int64)
            blocks = positive if blocks is None else blocks * positive
    if blocks is None:
        return np.broadcast_to(np.int64(common), len(axes[0]))
    return blocks * common if common != 1 else blocks


def _of_kind(codes: npt.NDArray[np.int32], words: list[str], kind: str) -> Flags:
    flags: Flags = codes == (words.index(kind) if kind in words else -2)
    return flags


def _sm_counts(tables: TableSet, device: Ints) -> Ints:
    """SMs of the device of each activity. Those of a MIG instance are not all its own: 0."""
    devices = tables.get("devices")
    mig = devices.column("mig")
    own = ~(valid_of(mig) & as_numpy(mig))
    counts = np.where(own, _keys(devices, "sm_count", 0), 0)
    keys = as_numpy(devices.column("device"))
    if not len(keys):
        return np.zeros(len(device), dtype=np.int64)
    if device.strides == (0,) and len(device):
        one = _sm_counts(tables, device[:1].copy())
        return np.broadcast_to(one[0], len(device))
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], device), len(keys) - 1)
    return np.where(keys[order][at] == device, counts[order][at], 0).astype(np.int64)


def alone_on_device(device: Ints, begin: Ints, end: Ints) -> Flags:
    """Which half-open intervals overlap no other one of the same device.

    Args:
        device: key of the device, an int64 a row.
        begin: first ns of the interval.
        end: ns after its last.
    """
    alone = np.ones(len(begin), dtype=np.bool_)
    for key in np.unique(device).tolist():
        rows = np.flatnonzero(device == key)
        order = rows[np.argsort(begin[rows], kind="stable")]
        first, last = begin[order], end[order]
        latest = np.maximum.accumulate(last)
        overlapped = first[1:] < latest[:-1]
        overlaps = first[1:] < last[:-1]
        alone[order[1:]] &= ~overlapped
        alone[order[:-1]] &= ~overlaps
    return alone


def _claim(kernels: _Kernels, rows: Ints, lost_ns: int, wall_ns: int) -> Claim:
    name = kernels.words[kernels.names[rows[0]]] if kernels.names[rows[0]] >= 0 else ""
    stage = int(kernels.stage[rows[0]])
    spent = int((kernels.end[rows] - kernels.begin[rows]).sum())
    blocks, sms = kernels.blocks[rows], kernels.sms[rows]
    devices = np.unique(kernels.device[rows])
    replays = np.unique(kernels.replay[rows][kernels.replay[rows] >= 0])
    low, high = int(blocks.min()), int(blocks.max())
    some = f"{low}" if low == high else f"{low} to {high}"
    return Claim(
        kind="small_grid",
        severity=severity(min(lost_ns / wall_ns, 1.0)),
        confidence="medium",
        fingerprint=name,
        evidence=(
            Evidence("launches", len(rows), ""),
            Evidence("time", spent, "ns"),
            Evidence("smallest grid", low, "block"),
            Evidence("largest grid", high, "block"),
            Evidence("SMs", int(sms.min()), ""),
        ),
        why=f"{len(rows)} launches run {some} {'block' if high == 1 else 'blocks'} on"
        f" {int(sms.min())} SMs while nothing else runs: at most {percent(lost_ns / spent)} of"
        f" their {duration(spent)}.",
        do="Split the work into at least one block per SM (smaller tiles, split-K, more of the"
        " batch in one launch), or run it beside an independent branch of the graph.",
        prove=ncu_command(
            function_name(name), "--launch-count 1 --section LaunchStats --section SpeedOfLight"
        ),
        stage=None if stage < 0 else stage,
        pool="busy",
        claimed_ns=lost_ns,
        kernel=name or None,
        device=int(devices[0]) if len(devices) == 1 else None,
        replays=len(replays) if len(replays) else None,
    )
