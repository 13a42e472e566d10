# SPDX-License-Identifier: Apache-2.0
"""What a person must read before the numbers of an nsys export."""

from pathlib import Path
from typing import Final

import numpy as np

from graphtrace.ingest.nsys_host import Calls
from graphtrace.ingest.nsys_replays import Replayed
from graphtrace.ingest.nsys_tables import Raw
from graphtrace.ingest.nsys_work import KINDS, Work
from graphtrace.ingest.sanity import Quarantine
from graphtrace.model.errors import NoGpuWork

__all__ = ["no_work", "warnings_of"]

_RECORD: Final = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run PROGRAM"
_EXPORT: Final = "nsys export --type sqlite run.nsys-rep"
_OPAQUE: Final = KINDS.index("opaque_replay")


def warnings_of(raw: Raw, work: Work, replayed: Replayed, unseen: int) -> tuple[str, ...]:
    """Sentences on what the export hides or does not carry.

    Args:
        raw: the tables that are there.
        work: device work.
        replayed: its replays.
        unseen: graph launches from which no work was recorded.
    """
    sentences = []
    opaque = int(np.count_nonzero(work.values["kind"] == _OPAQUE))
    if opaque:
        sentences.append(
            f"{_count(opaque, 'graph replay')} recorded as a whole: the device was busy, but the "
            f"kernels inside are not in the export. Record again with them: {_RECORD}"
        )
    if unseen:
        sentences.append(
            f"{_count(unseen, 'CUDA graph')} launched without any work in the export (this nsys "
            "records no replay unless it records its nodes, or recording stopped first): the "
            f"device looks idle there and was not. Record again: {_RECORD}"
        )
    unnamed = int(np.count_nonzero(~work.known("node")[work.launches.first])) - opaque
    if unnamed:
        sentences.append(
            f"{_count(unnamed, 'graph replay')} recorded without ids of the nodes: their kernels "
            f"are counted and stay without a stage. Record again with them: {_RECORD}"
        )
    nodes = len(replayed.begin) > opaque + unnamed
    if nodes and (raw.node_events is None or not raw.node_events.rows):
        sentences.append(
            "The creation of the graph nodes was not recorded, so their stages cannot be found "
            "through it: start the recording before the graphs are captured."
        )
    if raw.nvtx is None:
        sentences.append(
            "There is no table NVTX_EVENTS: NVTX was not recorded, or no range was opened. "
            f"Stages come from ranges; record both: {_RECORD}"
        )
    if raw.kernels is None:
        sentences.append(
            "There is no table CUPTI_ACTIVITY_KIND_KERNEL: no kernel was recorded on its own."
        )
    if raw.api is None:
        sentences.append(
            "There is no table CUPTI_ACTIVITY_KIND_RUNTIME: without API calls neither launches nor "
            f"the stages of eager kernels can be found. Record them: {_RECORD}"
        )
    if raw.gpus is None or not raw.gpus.rows:
        sentences.append(
            "There is no table TARGET_INFO_GPU: the number of SMs and the size of the L2 cache are "
            "not known."
        )
    return tuple(sentences)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun} was" if number == 1 else f"{number:,} {noun}s were"


def no_work(
    path: Path, version: str | None, raw: Raw, calls: Calls | None, quarantine: Quarantine
) -> NoGpuWork:
    """The error of an export that is whole and has no kernel, no copy and no replay."""
    return NoGpuWork(
        f"{path} holds no GPU work.",
        " ".join(_reasons(version, raw, calls, quarantine)),
        f"Record the part that uses the GPU, then export it: {_RECORD} && {_EXPORT}",
    )


def _reasons(
    version: str | None, raw: Raw, calls: Calls | None, quarantine: Quarantine
) -> list[str]:
    writer = "of nsys" if version is None else f"of nsys {version}"
    if raw.kernels is None:
        reasons = [
            f"It is a whole export {writer}, but has no table CUPTI_ACTIVITY_KIND_KERNEL: "
            "CUDA was not traced, or no kernel ran while it was."
        ]
    else:
        reasons = [f"It is a whole export {writer}, but its kernel table has no usable row."]
    refused = sum(n for (table, _), n in quarantine.counts.items() if table == "activities")
    if refused:
        reasons.append(f"It has {refused:,} rows of device work that cannot be true.")
    launches = 0 if calls is None else int(np.count_nonzero(calls.graph_launch))
    if launches:
        reasons.append(
            f"{_count(launches, 'CUDA graph')} launched, but this nsys leaves no trace of a replay "
            "unless it records its nodes."
        )
    beside = [
        f"{frame.rows:,} {noun}{'' if frame.rows == 1 else 's'}"
        for frame, noun in (
            (raw.api, "CUDA API call"),
            (raw.sets, "memset"),
            (raw.nvtx, "NVTX range"),
        )
        if frame is not None and frame.rows
    ]
    if beside:
        reasons.append(f"Beside that it has {' and '.join(beside)}, which say nothing of kernels.")
    return reasons
