# SPDX-License-Identifier: Apache-2.0
"""The JSON of `graphtrace.info/1`; its schema ships beside this module in `schema/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import graphtrace
from graphtrace.model.description import Description, GraphCounts, NcuCounts, Span
from graphtrace.model.errors import GraphtraceError
from graphtrace.report.json import dump, plain_id

__all__ = ["INFO_SCHEMA", "render"]

INFO_SCHEMA: Final = "graphtrace.info/1"


def _range(pair: tuple[int, int] | None) -> dict[str, int] | None:
    return None if pair is None else {"min": pair[0], "max": pair[1]}


def _span(span: Span | None) -> dict[str, int] | None:
    if span is None:
        return None
    length = span.end_ns - span.begin_ns
    return {"begin_ns": span.begin_ns, "end_ns": span.end_ns, "length_ns": length}


def _graphs(graphs: GraphCounts | None) -> dict[str, Any] | None:
    if graphs is None:
        return None
    return {
        "graphs": graphs.graphs,
        "instantiated": graphs.instantiated,
        "replays": graphs.replays,
        "opaque_replays": graphs.opaque,
        "kernels_per_replay": _range(graphs.kernels),
    }


def _ncu(ncu: NcuCounts | None) -> dict[str, Any] | None:
    if ncu is None:
        return None
    return {
        "results": ncu.results,
        "metrics": ncu.metrics,
        "modes": [
            {
                "cache": mode.cache,
                "clock": mode.clock,
                "replay_mode": mode.replay_mode,
                "results": mode.results,
                "passes": _range(mode.passes),
            }
            for mode in ncu.modes
        ],
    }


def _who(told: Description) -> dict[str, Any]:
    """What the input is, who wrote it, and where it was recorded."""
    info, origin = told.info, told.origin
    return {
        "path": info.path,
        "kind": info.kind,
        "tool": info.tool,
        "tool_version": info.tool_version,
        "synthetic": info.synthetic,
        "size_bytes": told.size,
        "origin": None if origin is None else {"kind": origin.kind, "name": origin.name},
        "devices": [
            {
                "device": device.device,
                "kind": device.kind,
                "ordinal": device.ordinal,
                "name": device.name,
                "sm_count": device.sm_count,
                "l2_bytes": device.l2_bytes,
                "dram_bytes_per_s": device.dram_bytes_per_s,
                "compute_capability": device.compute_capability,
            }
            for device in told.devices
        ],
        "processes": [
            {"pid": plain_id(process.pid), "rank": process.rank} for process in told.processes
        ],
    }


def _file(told: Description) -> dict[str, Any]:
    nvtx, stages = told.nvtx, told.stages
    return {
        **_who(told),
        "span": _span(told.span),
        "tables": dict(told.tables),
        "activities": None if told.activities is None else dict(told.activities),
        "graphs": _graphs(told.graphs),
        "nvtx": None
        if nvtx is None
        else [{"domain": d.name, "ranges": d.ranges, "marks": d.marks} for d in nvtx],
        "ncu": _ncu(told.ncu),
        "stages": None
        if stages is None
        else [{"stage": stage.stage, "origin": stage.origin} for stage in stages],
        "quarantine": [
            {"table": row.table, "reason": row.reason, "count": row.count}
            for row in told.quarantine
        ],
        "warnings": list(told.warnings),
        "missing": [
            {"what": gap.what, "why": gap.why, "command": gap.command} for gap in told.missing
        ],
        "command_lines": None if told.command_lines is None else list(told.command_lines),
    }


def render(
    files: Sequence[Description], errors: Sequence[tuple[Path, GraphtraceError]] = ()
) -> str:
    """The descriptions as one JSON document without a final line end.

    Args:
        files: in the order in which they were given.
        errors: the files that could not be read, and why.
    """
    return dump(
        {
            "schema": INFO_SCHEMA,
            "graphtrace_version": graphtrace.__version__,
            "files": [_file(told) for told in files],
            "errors": [
                {
                    "path": str(path),
                    "exit": error.exit_code,
                    "what": error.what,
                    "why": error.why,
                    "do": error.do,
                }
                for path, error in errors
            ],
        }
    )
