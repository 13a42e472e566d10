# SPDX-License-Identifier: Apache-2.0
"""Tables of nsys SQLite exports, column by column as three releases write them."""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DIALECTS", "Declared", "Dialect", "DialectName"]

DialectName = Literal["2022", "2025", "2026"]
Declared = tuple[tuple[str, str], ...]
"""Columns of a table in order: name, and type with its constraint."""

_TYPES: Final = {"i": "INTEGER", "t": "TEXT", "r": "REAL"}


def _table(text: str) -> Declared:
    """Columns from words: a name, then i, t or r for its type, then ! where null is refused."""
    columns = []
    for word in text.split():
        name, _, kind = word.partition(":")
        code, needed = (kind or "i").rstrip("!") or "i", kind.endswith("!")
        columns.append((name, _TYPES[code] + (" NOT NULL" if needed else "")))
    return tuple(columns)


_GREEN: Final = "greenContextId"
_PLACE: Final = "start:! end:! deviceId:! contextId:! {green} streamId:! correlationId globalPid"
_KERNEL: Final = (
    _PLACE + " demangledName:! shortName:! mangledName launchType cacheConfig registersPerThread:! "
    "gridX:! gridY:! gridZ:! blockX:! blockY:! blockZ:! staticSharedMemory:! "
    "dynamicSharedMemory:! localMemoryPerThread:! localMemoryTotal:! gridId:! "
    "sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
)
_KERNEL_2026: Final = (
    " qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ "
    "clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters "
    "sharedMemoryRequestedPercentage tensorSizeMinusOneElements:t!"
)
_MEMCPY: Final = (
    _PLACE + " bytes:! copyKind:! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
    "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress"
)
_MEMSET: Final = _PLACE + " value:! bytes:! graphNodeId memKind"
_RUNTIME: Final = (
    "start:! end:! eventClass:! globalTid correlationId nameId:! returnValue:! callchainId"
)
_NVTX: Final = (
    "start:! end eventType:! rangeId category color text:t globalTid endGlobalTid textId domainId "
    "uint64Value int64Value doubleValue:r uint32Value int32Value floatValue:r jsonTextId jsonText:t"
)
_EVENT: Final = "start:! end:! eventClass:! globalTid nameId:! "
_NODE_EVENT: Final = _EVENT + "graphNodeId:! originalGraphNodeId"
_GRAPH_EVENT: Final = _EVENT + "graphId originalGraphId graphExecId"
_GRAPH_TRACE: Final = _PLACE + " graphId:! graphExecId:!"
_GPU: Final = (
    "vmId:! id:! name:t busLocation:t isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate "
    "smCount pwGpuId uuid:t luid chipName:t cuDevice ctxswDevPath:t ctrlDevPath:t revision "
    "nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin "
    "maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm "
    "maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY "
    "maxGridDimZ computeMajor computeMinor smMajor smMinor"
)
_GPU_METRICS: Final = "timestamp:! typeId:! metricId:! value:!"
_METRIC_NAMES: Final = "typeId:! sourceId:! typeName:t! metricId:! metricName:t!"
_META: Final = "name:t! value:t"
_SESSION: Final = "utcEpochNs utcTime:t localTime:t"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one release writes.

    Attributes:
        version: release whose schema this is.
        schema_version: its own number of that schema.
        meta: table with the record of the export.
        node_events: table with the creation and cloning of graph nodes.
        tables: columns by table.
    """

    version: str
    schema_version: str
    meta: str
    node_events: str
    tables: dict[str, Declared]

    @property
    def graph_trace(self) -> bool:
        """Whether a replay traced as a whole leaves a row."""
        return "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in self.tables


def _common(green: str) -> dict[str, Declared]:
    texts = {
        "CUPTI_ACTIVITY_KIND_MEMSET": _MEMSET,
        "CUPTI_ACTIVITY_KIND_RUNTIME": _RUNTIME,
        "TARGET_INFO_GPU": _GPU,
        "PROCESSES": "globalPid pid name:t",
        "ANALYSIS_DETAILS": "globalVid:! duration:! startTime:! stopTime:!",
    }
    tables = {name: _table(text.format(green=green)) for name, text in texts.items()}
    # The primary key is the row id, as in real exports.
    tables["StringIds"] = (("id", "INTEGER NOT NULL PRIMARY KEY"), ("value", "TEXT NOT NULL"))
    return tables


def _old() -> dict[str, Declared]:
    return _common("") | {
        "CUPTI_ACTIVITY_KIND_KERNEL": _table(_KERNEL.format(green="")),
        "CUPTI_ACTIVITY_KIND_MEMCPY": _table(_MEMCPY.format(green="")),
        "NVTX_EVENTS": _table(_NVTX),
        "CUDA_GRAPH_EVENTS": _table(_NODE_EVENT),
        "TARGET_INFO_SESSION_START_TIME": _table(_SESSION),
        "EXPORT_META_DATA": _table(_META),
    }


def _new(kernel: str, session: str, cuda_device: str) -> dict[str, Declared]:
    return _common(_GREEN) | {
        "CUPTI_ACTIVITY_KIND_KERNEL": _table(_KERNEL.format(green=_GREEN) + kernel),
        "CUPTI_ACTIVITY_KIND_MEMCPY": _table(_MEMCPY.format(green=_GREEN) + " copyCount"),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _table(_GRAPH_TRACE.format(green=_GREEN)),
        "NVTX_EVENTS": _table(_NVTX + " binaryData:t"),
        "CUDA_GRAPH_EVENTS": _table(_GRAPH_EVENT),
        "CUDA_GRAPH_NODE_EVENTS": _table(_NODE_EVENT),
        "TARGET_INFO_SESSION_START_TIME": _table(_SESSION + session),
        "TARGET_INFO_CUDA_DEVICE": _table("gpuId cudaId:! pid:!" + cuda_device),
        "GPU_METRICS": _table(_GPU_METRICS),
        "TARGET_INFO_GPU_METRICS": _table(_METRIC_NAMES),
        "META_DATA_EXPORT": _table(_META),
    }


DIALECTS: Final[dict[DialectName, Dialect]] = {
    "2022": Dialect("2022.4.2.1", "3.0.0", "EXPORT_META_DATA", "CUDA_GRAPH_EVENTS", _old()),
    "2025": Dialect(
        "2025.3.1.90", "3.20.2", "META_DATA_EXPORT", "CUDA_GRAPH_NODE_EVENTS", _new("", "", "")
    ),
    "2026": Dialect(
        "2026.2.1.210",
        "3.25.0",
        "META_DATA_EXPORT",
        "CUDA_GRAPH_NODE_EVENTS",
        _new(_KERNEL_2026, " systemClockNs", " uuid:t numMultiprocessors"),
    ),
}
"""Dialects by name.

2022 calls the table of node events CUDA_GRAPH_EVENTS and has no trace of whole replays; from 2025
that name means events of graphs, and nodes have a table of their own; 2026 adds the graph, the
cluster and the tensor descriptor of a kernel.
"""
