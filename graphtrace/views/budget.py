# SPDX-License-Identifier: Apache-2.0
"""Where the time goes: bars of one budget, the longest first and the rest in one.

Bars sum to the wall exactly, in integer nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphtrace.model.analysis import Budget, DeviceBudget, DeviceInfo, StageBudget
from graphtrace.views.names import visible
from graphtrace.views.numbers import duration, plural, share

__all__ = ["UNATTRIBUTED", "BudgetView", "StageBar", "budget_view", "device_name"]

UNATTRIBUTED: Final = "(no stage)"

_UNITS: Final = {
    "replay": ("graph replay", "graph replays"),
    "batch": ("batch", "batches"),
    "range": ("top-level range", "top-level ranges"),
}


@dataclass(frozen=True, slots=True)
class StageBar:
    """One bar: a stage, the unattributed work, or the rest of the stages taken together.

    Attributes:
        label: path of the stage, safe to show.
        role: "stage", "none" (no stage was found) or "rest".
        busy_ns, idle_ns: integer nanoseconds over all units.
        share: (busy + idle) / wall, ratio 0 to 1.
        members: stages in this bar.
    """

    label: str
    role: str
    busy_ns: int
    idle_ns: int
    share: float
    members: int = 1

    @property
    def total_ns(self) -> int:
        """Busy and idle together."""
        return self.busy_ns + self.idle_ns


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget in words and bars. `title` names what it covers: everything, or one device."""

    title: str
    sentence: str
    wall_ns: int
    busy_ns: int
    idle_ns: int
    bars: tuple[StageBar, ...]
    idle_kinds: tuple[tuple[str, int], ...]
    eager: str | None
    devices: tuple["BudgetView", ...] = ()


def device_name(device: int | None, devices: Sequence[DeviceInfo]) -> str:
    """What a person calls a device: its name and ordinal, `host` for None."""
    if device is None:
        return "host"
    for info in devices:
        if info.device == device:
            place = info.kind if info.ordinal is None else f"{info.kind} {info.ordinal}"
            return f"{visible(info.name)} ({place})" if info.name else place
    return f"device {device}"


def _bars(rows: Sequence[StageBudget], wall_ns: int, top: int) -> tuple[StageBar, ...]:
    ordered = sorted(rows, key=lambda r: (-(r.busy_ns + r.idle_ns), r.stage or ""))
    named = [r for r in ordered if r.stage is not None]
    # A rest of one stage would hide a name to save nothing.
    cut = top if len(named) > top + 1 else len(named)
    bars = [
        StageBar(visible(r.stage or ""), "stage", r.busy_ns, r.idle_ns, r.share)
        for r in named[:cut]
    ]
    rest = named[cut:]
    if rest:
        busy, idle = sum(r.busy_ns for r in rest), sum(r.idle_ns for r in rest)
        ratio = (busy + idle) / wall_ns if wall_ns else 0.0
        label = plural(len(rest), "other stage")
        bars.append(StageBar(label, "rest", busy, idle, ratio, len(rest)))
    bars += [
        StageBar(UNATTRIBUTED, "none", r.busy_ns, r.idle_ns, r.share)
        for r in ordered
        if r.stage is None and (r.busy_ns or r.idle_ns)
    ]
    return tuple(bars)


def _kinds(by_kind: dict[str, int]) -> tuple[tuple[str, int], ...]:
    shown = [(kind.replace("_", " "), ns) for kind, ns in by_kind.items() if ns]
    return tuple(sorted(shown, key=lambda pair: -pair[1]))


def _sentence(wall: int, busy: int, idle: int, over: str) -> str:
    if not wall:
        return f"There is no wall time to split: {over or 'no replay, no batch and no range'}."
    if not over:
        return (
            f"{duration(wall)} of wall time: busy {share(busy / wall)}, idle {share(idle / wall)}."
        )
    return (
        f"{duration(wall)} of wall time over {over}: "
        f"busy {share(busy / wall)}, idle {share(idle / wall)}."
    )


def _outside(budget: Budget) -> str | None:
    """The work outside of the units. Its time is that of copies and memsets, too."""
    eager = budget.eager
    if not eager.kernels and not eager.busy_ns:
        return None
    where = "Outside of these the" if budget.units else "The"
    ran = f"{plural(eager.kernels, 'kernel')} ran then"
    if not eager.kernels:
        ran = "no kernel ran then, only copies or memsets"
    return f"{where} device was busy for {duration(eager.busy_ns)}; {ran}."


def _device_view(part: DeviceBudget, devices: Sequence[DeviceInfo], top: int) -> BudgetView:
    # How many units a device had is not known: that all devices had them all would be wrong.
    return BudgetView(
        title=device_name(part.device, devices),
        sentence=_sentence(part.wall_ns, part.busy_ns, part.idle_ns, ""),
        wall_ns=part.wall_ns,
        busy_ns=part.busy_ns,
        idle_ns=part.idle_ns,
        bars=_bars(part.by_stage, part.wall_ns, top),
        idle_kinds=_kinds(part.idle_by_kind),
        eager=None,
    )


def budget_view(
    budget: Budget | None, devices: Sequence[DeviceInfo] = (), *, top: int = 12
) -> BudgetView | None:
    """Bars of a budget: the `top` longest stages, the rest as one, the unattributed last.

    Args:
        budget: the budget, None where no input could carry one.
        devices: to name the devices; a part a device is given only where there are several.
        top: bars of single stages at most (one more where that leaves no rest).
    """
    if budget is None:
        return None
    over = plural(budget.units, *_UNITS[budget.scope]) if budget.units else ""
    parts = budget.by_device if len(budget.by_device) > 1 else ()
    return BudgetView(
        title="all devices" if parts else "",
        sentence=_sentence(budget.wall_ns, budget.busy_ns, budget.idle_ns, over),
        wall_ns=budget.wall_ns,
        busy_ns=budget.busy_ns,
        idle_ns=budget.idle_ns,
        bars=_bars(budget.by_stage, budget.wall_ns, top),
        idle_kinds=_kinds(budget.idle_by_kind),
        eager=_outside(budget),
        devices=tuple(_device_view(part, devices, top) for part in parts),
    )
