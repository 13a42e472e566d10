# SPDX-License-Identifier: Apache-2.0
"""What is read of each table of an nsys export, checked cell by cell and time by time.

Dispatch is on the tables and columns that are there, never on a version: names moved between
releases, and one name (`CUDA_GRAPH_EVENTS`) means two different things.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphtrace.ingest.nsys_columns import Column, Frame, Only, fetch
from graphtrace.ingest.nsys_export import Export
from graphtrace.ingest.nsys_nvtx import CATEGORY, DOMAIN, PAYLOADS, payloads
from graphtrace.ingest.sanity import Quarantine, refuse_bad_times

__all__ = ["DIMENSIONS", "PID_MASK", "RANGE_KINDS", "Raw", "process_of", "read_raw"]

PID_MASK: Final = ~0xFFFFFF
"""Bits of a global thread id that say the process: all but the lowest 24 (the thread)."""
RANGE_KINDS: Final = {34: "mark", 65: "mark", 59: "push_pop", 70: "push_pop"} | {
    60: "start_end",
    71: "start_end",
}
"""Kind of range by `eventType`: NVTX and, above 63, its text-file form."""
DIMENSIONS: Final = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
"""Columns of a kernel's launch geometry."""

_ACTIVITY: Final = (
    Column("start", needed=True),
    Column("end", needed=True),
    Column("deviceId", needed=True, bits=32),
    Column("contextId", bits=32),
    Column("streamId", needed=True),
    Column("correlationId"),
    Column("globalPid", needed=True),
)
_KERNEL: Final = (
    *_ACTIVITY,
    Column("demangledName"),
    Column("shortName"),
    *(Column(name, bits=32) for name in DIMENSIONS),
    Column("registersPerThread", bits=32),
    Column("staticSharedMemory", bits=32),
    Column("dynamicSharedMemory", bits=32),
    Column("graphNodeId"),
)
_MEMCPY: Final = (*_ACTIVITY, Column("bytes"), Column("copyKind"), Column("graphNodeId"))
_MEMSET: Final = (*_ACTIVITY, Column("bytes"), Column("graphNodeId"))
_OPAQUE: Final = (*_ACTIVITY, Column("graphId"), Column("graphExecId"))
_API: Final = (
    Column("start", needed=True),
    Column("end", needed=True),
    Column("globalTid", needed=True),
    Column("correlationId"),
    Column("nameId"),
)
_NVTX: Final = (
    Column("start", needed=True),
    Column("end"),
    Column("eventType", needed=True),
    Column("text", text=True),
    Column("globalTid", needed=True),
    Column("endGlobalTid"),
    Column("textId"),
    Column("domainId"),
    Column("category"),
)
_DEFINITION: Final = (
    Column("start"),
    Column("eventType", needed=True),
    Column("text", text=True),
    Column("globalTid", needed=True),
    Column("textId"),
    Column("domainId"),
    Column("category"),
)
_NODE_EVENT: Final = (
    Column("start", needed=True),
    Column("globalTid", needed=True),
    Column("graphNodeId", needed=True),
    Column("originalGraphNodeId"),
)
_GRAPH_EVENT: Final = (
    Column("start"),
    Column("globalTid", needed=True),
    Column("graphId"),
    Column("originalGraphId"),
    Column("graphExecId"),
)
_GPU: Final = (
    Column("vmId"),
    Column("id", needed=True),
    Column("name", text=True),
    Column("busLocation", text=True),
    Column("l2CacheSize"),
    Column("memoryBandwidth"),
    Column("smCount", bits=32),
    Column("uuid", text=True),
    Column("cuDevice"),
    Column("computeMajor", bits=32),
    Column("computeMinor", bits=32),
    Column("maxWarpsPerSm", bits=32),
)
_CUDA_DEVICE: Final = (
    Column("gpuId", needed=True),
    Column("cudaId", needed=True),
    Column("pid", needed=True),
)


@dataclass(frozen=True, slots=True)
class Raw:
    """Rows of an export that passed the checks, table by table; None where a table is absent."""

    kernels: Frame | None
    copies: Frame | None
    sets: Frame | None
    opaque: Frame | None
    api: Frame | None
    nvtx: Frame | None
    domains: Frame | None
    node_events: Frame | None
    graph_events: Frame | None
    gpus: Frame | None
    cuda_devices: Frame | None

    def activity_frames(self) -> tuple[Frame, ...]:
        """Frames of device work that are there."""
        frames = (self.kernels, self.copies, self.sets, self.opaque)
        return tuple(frame for frame in frames if frame is not None)


def process_of(global_tid: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Global process id of a global thread id."""
    return global_tid & np.int64(PID_MASK)


def read_raw(export: Export, quarantine: Quarantine) -> Raw:
    """Read all that is needed of an export.

    Raises:
        InputUnsupported: a table lacks a column that its rows mean nothing without.
        sqlite3.DatabaseError, InputCorrupt: the export is damaged.
    """
    longest = _longest(export, quarantine)

    def activity(table: str, columns: tuple[Column, ...]) -> Frame | None:
        frame = fetch(export, table, columns, quarantine, meant_for="activities")
        return _believable(frame, quarantine, "activities", longest, instant=False)

    opaque = activity("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _OPAQUE)
    api = fetch(export, "CUPTI_ACTIVITY_KIND_RUNTIME", _API, quarantine, meant_for="api_calls")
    nodes = _node_table(export)
    return Raw(
        kernels=_launchable(activity("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL), quarantine),
        copies=activity("CUPTI_ACTIVITY_KIND_MEMCPY", _MEMCPY),
        sets=activity("CUPTI_ACTIVITY_KIND_MEMSET", _MEMSET),
        opaque=_on_device(opaque, quarantine),
        api=_believable(api, quarantine, "api_calls", None),
        nvtx=_ranges(export, quarantine),
        domains=_definitions(export, quarantine),
        node_events=_timed(
            fetch(export, nodes, _NODE_EVENT, quarantine, meant_for="graph_events")
            if nodes
            else None,
            quarantine,
        ),
        graph_events=fetch(
            export, "CUDA_GRAPH_EVENTS", _GRAPH_EVENT, quarantine, meant_for="graphs"
        )
        if export.has("CUDA_GRAPH_EVENTS", "graphId", "graphExecId")
        else None,
        gpus=fetch(export, "TARGET_INFO_GPU", _GPU, quarantine, meant_for="devices"),
        cuda_devices=fetch(
            export, "TARGET_INFO_CUDA_DEVICE", _CUDA_DEVICE, quarantine, meant_for="devices"
        ),
    )


def _node_table(export: Export) -> str | None:
    """The table with a row a node: the new name, else the old one if it is not the new meaning."""
    for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"):
        if export.has(table, "graphNodeId"):
            return table
    return None


def _longest(export: Export, quarantine: Quarantine) -> int | None:
    """Length of the recording, ns, where the export says it."""
    frame = fetch(
        export, "ANALYSIS_DETAILS", [Column("duration")], quarantine, meant_for="activities"
    )
    if frame is None or "duration" not in frame.values:
        return None
    known = frame.get("duration")[frame.known("duration")]
    return int(known.max()) if len(known) and known.max() > 0 else None


def _believable(
    frame: Frame | None,
    quarantine: Quarantine,
    table: str,
    longest: int | None,
    *,
    instant: bool = True,
) -> Frame | None:
    if frame is None:
        return None
    keep = refuse_bad_times(
        quarantine, table, frame.get("start"), frame.get("end"), longest=longest, instant=instant
    )
    return frame if keep.all() else frame.take(keep)


def _launchable(frame: Frame | None, quarantine: Quarantine) -> Frame | None:
    """Kernels whose grid and block have at least one block and thread in each dimension."""
    if frame is None:
        return None
    keep = np.ones(frame.rows, dtype=np.bool_)
    for name in DIMENSIONS:
        if name not in frame.values or not (frame.values[name] < 1).any():
            continue
        bad = keep & frame.known(name) & (frame.get(name) < 1)
        if bad.any():
            lowest = int(frame.get(name)[bad].min())
            reason = f"{name} is not positive"
            quarantine.add("activities", reason, int(np.count_nonzero(bad)), str(lowest))
            keep &= ~bad
    return frame if keep.all() else frame.take(keep)


def _on_device(frame: Frame | None, quarantine: Quarantine) -> Frame | None:
    """Graph traces of a device; CUPTI gives INT_MAX for one that ran on the host."""
    if frame is None:
        return None
    host = frame.get("deviceId") == 2**31 - 1
    quarantine.add("activities", "ran on the host", int(np.count_nonzero(host)), "deviceId INT_MAX")
    return frame.take(~host) if host.any() else frame


def _timed(frame: Frame | None, quarantine: Quarantine) -> Frame | None:
    if frame is None:
        return None
    keep = refuse_bad_times(quarantine, "graph_events", frame.get("start"), frame.get("start"))
    return frame if keep.all() else frame.take(keep)


def _ranges(export: Export, quarantine: Quarantine) -> Frame | None:
    # A wrongly typed event type is let through, so that the row is counted as refused.
    only = Only("eventType", tuple(sorted(RANGE_KINDS)), odd=True)
    wanted = (*_NVTX, *PAYLOADS)
    frame = fetch(export, "NVTX_EVENTS", wanted, quarantine, meant_for="ranges", only=only)
    if frame is None:
        return None
    begin = frame.get("start")
    known = frame.known("end")
    # An open range and a mark end nowhere; only their begin is checked.
    end = np.where(known, frame.get("end"), begin)
    keep = refuse_bad_times(quarantine, "ranges", begin, end)
    return payloads(frame if keep.all() else frame.take(keep), quarantine)


def _definitions(export: Export, quarantine: Quarantine) -> Frame | None:
    """Rows that name domains and categories."""
    if not export.has("NVTX_EVENTS", "eventType"):
        return None
    only = Only("eventType", (CATEGORY, DOMAIN))
    return fetch(export, "NVTX_EVENTS", _DEFINITION, quarantine, meant_for="ranges", only=only)
