# SPDX-License-Identifier: Apache-2.0
"""Reader of `.ncu-rep`, the report of Nsight Compute, through NVIDIA's package `ncu_report`.

The command line, the host, the environment and the program that stand in a report are never
copied to any table.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.ncu_actions import Gathered, gather, nothing_gathered
from graphtrace.ingest.ncu_frames import Report, walk
from graphtrace.ingest.ncu_metrics import Facts
from graphtrace.ingest.ncu_mode import Measured, measured
from graphtrace.ingest.ncu_wire import Damage
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import encode, make_table, numbers, strings
from graphtrace.model.errors import InputCorrupt, InputError, NoGpuWork, ToolMissing
from graphtrace.model.trace import InputInfo, TableSet

__all__ = ["read"]

_AXES: Final = "xyz"
_DEVICE: Final = "device__attribute_"
_ORDINAL: Final = f"{_DEVICE}device_index"
_PCI: Final = tuple(f"{_DEVICE}pci_{part}_id" for part in ("domain", "bus", "device"))
_LAUNCH: Final = {
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
_WANTED: Final = (
    *_LAUNCH.values(),
    *_DEVICE_NUMBERS.values(),
    *_PCI,
    _MEMORY_CLOCK,
    _BUS_WIDTH,
    _NAME,
    "launch__device_id",
)
_INT_LIMITS: Final = {pa.int16(): 2**15, pa.int32(): 2**31, pa.int64(): 2**63}


def read(path: Path) -> Source:
    """Read every result of a report.

    Args:
        path: a file that `sniff` found to be `ncu_rep`.

    Returns:
        Tables `processes`, `devices`, `ncu_results` and `metrics`. `nothing` is set where the
        report holds no result.

    Raises:
        InputTruncated: the file ends early.
        InputCorrupt: the file contradicts itself.
        InputError: the file cannot be read.
        ToolMissing: the package `ncu-report` is not installed.
    """
    try:
        report = walk(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read.",
            f"The system says: {error.strerror or error}.",
            "Check the permissions and the disk.",
        ) from None
    version = None if report.version is None else report.version.split(" ")[0]
    info = InputInfo(str(path), "ncu_rep", "Nsight Compute", version)
    if not report.results and not report.others:
        return Source(
            info, TableSet(_tables(nothing_gathered(), report)), nothing=_no_kernels(path)
        )
    try:
        results = _results(path, report)
    except Damage as damage:
        raise InputCorrupt(
            f"{path} is damaged.",
            f"It is an Nsight Compute report whose blocks are whole, but it {damage.why}.",
            "Copy or download the report again, whole, or profile again.",
        ) from None
    return Source(info, TableSet(_tables(results, report)), warnings=_warnings(path, report))


def _no_kernels(path: Path) -> NoGpuWork:
    return NoGpuWork(
        f"{path} holds no profiled kernel.",
        "It is a whole Nsight Compute report, but its filters let no kernel through or the "
        "program launched none.",
        "Profile again without --kernel-name, --launch-skip and NVTX filters, and check that the "
        "program reaches the GPU.",
    )


def _warnings(path: Path, report: Report) -> tuple[str, ...]:
    if report.version is not None:
        return ()
    return (
        f"{path.name} does not say which Nsight Compute wrote it, as every whole report known "
        "does: results may be missing at its end.",
    )


def _results(path: Path, report: Report) -> Gathered:
    try:
        results = gather(path, report, _WANTED)
    except ImportError:
        raise ToolMissing(
            "The package ncu-report is not installed.",
            f"It is NVIDIA's reader of Nsight Compute reports, and {path.name} is one.",
            "Install it with pip install ncu-report; where there is none for this machine, "
            f"ncu --import {shlex.quote(str(path))} --csv --page raw prints the figures.",
        ) from None
    expected, found = len(report.results), len(results.names)
    if not found or (not report.others and found != expected):
        raise Damage(f"has {expected + report.others} results of which {found} can be read")
    if not report.others:
        lost = sum(r.metrics for r in report.results) - int(results.metrics.num_rows)
        if lost > 0:
            raise Damage(f"has {lost} metrics that cannot be read")
    return results


def _tables(results: Gathered, report: Report) -> dict[str, pa.Table]:
    facts = results.facts
    keys, devices = _devices(facts)
    pids = _process_ids(results, report)
    known = sorted({pid for pid in pids if pid is not None})
    return {
        "processes": make_table(
            "processes",
            len(known),
            {
                "process": np.arange(len(known)),
                "source": np.zeros(len(known)),
                "pid": _whole(known, pa.int64()),
            },
        ),
        "devices": devices,
        "ncu_results": _ncu_results(results, report, keys, pids),
        "metrics": results.metrics,
    }


def _ncu_results(
    results: Gathered,
    report: Report,
    devices: Sequence[int | None],
    pids: Sequence[int | None],
) -> pa.Table:
    facts = results.facts
    rows = len(facts)
    modes = _modes(results, report)
    narrow = {"context": pa.int32(), "passes": pa.int32()}
    launch = {
        column: _whole([f.get(metric) for f in facts], narrow.get(column, pa.int64()))
        for column, metric in _LAUNCH.items()
    }
    return make_table(
        "ncu_results",
        rows,
        {
            "result": np.arange(rows),
            "source": np.zeros(rows),
            "device": _whole(devices, pa.int32()),
            "ncu_id": np.arange(rows),
            "name": strings(results.names),
            "function": strings(results.functions),
            "workload": encode(results.workloads),
            "process_id": _whole(pids, pa.int64()),
            **launch,
            "cache": encode(m.cache for m in modes),
            "clock": encode(m.clock for m in modes),
            "replay_mode": encode(m.replay_mode for m in modes),
        },
    )


def _matched(results: Gathered, report: Report) -> bool:
    """Whether the results of the framing are, in order, those that ncu_report gave."""
    return [r.function for r in report.results] == results.functions


def _process_ids(results: Gathered, report: Report) -> list[int | None]:
    if _matched(results, report):
        return [r.process_id for r in report.results]
    pids = {r.process_id for r in report.results}
    return [pids.pop() if len(pids) == 1 else None] * len(results.names)


def _modes(results: Gathered, report: Report) -> list[Measured]:
    mode = measured(report.command_lines, report.version)
    unlocked = Measured(mode.cache, "unknown", mode.replay_mode)
    if not _matched(results, report) or mode.clock == "none":
        return [mode] * len(results.names)
    # A lock that was asked for and not granted leaves the clocks to themselves.
    return [unlocked if r.clock_locked is False else mode for r in report.results]


def _devices(facts: Sequence[Facts]) -> tuple[list[int | None], pa.Table]:
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
        column: _whole(
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
            "dram_bytes_per_s": _whole([_dram_bytes_per_s(f) for f in first], pa.int64()),
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


def _whole(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Integers of a column; null where there is none or it does not fit."""
    limit = _INT_LIMITS[kind]
    rounded = [round(v) if isinstance(v, int | float) else None for v in values]
    valid: npt.NDArray[np.bool_] = np.array(
        [v is not None and 0 <= v < limit for v in rounded], dtype=np.bool_
    )
    data = [v if ok else 0 for v, ok in zip(rounded, valid, strict=True)]
    return numbers(np.array(data, dtype=np.int64), kind, valid)
