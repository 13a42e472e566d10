# SPDX-License-Identifier: Apache-2.0
"""The time budget: where the wall time of all units went, in integers that add up.

wall = busy + idle; the stages (with the unattributed rest as None) sum to both, the kinds of idle
time sum to idle, and the devices sum to the whole. A share is computed once, from merged integers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graphtrace.attribute.keys import Ints, pack, sum_by
from graphtrace.attribute.units import UnitTimes
from graphtrace.model.analysis import Budget, DeviceBudget, EagerWork, StageBudget
from graphtrace.model.errors import InternalError
from graphtrace.model.vocabulary import BudgetScope, IdleKind

__all__ = ["budget_of"]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums by (device, stage)."""

    device: Ints
    stage: Ints
    busy: Ints
    idle: Ints
    launch: Ints


def budget_of(times: UnitTimes, paths: Mapping[int, str], eager: EagerWork) -> Budget:
    """Sum the times of all units.

    Args:
        times: time of each stage in each unit.
        paths: path by stage key, as `times` has them.
        eager: device work outside of the units.

    Raises:
        InternalError: the parts do not sum to the wall, which only a bug of ours can cause.
    """
    head, (busy, idle, launch) = sum_by(
        pack(times.device, times.stage), times.busy_ns, times.idle_ns, times.launch_ns
    )
    sums = _Sums(times.device[head], times.stage[head], busy, idle, launch)
    devices = tuple(
        _device(
            times.scope,
            sums,
            device,
            int(times.wall_ns[times.wall_device == device].sum()),
            paths,
        )
        for device in np.unique(times.wall_device).tolist()
    )
    wall = sum(device.wall_ns for device in devices)
    worked = sum(device.busy_ns for device in devices)
    waited = sum(device.idle_ns for device in devices)
    return Budget(
        scope=times.scope,
        units=times.units,
        wall_ns=wall,
        busy_ns=worked,
        idle_ns=waited,
        by_stage=_by_stage(sums, paths, wall),
        idle_by_kind=_kinds(times.scope, int(launch.sum()), waited),
        by_device=devices,
        eager=eager,
    )


def _device(
    scope: BudgetScope, sums: _Sums, device: int, wall: int, paths: Mapping[int, str]
) -> DeviceBudget:
    mine = sums.device == device
    part = _Sums(*(column[mine] for column in _columns(sums)))
    busy, idle = int(part.busy.sum()), int(part.idle.sum())
    if busy + idle != wall:
        raise InternalError(
            f"The time budget of device {device} does not add up.",
            f"Busy {busy} ns and idle {idle} ns are not the wall time of {wall} ns.",
            "Report this with the file, or with the output of `graphtrace info` on it.",
        )
    return DeviceBudget(
        device=device if device >= 0 else None,
        wall_ns=wall,
        busy_ns=busy,
        idle_ns=idle,
        by_stage=_by_stage(part, paths, wall),
        idle_by_kind=_kinds(scope, int(part.launch.sum()), idle),
    )


def _columns(sums: _Sums) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    return sums.device, sums.stage, sums.busy, sums.idle, sums.launch


def _by_stage(sums: _Sums, paths: Mapping[int, str], wall: int) -> tuple[StageBudget, ...]:
    """Stages, the longest first and ties by path; the unattributed rest is last."""
    head, (busy, idle) = sum_by(sums.stage, sums.busy, sums.idle)
    rows = [
        StageBudget(
            stage=paths[stage] if stage >= 0 else None,
            busy_ns=worked,
            idle_ns=waited,
            share=(worked + waited) / wall if wall else 0.0,
        )
        for stage, worked, waited in zip(
            sums.stage[head].tolist(), busy.tolist(), idle.tolist(), strict=True
        )
    ]
    return tuple(
        sorted(rows, key=lambda r: (r.stage is None, -(r.busy_ns + r.idle_ns), r.stage or ""))
    )


def _kinds(scope: BudgetScope, launch: int, idle: int) -> dict[str, int]:
    """Idle time by kind. Outside of replays no kind is looked for: see `units.device_times`."""
    parts: dict[IdleKind, int] = {"unexplained": idle - launch}
    if scope == "replay":
        parts = {"launch_latency": launch, **parts}
    return {str(kind): ns for kind, ns in parts.items()}
