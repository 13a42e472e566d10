# SPDX-License-Identifier: Apache-2.0
"""GPU metrics that nsys sampled (`--gpu-metrics-devices`), as the model's table of counters.

A row of `GPU_METRICS` is one metric of one GPU at one time. The lowest byte of `typeId` is the GPU;
`TARGET_INFO_GPU_METRICS` has the names by type and metric. Names differ between chips and releases
and end with their unit in brackets, as in `SMs Active [Throughput %]`.

Proved on synthetic exports only: none of the real ones at hand has these tables.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_columns import Column, Frame, fetch
from graphtrace.ingest.nsys_export import Export
from graphtrace.ingest.nsys_keys import Keys
from graphtrace.ingest.sanity import Quarantine
from graphtrace.model.arrays import dictionary, make_table, narrow, numbers

__all__ = ["Samples", "counter_table", "read_samples"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_TABLE: Final = "GPU_METRICS"
_SAMPLE: Final = (
    Column("timestamp", needed=True),
    Column("typeId", needed=True),
    Column("metricId", needed=True),
    Column("value", needed=True, real=True),
)
_NAME: Final = (
    Column("typeId"),
    Column("metricId", needed=True),
    Column("metricName", needed=True, text=True),
)
_GPU: Final = 0xFF
_MACHINE: Final = ~((1 << 48) - 1)
_UNIT: Final = re.compile(r"(.*\S)\s*\[([^\[\]]*)\]")
_PERCENT: Final = "%"


@dataclass(frozen=True, slots=True)
class Samples:
    """Believable samples, in the order of the export.

    Attributes:
        time: ns.
        series: which of `keys` each is of.
        value: as sampled.
        keys: type id, name and unit of each series.
    """

    time: Ints
    series: Ints
    value: npt.NDArray[np.float64]
    keys: tuple[tuple[int, str, str], ...]


def read_samples(export: Export, quarantine: Quarantine) -> Samples | None:
    """Read the samples; None where the export has none.

    A percentage outside of 0 to 100, a negative count or clock and a time before the recording are
    refused, never clamped.

    Raises:
        sqlite3.DatabaseError, InputCorrupt: the export is damaged.
    """
    if export.find(_TABLE) is None:
        return None
    if not export.has(_TABLE, *(column.name for column in _SAMPLE)):
        quarantine.add("counters", f"{_TABLE} has columns of its own", 1, "the whole table")
        return None
    frame = fetch(export, _TABLE, _SAMPLE, quarantine, meant_for="counters")
    if frame is None:
        return None
    series, keys = _series(frame, _names(export, quarantine))
    time, value = frame.get("timestamp"), frame.reals["value"]
    percent = np.asarray([unit == _PERCENT for _, _, unit in keys] or [False])[series]
    keep = np.ones(frame.rows, dtype=np.bool_)
    for reason, bad in (
        ("sampled before the recording", time < 0),
        ("time is zero: it was not collected", time == 0),
        ("value is not finite", ~np.isfinite(value)),
        ("percentage outside of 0 to 100", percent & ((value < 0) | (value > 100))),
        ("value is negative", value < 0),
    ):
        rows = np.flatnonzero(bad & keep)
        if len(rows):
            first = rows[np.lexsort((time[rows], value[rows], series[rows]))[0]]
            _, name, _ = keys[int(series[first])]
            sample = f"{name} {float(value[first]):g} at {int(time[first])} ns"
            quarantine.add("counters", reason, len(rows), sample)
            keep[rows] = False
    if keep.all():
        return Samples(time, series, value, keys)
    return Samples(time[keep], series[keep], value[keep], keys)


def _names(export: Export, quarantine: Quarantine) -> dict[tuple[int | None, int], str]:
    """Name by type and metric; by metric alone where the export does not say the type."""
    table = f"TARGET_INFO_{_TABLE}"
    if not export.has(table, "metricId", "metricName"):
        return {}
    frame = fetch(export, table, _NAME, quarantine, meant_for="counters")
    if frame is None:
        return {}
    typed = frame.known("typeId").tolist()
    columns = [frame.get(name).tolist() for name in ("typeId", "metricId", "metricName")]
    words = frame.words["metricName"]
    rows = zip(typed, *columns, strict=True)
    named = {(kind if known else None, n, words[word]) for known, kind, n, word in rows}
    # Of several names the first in order, whatever the order of rows.
    ordered = sorted(named, key=lambda row: (row[0] is not None, row[0] or 0, *row[1:]))
    return {(kind, n): word for kind, n, word in reversed(ordered)}


def _series(
    frame: Frame, names: dict[tuple[int | None, int], str]
) -> tuple[Ints, tuple[tuple[int, str, str], ...]]:
    """Which series each row is of, and type, name and unit of each, in order."""
    types, type_code = np.unique(frame.get("typeId"), return_inverse=True)
    metrics, metric_code = np.unique(frame.get("metricId"), return_inverse=True)
    both, code = np.unique(type_code * max(len(metrics), 1) + metric_code, return_inverse=True)
    found = []
    for pair in both.tolist():
        kind, metric = int(types[pair // len(metrics)]), int(metrics[pair % len(metrics)])
        name = names.get((kind, metric)) or names.get((None, metric)) or f"#{metric}"
        found.append((kind, *_split(name)))
    keys = sorted(set(found))
    place = np.asarray([keys.index(key) for key in found] or [0], dtype=np.int64)
    return (place[code] if frame.rows else code), tuple(keys)


def _split(name: str) -> tuple[str, str]:
    """Name and unit, the name as newer releases spell it."""
    match = _UNIT.fullmatch(name.strip())
    bare, unit = (name.strip(), "") if match is None else match.groups()
    bare = bare.replace(" In Flight", " in Flight")
    if bare == "SM Active":
        bare = "SMs Active"
    return bare, _PERCENT if _PERCENT in unit else unit


def counter_table(
    samples: Samples, keys: Keys, gpus: Frame | None, quarantine: Quarantine
) -> pa.Table:
    """The model's table of counters, in order of time.

    Samples of a GPU that ran none of the work are left out and counted: the trace does not have it.
    """
    devices = [_device(kind, keys, gpus) for kind, _, _ in samples.keys]
    device = np.asarray([-1 if key is None else key for key in devices] or [-1], dtype=np.int64)
    known = device[samples.series] >= 0
    if not known.all():
        pairs = zip(samples.keys, devices, strict=True)
        absent = sorted({kind & _GPU for (kind, _, _), key in pairs if key is None})
        reason = "sampled on a GPU that ran no work"
        count = len(known) - int(np.count_nonzero(known))
        quarantine.add("counters", reason, count, f"GPU {absent[0]}")
    time, series, value = samples.time[known], samples.series[known], samples.value[known]
    order = _order(time, series, value)
    time, series, value = time[order], series[order], value[order]
    words = sorted({name for _, name, _ in samples.keys})
    units = sorted({unit for _, _, unit in samples.keys})
    name_of = np.asarray([words.index(name) for _, name, _ in samples.keys] or [0])
    unit_of = np.asarray([units.index(unit) for _, _, unit in samples.keys] or [0])
    columns = {
        "device": numbers(device[series], pa.int32()),
        "name": dictionary(name_of[series], words),
        "unit": dictionary(unit_of[series], units),
        "time_ns": time,
        "value": numbers(value, pa.float64()),
    }
    return make_table("counters", len(time), columns)


def _order(time: Ints, series: Ints, value: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    order = np.lexsort((narrow(series), time))
    same = np.diff(time[order]) == 0
    twice = same & (np.diff(series[order]) == 0)
    return np.lexsort((value, series, time)) if twice.any() else order


def _device(kind: int, keys: Keys, gpus: Frame | None) -> int | None:
    """Key of the device that a type's samples are of; None where no device or several may be it."""
    gpu = kind & _GPU
    if gpus is None or all(device.row is None for device in keys.devices):
        found = [key for key, device in enumerate(keys.devices) if device.ordinal == gpu]
        return found[0] if len(found) == 1 else None
    rows = {key: device.row for key, device in enumerate(keys.devices) if device.row is not None}
    found = [key for key, row in rows.items() if int(gpus.get("id")[row]) == gpu]
    if len(found) > 1:
        # GPUs of several machines have equal numbers.
        machine = kind & _MACHINE
        found = [key for key in found if int(gpus.get("vmId")[rows[key]]) == machine]
    return found[0] if len(found) == 1 else None
