# SPDX-License-Identifier: Apache-2.0
"""Rows of stages, steps, devices and refused rows, from the tables of an attributed trace."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.analysis.kernels import KEPT
from graphtrace.attribute.keys import pack, sum_by
from graphtrace.model.analysis import BatchRow, DeviceInfo, Quarantined, StageRow
from graphtrace.model.arrays import as_numpy, codes_of, few, valid_of
from graphtrace.model.trace import TableSet

__all__ = ["batch_rows", "device_rows", "quarantine_rows", "stage_paths", "stage_rows"]


def stage_paths(tables: TableSet) -> dict[int, str]:
    """Path of each stage, by key."""
    stages = tables.get("stages")
    keys = as_numpy(stages.column("stage")).tolist()
    return dict(zip(keys, stages.column("path").to_pylist(), strict=True))


def stage_rows(tables: TableSet, paths: dict[int, str]) -> tuple[StageRow, ...]:
    """Stages with work of their own, the busiest first; the unattributed rest has no row."""
    times = tables.get("stage_times")
    busy, kernels = as_numpy(times.column("busy_ns")), as_numpy(times.column("kernels"))
    known = valid_of(times.column("stage")) & ((busy > 0) | (kernels > 0))
    rows = np.flatnonzero(known)
    if not len(rows):
        return ()
    stage = as_numpy(times.column("stage"))[rows].astype(np.int64)
    scopes, _ = codes_of(times.column("scope"))
    unit = as_numpy(times.column("unit"))[rows]
    keys, group = few(stage)
    first, (busy_of, kernels_of) = sum_by(group.astype(np.int64), busy[rows], kernels[rows])
    seen, _ = sum_by(pack(group, scopes[rows], unit))
    units = np.bincount(group[seen], minlength=len(first))
    made = [
        StageRow(
            stage=paths[int(key)],
            kernels=int(kernels_of[i]),
            replays=int(units[i]),
            busy_ns=int(busy_of[i]),
        )
        for i, key in enumerate(keys)
    ]
    return tuple(sorted(made, key=lambda row: (-row.busy_ns, row.stage)))


def batch_rows(tables: TableSet) -> tuple[tuple[BatchRow, ...] | None, int]:
    """Steps in their order, and how many were left out; None where no input could carry them."""
    if not tables.has("batches"):
        return None, 0
    batches = tables.get("batches")
    begin, wall = _span(batches)
    longest = np.argsort(-wall, kind="stable")[:KEPT]
    chosen = longest[np.argsort(begin[longest], kind="stable")].tolist()
    labels, words = codes_of(batches.column("label"))
    valid, captured = _optional(batches, "valid_tokens"), _optional(batches, "captured_tokens")
    samples = _lengths(batches.column("sizes"))
    made = tuple(
        BatchRow(
            label=words[labels[row]] if labels[row] >= 0 else None,
            valid_tokens=valid[row],
            captured_tokens=captured[row],
            samples=samples[row],
            wall_ns=int(wall[row]),
        )
        for row in chosen
    )
    return made, batches.num_rows - len(made)


def _span(table: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    begin = as_numpy(table.column("begin_ns"))
    return begin, as_numpy(table.column("end_ns")) - begin


def _optional(table: pa.Table, name: str) -> list[int | None]:
    column = table.column(name)
    pairs = zip(as_numpy(column).tolist(), valid_of(column).tolist(), strict=True)
    return [value if known else None for value, known in pairs]


def _lengths(column: pa.ChunkedArray) -> list[int | None]:
    """Number of items of each list; None where it is null."""
    lengths: list[int | None] = []
    for chunk in column.chunks:
        size = len(chunk) + 1
        offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[chunk.offset :][:size]
        pairs = zip(np.diff(offsets).tolist(), valid_of(chunk).tolist(), strict=True)
        lengths.extend(value if known else None for value, known in pairs)
    return lengths


def device_rows(tables: TableSet) -> tuple[DeviceInfo, ...]:
    """Devices as far as the inputs describe them."""
    devices = tables.get("devices")
    kinds, kind_words = codes_of(devices.column("kind"))
    names, name_words = codes_of(devices.column("name"))
    numbers = {
        name: _optional(devices, name)
        for name in ("ordinal", "sm_count", "l2_bytes", "dram_bytes_per_s", "cc_major", "cc_minor")
    }
    return tuple(
        DeviceInfo(
            device=key,
            kind=kind_words[kinds[row]],
            ordinal=numbers["ordinal"][row],
            name=name_words[names[row]] if names[row] >= 0 else None,
            sm_count=numbers["sm_count"][row],
            l2_bytes=numbers["l2_bytes"][row],
            dram_bytes_per_s=numbers["dram_bytes_per_s"][row],
            compute_capability=_capability(numbers["cc_major"][row], numbers["cc_minor"][row]),
        )
        for row, key in enumerate(as_numpy(devices.column("device")).tolist())
    )


def _capability(major: int | None, minor: int | None) -> str | None:
    return None if major is None or minor is None else f"{major}.{minor}"


def quarantine_rows(tables: TableSet) -> tuple[Quarantined, ...]:
    """Refused rows, counted by table and reason, the most first."""
    refused = tables.get("quarantine")
    places, place_words = codes_of(refused.column("table"))
    reasons, reason_words = codes_of(refused.column("reason"))
    counts: dict[tuple[str, str], int] = {}
    for row, count in enumerate(as_numpy(refused.column("count")).tolist()):
        where = (place_words[places[row]], reason_words[reasons[row]])
        counts[where] = counts.get(where, 0) + count
    made = [Quarantined(table, reason, count) for (table, reason), count in counts.items()]
    return tuple(sorted(made, key=lambda row: (-row.count, row.table, row.reason)))
