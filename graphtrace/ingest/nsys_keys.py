# SPDX-License-Identifier: Apache-2.0
"""Processes and devices of an nsys export, and their keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_columns import Frame
from graphtrace.ingest.nsys_tables import Raw, process_of
from graphtrace.model.arrays import encode, make_table, numbers, strings

__all__ = ["Keys", "device_keys", "device_table", "index_processes", "process_table"]

_PID_BITS: Final = 24
_MACHINE_MASK: Final = ~((1 << 48) - 1)
"""Bits of a global id that say the machine: hardware (63-56) and virtual machine (55-48)."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Global process ids by process key, and devices by device key.

    Attributes:
        processes: sorted global process ids; the key of a process is its position.
        devices: facts a device, in order of key.
        device_of: device key by (process key, device ordinal).
        warnings: sentences on what could not be known.
    """

    processes: npt.NDArray[np.int64]
    devices: tuple["Device", ...] = ()
    device_of: tuple[tuple[int, int, int], ...] = ()
    warnings: tuple[str, ...] = ()

    def process(self, global_pid: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Process keys of global process ids, all of which must be known."""
        return np.searchsorted(self.processes, global_pid).astype(np.int32)

    def device(
        self, process: npt.NDArray[np.int32], ordinal: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """Device keys by process key and device ordinal, all of which must be known."""
        keys = np.zeros(len(process), dtype=np.int32)
        for owner, number, key in self.device_of:
            keys[(process == owner) & (ordinal == number)] = key
        return keys


@dataclass(frozen=True, slots=True)
class Device:
    """A device: the ordinal that a process saw, and its row of `TARGET_INFO_GPU` or None."""

    ordinal: int
    row: int | None


def index_processes(raw: Raw) -> npt.NDArray[np.int64]:
    """Sorted global ids of the processes that have a row; the export's own list names many more."""
    seen = [frame.distinct("globalPid") for frame in raw.activity_frames()]
    threads = (raw.api, raw.nvtx, raw.node_events, raw.graph_events)
    seen += [process_of(f.distinct("globalTid")) for f in threads if f is not None]
    return np.unique(np.concatenate(seen)) if seen else np.zeros(0, dtype=np.int64)


def process_table(processes: npt.NDArray[np.int64]) -> pa.Table:
    """The model's table of processes."""
    pids = (processes >> _PID_BITS) & 0xFFFFFF
    columns = {
        "process": np.arange(len(processes)),
        "source": np.zeros(len(processes)),
        "pid": pids,
    }
    return make_table("processes", len(processes), columns)


def device_keys(raw: Raw, processes: npt.NDArray[np.int64]) -> Keys:
    """Find out which devices there are.

    An ordinal is a process's own numbering (CUDA_VISIBLE_DEVICES). Where the export maps it to a
    GPU the GPU is the device; else equal ordinals on one machine are taken for one device, and two
    processes with one ordinal are named in a warning.
    """
    finder = _Finder(raw)
    found: dict[tuple[int, str, int], int] = {}
    devices: list[Device] = []
    members: list[tuple[int, int, int]] = []
    unsure: dict[int, set[int]] = {}
    for process, ordinal in _pairs(raw, processes):
        machine = int(processes[process]) & _MACHINE_MASK
        row, sure = finder.find(int(processes[process]), ordinal)
        identity = (machine, "ordinal", ordinal) if row is None else (machine, "row", row)
        key = found.setdefault(identity, len(devices))
        if key == len(devices):
            devices.append(Device(ordinal, row))
        members.append((process, ordinal, key))
        if not sure:
            unsure.setdefault(key, set()).add(process)
    shared = sorted(devices[key].ordinal for key, owners in unsure.items() if len(owners) > 1)
    warnings = tuple(
        f"Several processes used a device {ordinal}; the export does not say whether it is one GPU "
        "(CUDA_VISIBLE_DEVICES may differ), and it is counted as one."
        for ordinal in shared
    )
    return Keys(processes, tuple(devices), tuple(members), warnings)


def _pairs(raw: Raw, processes: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    pairs: set[tuple[int, int]] = set()
    for frame in raw.activity_frames():
        pids, ordinals = frame.get("globalPid"), frame.get("deviceId")
        if pids.strides == ordinals.strides == (0,):
            pids, ordinals = pids[:1], ordinals[:1]
        process = np.searchsorted(processes, pids)
        # An ordinal fits 32 bits and a process key far fewer: both fit one number.
        both = np.unique((process << 32) | (ordinals & 0xFFFFFFFF))
        for number in both.tolist():
            ordinal = number & 0xFFFFFFFF
            pairs.add((number >> 32, ordinal - (1 << 32) if ordinal >> 31 else ordinal))
    return sorted(pairs)


class _Finder:
    """Finds the row of `TARGET_INFO_GPU` of a process's device ordinal."""

    def __init__(self, raw: Raw) -> None:
        self.gpus = raw.gpus
        self.links: dict[tuple[int, int], set[int]] = {}
        links = raw.cuda_devices
        if links is not None:
            columns = [links.get(name).tolist() for name in ("pid", "cudaId", "gpuId")]
            for pid, ordinal, gpu in zip(*columns, strict=True):
                self.links.setdefault((pid, ordinal), set()).add(gpu)

    def find(self, global_pid: int, ordinal: int) -> tuple[int | None, bool]:
        """Row, or None, and whether the export itself maps this process's ordinal to it."""
        if self.gpus is None or not self.gpus.rows:
            return None, False
        linked = self.links.get(((global_pid >> _PID_BITS) & 0xFFFFFF, ordinal), set())
        if len(linked) == 1:
            row = self._only("id", linked.pop(), global_pid)
            return row, row is not None
        name = "cuDevice" if self.gpus.known("cuDevice").any() else "id"
        return self._only(name, ordinal, global_pid), False

    def _only(self, name: str, value: int, global_pid: int) -> int | None:
        gpus = self.gpus
        if gpus is None:
            return None
        rows = np.flatnonzero((gpus.get(name) == value) & gpus.known(name))
        machine = global_pid & _MACHINE_MASK
        here = rows[gpus.get("vmId")[rows] == machine]
        # A GPU that several rows describe differently is one that nothing is known of.
        rows = here if len(here) else rows
        return int(rows[0]) if len(rows) == 1 else None


def device_table(devices: Sequence[Device], gpus: Frame | None) -> pa.Table:
    """The model's table of devices, with null facts where the export does not describe one."""
    rows = [device.row for device in devices]

    def number(name: str, kind: pa.DataType) -> pa.Array:
        values = [None if row is None else _number(gpus, name, row) for row in rows]
        valid = np.asarray([value is not None for value in values], dtype=np.bool_)
        return numbers([value or 0 for value in values], kind, valid)

    def text(name: str) -> list[str | None]:
        return [None if row is None else _word(gpus, name, row) for row in rows]

    columns: dict[str, Any] = {
        "device": np.arange(len(devices)),
        "source": np.zeros(len(devices)),
        "kind": encode("gpu" for _ in devices),
        "ordinal": numbers([device.ordinal for device in devices], pa.int32()),
        "name": encode(text("name")),
        "uuid": strings(text("uuid")),
        "pci_bus_id": strings(text("busLocation")),
        "sm_count": number("smCount", pa.int32()),
        "l2_bytes": number("l2CacheSize", pa.int64()),
        "dram_bytes_per_s": number("memoryBandwidth", pa.int64()),
        "cc_major": number("computeMajor", pa.int16()),
        "cc_minor": number("computeMinor", pa.int16()),
        "max_warps_per_sm": number("maxWarpsPerSm", pa.int32()),
    }
    return make_table("devices", len(devices), columns)


_POSITIVE: Final = ("smCount", "l2CacheSize", "memoryBandwidth", "computeMajor", "maxWarpsPerSm")


def _number(gpus: Frame | None, name: str, row: int) -> int | None:
    if gpus is None or not gpus.known(name)[row]:
        return None
    value = int(gpus.get(name)[row])
    # No GPU has none of these: zero stands for "not read".
    absent = value < 0 or (value == 0 and name in _POSITIVE)
    # A compute capability beyond 16 bits is no compute capability.
    return None if absent or (name.startswith("compute") and value >= 1 << 15) else value


def _word(gpus: Frame | None, name: str, row: int) -> str | None:
    if gpus is None or not gpus.known(name)[row]:
        return None
    return gpus.words[name][int(gpus.get(name)[row])]
