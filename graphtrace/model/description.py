# SPDX-License-Identifier: Apache-2.0
"""What one input holds and what it lacks: what `graphtrace info` says. Absent is None, never 0."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphtrace.model.analysis import DeviceInfo, Quarantined
from graphtrace.model.trace import InputInfo

if TYPE_CHECKING:
    from graphtrace.model.recording import Origin

__all__ = [
    "Description",
    "Domain",
    "Gap",
    "GraphCounts",
    "NcuCounts",
    "NcuMode",
    "ProcessInfo",
    "Span",
    "StageInfo",
]


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process by its id and its rank in a distributed run; never by its host."""

    pid: int | None
    rank: int | None


@dataclass(frozen=True, slots=True)
class Span:
    """First and last instant of anything in the input, ns on its own clock."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """CUDA graphs and what was launched of them.

    Attributes:
        graphs: captured graphs; None where there are replays and none says of which graph.
        instantiated: executable graphs; None likewise.
        replays: launches.
        opaque: those of which no kernel is in the input.
        kernels: least and most kernels of one replay, over the other ones; None without such.
    """

    graphs: int | None
    instantiated: int | None
    replays: int
    opaque: int
    kernels: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Domain:
    """Ranges and marks of one NVTX domain; the default one has no name."""

    name: str
    ranges: int
    marks: int


@dataclass(frozen=True, slots=True)
class NcuMode:
    """One way in which results of Nsight Compute were measured, and how many were.

    `passes` is the least and the most of one result, None where they are not known.
    """

    cache: str
    clock: str
    replay_mode: str
    results: int
    passes: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class NcuCounts:
    """Results of Nsight Compute and the different metrics that they have."""

    results: int
    metrics: int
    modes: tuple[NcuMode, ...]


@dataclass(frozen=True, slots=True)
class StageInfo:
    """A stage that the input names, and where the name comes from: module, code, nvtx."""

    stage: str
    origin: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that the input lacks.

    Attributes:
        what: what it is, a few words.
        why: why it matters, in sentences.
        command: what to run or call to get it; None where nothing can be run.
    """

    what: str
    why: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """One input.

    Attributes:
        info: what it is and who wrote it.
        size: bytes on the disk; None where they cannot be counted.
        origin: the file that a recording was exported from.
        devices: as far as the input describes them.
        processes: those that were recorded.
        span: None where nothing has a time.
        tables: rows of each table; None where the input cannot carry it.
        activities: device work by kind.
        graphs: None where the input cannot carry replays.
        nvtx: ranges by domain, most first; None where the input cannot carry them.
        ncu: None where the input cannot carry results of Nsight Compute.
        stages: those that the input names itself; None where they are found by analyzing only.
        quarantine: rows refused, by table and reason.
        warnings: what a person must read before the figures and `missing` does not say.
        missing: what is not in the input, and how to collect it.
        command_lines: of the profiler, as the input keeps them; None unless they were asked for.
    """

    info: InputInfo
    size: int | None
    origin: "Origin | None" = None
    devices: tuple[DeviceInfo, ...] = ()
    processes: tuple[ProcessInfo, ...] = ()
    span: Span | None = None
    tables: Mapping[str, int | None] = field(default_factory=dict)
    activities: Mapping[str, int] | None = None
    graphs: GraphCounts | None = None
    nvtx: tuple[Domain, ...] | None = None
    ncu: NcuCounts | None = None
    stages: tuple[StageInfo, ...] | None = None
    quarantine: tuple[Quarantined, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: tuple[Gap, ...] = ()
    command_lines: tuple[str, ...] | None = None
