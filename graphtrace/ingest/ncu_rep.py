# SPDX-License-Identifier: Apache-2.0
"""Reader of `.ncu-rep`, the report of Nsight Compute, through NVIDIA's package `ncu_report`.

The command line, the host, the environment and the program that stand in a report are never
copied to any table; `command_lines` gives the first of these to who asks for it by name.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphtrace.ingest.ncu_actions import Gathered, gather, nothing_gathered
from graphtrace.ingest.ncu_devices import WANTED, devices_of, launch_columns, whole
from graphtrace.ingest.ncu_frames import Report, walk
from graphtrace.ingest.ncu_mode import Measured, measured
from graphtrace.ingest.ncu_wire import Damage
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import encode, make_table, strings
from graphtrace.model.errors import InputCorrupt, InputError, NoGpuWork, ToolMissing
from graphtrace.model.trace import InputInfo, TableSet

__all__ = ["command_lines", "read"]


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
    report = _walked(path)
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


def _walked(path: Path) -> Report:
    try:
        return walk(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read.",
            f"The system says: {error.strerror or error}.",
            "Check the permissions and the disk.",
        ) from None


def command_lines(path: Path) -> tuple[str, ...]:
    """Command lines of the profiler that a report keeps; they may hold what nobody shall see.

    Reports of 2020 keep none.

    Raises:
        InputError: as `read`.
    """
    return _walked(path).command_lines


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
        results = gather(path, report, WANTED)
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
    keys, devices = devices_of(facts)
    pids = _process_ids(results, report)
    known = sorted({pid for pid in pids if pid is not None})
    return {
        "processes": make_table(
            "processes",
            len(known),
            {
                "process": np.arange(len(known)),
                "source": np.zeros(len(known)),
                "pid": whole(known, pa.int64()),
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
    return make_table(
        "ncu_results",
        rows,
        {
            "result": np.arange(rows),
            "source": np.zeros(rows),
            "device": whole(devices, pa.int32()),
            "ncu_id": np.arange(rows),
            "name": strings(results.names),
            "function": strings(results.functions),
            "workload": encode(results.workloads),
            "process_id": whole(pids, pa.int64()),
            **launch_columns(facts),
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
