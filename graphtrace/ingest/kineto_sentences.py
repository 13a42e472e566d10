# SPDX-License-Identifier: Apache-2.0
"""What a person must read before the numbers of a trace of the PyTorch profiler."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphtrace.ingest.kineto_tables import Replayed
from graphtrace.ingest.kineto_work import Parts
from graphtrace.ingest.sanity import Quarantine
from graphtrace.model.errors import InputUnsupported, NoGpuWork

__all__ = ["no_trace", "no_work", "warnings_of"]

_RECORD: Final = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) and "
    "export_chrome_trace"
)


def warnings_of(
    parts: Parts, replayed: Replayed, facts: Mapping[int, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Sentences on what the trace hides or does not carry.

    Args:
        parts: its rows.
        replayed: the replays of the work.
        facts: what is known of the devices.
    """
    work, sentences = parts.work, []
    if replayed.unnamed:
        sentences.append(
            f"{_count(replayed.unnamed, 'graph replay')} recorded without ids of the nodes: "
            "their kernels are counted and stay without a stage."
        )
    if replayed.unseen:
        sentences.append(
            f"{_count(replayed.unseen, 'graph')} launched without any work in the trace: recording "
            "stopped first, or the graph is empty. The device may look idle there and was not."
        )
    if not parts.calls.rows:
        sentences.append(
            "There is no call of the CUDA or HIP runtime in the trace: without calls neither "
            "graph launches nor the stages of eager kernels can be found. Record them: "
            f"{_RECORD}"
        )
    if not (parts.ranges.get("step") == 0).any():
        sentences.append(
            "There is no annotation in the trace. Stages come from them: open "
            "torch.profiler.record_function around the parts of the model."
        )
    times = (work.get("begin"), work.get("end"))
    if all((time % 1000 == 0).all() for time in times):
        sentences.append(
            "All times are whole microseconds, as older versions of the profiler wrote them: "
            "short kernels may show as 0 or as 1 µs."
        )
    ordinals = np.unique(work.get("device")).tolist()
    if any(facts.get(ordinal, {}).get("sm_count") is None for ordinal in ordinals):
        sentences.append("The trace does not say how many SMs the device has.")
    if parts.unsure:
        sentences.append(
            f"Several processes are in the trace, and for {parts.unsure:,} rows of device work it "
            "does not say which one launched them; they are counted for an unknown process."
        )
    sentences += _shared(parts, ordinals)
    return tuple(sentences)


def _shared(parts: Parts, ordinals: list[int]) -> list[str]:
    device, process = parts.work.get("device"), parts.work.get("process")
    return [
        f"Several processes used a device {ordinal}; the trace does not say whether it is one GPU "
        "(CUDA_VISIBLE_DEVICES may differ), and it is counted as one."
        for ordinal in ordinals
        if len(np.unique(process[device == ordinal])) > 1
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun} was" if number == 1 else f"{number:,} {noun}s were"


def no_work(path: Path, parts: Parts, quarantine: Quarantine) -> NoGpuWork:
    """The error of a trace that is whole and has no kernel and no copy."""
    reasons = [
        "It is a whole trace of the PyTorch profiler, but has no usable kernel and no copy: the "
        "GPU was not recorded, or not used."
    ]
    refused = sum(n for (table, _), n in quarantine.counts.items() if table == "activities")
    if refused:
        reasons.append(f"It has {refused:,} rows of device work that cannot be true.")
    beside = [
        f"{frame.rows:,} {noun}{'' if frame.rows == 1 else 's'}"
        for frame, noun in (
            (parts.calls, "runtime call"),
            (parts.work, "memset"),
            (parts.ranges, "annotation"),
        )
        if frame.rows
    ]
    if beside:
        reasons.append(f"Beside that it has {' and '.join(beside)}, which say nothing of kernels.")
    return NoGpuWork(
        f"{path} holds no GPU work.",
        " ".join(reasons),
        f"Record the part that uses the GPU, with the GPU: {_RECORD}.",
    )


def no_trace(path: Path, *, listed: bool) -> InputUnsupported:
    """The error of JSON that is not of this profiler.

    Args:
        path: the file.
        listed: whether it has a list of events at all.
    """
    if listed:
        return InputUnsupported(
            f"{path} is a Chrome trace, but not of the PyTorch profiler.",
            "It has no kernel, no runtime call, and neither schemaVersion nor deviceProperties, "
            "which every version since 2021 writes.",
            f"Record with {_RECORD}, and give that file.",
        )
    return InputUnsupported(
        f"{path} is JSON, but no trace.",
        "Its top level has no list traceEvents.",
        f"Give the file that torch.profiler's export_chrome_trace wrote ({_RECORD}).",
    )
