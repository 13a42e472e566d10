# SPDX-License-Identifier: Apache-2.0
"""What both forms of Nsight Compute's output say of launches and devices, by metric name."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.ncu_metrics import Facts
from graphtrace.model.arrays import encode, make_table, numbers, strings

__all__ = ["LAUNCH", "WANTED", "devices_of", "launch_columns", "whole"]

_AXES: Final = "xyz"
_DEVICE: Final = "device__attribute_"
_ORDINAL: Final = f"{_DEVICE}device_index"
_PCI: Final = tuple(f"{_DEVICE}pci_{part}_id" for part in ("domain", "bus", "device"))
LAUNCH: Final = {
    **{f"grid_{axis}": f"launch__grid_dim_{axis}" for axis in _AXES},
    **{f"block_{axis}": f"launch__block_dim_{axis}" for axis in _AXES},
    "context": "launch__context_id",
    "stream": "launch__stream_id",
    "duration_ns": "gpu__time_duration.sum",
    "passes": "profiler__replayer_passes",
}
_DEVICE_NUMBERS: Final = {
    "ordinal": _ORDINAL,
    "sm_count": f"{_DEVICE}multiprocessor_count",
    "l2_bytes": f"{_DEVICE}l2_cache_size",
    "cc_major": f"{_DEVICE}compute_capability_major",
    "cc_minor": f"{_DEVICE}compute_capability_minor",
    "max_warps_per_sm": f"{_DEVICE}max_warps_per_multiprocessor",
}
_MEMORY_CLOCK: Final = f"{_DEVICE}memory_clock_rate"
_BUS_WIDTH: Final = f"{_DEVICE}global_memory_bus_width"
_NAME: Final = f"{_DEVICE}display_name"
WANTED: Final = (
    *LAUNCH.values(),
    *_DEVICE_NUMBERS.values(),
    *_PCI,
    _MEMORY_CLOCK,
    _BUS_WIDTH,
    _NAME,
    "launch__device_id",
)
_INT_LIMITS: Final = {pa.int16(): 2**15, pa.int32(): 2**31, pa.int64(): 2**63}


def devices_of(facts: Sequence[Facts]) -> tuple[list[int | None], pa.Table]:
    """Device key of each result, and the table `devices`."""
    rows: dict[tuple[object, ...], int] = {}
    first: list[Facts] = []
    keys: list[int | None] = []
    for fact in facts:
        identity = tuple(fact.get(name) for name in (_ordinal_name(fact), _NAME, *_PCI))
        if all(part is None for part in identity):
            keys.append(None)
            continue
        if identity not in rows:
            rows[identity] = len(rows)
            first.append(fact)
        keys.append(rows[identity])
    kinds = {"sm_count": pa.int32(), "ordinal": pa.int32(), "max_warps_per_sm": pa.int32()}
    kinds |= {"cc_major": pa.int16(), "cc_minor": pa.int16()}
    columns = {
        column: whole(
            [f.get(_ordinal_name(f) if column == "ordinal" else metric) for f in first],
            kinds.get(column, pa.int64()),
        )
        for column, metric in _DEVICE_NUMBERS.items()
    }
    table = make_table(
        "devices",
        len(first),
        {
            "device": np.arange(len(first)),
            "source": np.zeros(len(first)),
            "kind": encode("gpu" for _ in first),
            "name": encode(_text(f, _NAME) for f in first),
            "pci_bus_id": strings(_pci(f) for f in first),
            "dram_bytes_per_s": whole([_dram_bytes_per_s(f) for f in first], pa.int64()),
            **columns,
        },
    )
    return keys, table


def _ordinal_name(fact: Facts) -> str:
    return _ORDINAL if _ORDINAL in fact else "launch__device_id"


def _text(fact: Facts, name: str) -> str | None:
    value = fact.get(name)
    return value if isinstance(value, str) and re.search(r"\S", value) else None


def _pci(fact: Facts) -> str | None:
    parts = [fact.get(name) for name in _PCI]
    whole = [part for part in parts if isinstance(part, int)]
    if len(whole) != len(parts):
        return None
    domain, bus, device = whole
    return f"{domain:08x}:{bus:02x}:{device:02x}.0"


def _dram_bytes_per_s(fact: Mapping[str, float | int | str]) -> int | None:
    """Peak DRAM bandwidth: two transfers a cycle of the memory clock (kHz) over the bus (bits).

    The formula of NVIDIA's device query sample; 288 GB/s for a RTX 4060 Ti, 1935 GB/s for an
    A100 80 GB PCIe, as their data sheets say.
    """
    clock, width = fact.get(_MEMORY_CLOCK), fact.get(_BUS_WIDTH)
    if not isinstance(clock, int) or not isinstance(width, int) or not clock or not width:
        return None
    return 2 * clock * 1000 * width // 8


def launch_columns(facts: Sequence[Facts]) -> dict[str, pa.Array]:
    """Columns of `ncu_results` that metrics give: launch shape, stream, duration, passes."""
    narrow = {"context": pa.int32(), "passes": pa.int32()}
    return {
        column: whole([f.get(metric) for f in facts], narrow.get(column, pa.int64()))
        for column, metric in LAUNCH.items()
    }


def whole(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Integers of a column; null where there is none or it does not fit."""
    limit = _INT_LIMITS[kind]
    rounded = [round(v) if isinstance(v, int | float) else None for v in values]
    valid: npt.NDArray[np.bool_] = np.array(
        [v is not None and 0 <= v < limit for v in rounded], dtype=np.bool_
    )
    data = [v if ok else 0 for v, ok in zip(rounded, valid, strict=True)]
    return numbers(np.array(data, dtype=np.int64), kind, valid)
