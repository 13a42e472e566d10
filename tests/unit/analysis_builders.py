# SPDX-License-Identifier: Apache-2.0
"""Small tables for the tests of the engine and the analyzers."""

import numpy as np
import pyarrow as pa

from graphtrace.model.arrays import encode, make_table, numbers, strings
from graphtrace.model.trace import InputInfo, TableSet, Trace

UNITS = {"pct": "%", "ns": "ns"}


def unit_of(name):
    if "pct" in name:
        return "%"
    if "bytes" in name:
        return "byte"
    return "ns" if "time_duration" in name else ""


def ncu_tables(*results, cache="flushed", passes=35, devices=None):
    """One result a dict: `name`, `ns`, `grid`, `block` and metrics by NVIDIA's names."""
    columns = {"result": [], "name": [], "value": [], "unit": []}
    plain = {"name", "function", "ns", "grid", "block", "cache", "passes"}
    for key, result in enumerate(results):
        for metric, value in result.items():
            if metric in plain:
                continue
            columns["result"].append(key)
            columns["name"].append(metric)
            columns["value"].append(value)
            columns["unit"].append(unit_of(metric))
    count = len(results)
    shapes = {}
    for what, default in (("grid", (1000, 1, 1)), ("block", (256, 1, 1))):
        for axis in range(3):
            values = [result.get(what, default)[axis] for result in results]
            shapes[f"{what}_{'xyz'[axis]}"] = numbers(values, pa.int64())
    names = [result.get("name", "void my::kernel<int>(float *)") for result in results]
    passes_of = [result.get("passes", passes) for result in results]
    found = {
        "ncu_results": make_table(
            "ncu_results",
            count,
            {
                "result": np.arange(count),
                "source": np.zeros(count),
                "ncu_id": np.arange(count),
                "name": strings(names),
                "function": strings([result.get("function") for result in results]),
                "workload": encode(["kernel"] * count),
                "cache": encode([result.get("cache", cache) for result in results]),
                "clock": encode(["base"] * count),
                "replay_mode": encode(["kernel"] * count),
                "passes": numbers(
                    [p or 0 for p in passes_of],
                    pa.int32(),
                    np.array([p is not None for p in passes_of]),
                ),
                "duration_ns": numbers([r.get("ns", 100_000) for r in results], pa.int64()),
                "device": numbers(np.zeros(count), pa.int32(), np.full(count, devices is not None)),
                **shapes,
            },
        ),
        "metrics": make_table(
            "metrics",
            len(columns["result"]),
            {
                "result": columns["result"],
                "name": encode(columns["name"]),
                "value": numbers(columns["value"], pa.float64()),
                "unit": encode(columns["unit"]),
            },
        ),
    }
    if devices is not None:
        found["devices"] = devices
    return TableSet(found)


def devices(*sm_counts, mig=False, l2_bytes=None):
    count = len(sm_counts)
    return make_table(
        "devices",
        count,
        {
            "device": np.arange(count),
            "source": np.zeros(count),
            "kind": encode(["gpu"] * count),
            "sm_count": numbers(
                [n or 0 for n in sm_counts],
                pa.int32(),
                np.array([n is not None for n in sm_counts]),
            ),
            "mig": numbers([mig] * count, pa.bool_()),
            "l2_bytes": numbers(
                [l2_bytes or 0] * count, pa.int64(), np.full(count, l2_bytes is not None)
            ),
        },
    )


def stages(*paths):
    return make_table(
        "stages",
        len(paths),
        {
            "stage": np.arange(len(paths)),
            "path": strings(paths),
            "name": strings([path.split("/")[-1] for path in paths]),
            "origin": encode(["code"] * len(paths)),
        },
    )


def _nullable(values, arrow_type):
    known = np.array([v is not None for v in values], dtype=np.bool_)
    return numbers([0 if v is None else v for v in values], arrow_type, known)


def stage_times(*rows):
    """Rows of (unit, device, stage, busy, idle)."""
    unit, device, stage, busy, idle = zip(*rows, strict=True) if rows else ((),) * 5
    return make_table(
        "stage_times",
        len(rows),
        {
            "scope": encode(["replay"] * len(rows)),
            "unit": unit,
            "device": _nullable(device, pa.int32()),
            "stage": _nullable(stage, pa.int32()),
            "busy_ns": busy,
            "alone_ns": busy,
            "idle_ns": idle,
            "kernels": np.ones(len(rows)),
        },
    )


def activities(*rows):
    """Rows of dicts: name, begin, end, blocks, and at will kind, stage, replay, device."""
    count = len(rows)
    column = {
        key: [row.get(key, default) for row in rows]
        for key, default in {
            "device": 0,
            "kind": "kernel",
            "name": "k",
            "stage": None,
            "replay": None,
            "blocks": None,
        }.items()
    }
    one = np.ones(count, dtype=np.int64)
    shaped = np.array([b is not None for b in column["blocks"]], dtype=np.bool_)
    return make_table(
        "activities",
        count,
        {
            "activity": np.arange(count),
            "process": np.zeros(count),
            "device": column["device"],
            "stream": np.zeros(count),
            "kind": encode(column["kind"]),
            "name": encode(column["name"]),
            "begin_ns": [row["begin"] for row in rows],
            "end_ns": [row["end"] for row in rows],
            "stage": _nullable(column["stage"], pa.int32()),
            "replay": _nullable(column["replay"], pa.int32()),
            "grid_x": _nullable(column["blocks"], pa.int64()),
            "grid_y": numbers(one, pa.int64(), shaped),
            "grid_z": numbers(one, pa.int64(), shaped),
        },
    )


def trace(tables, path="report.ncu-rep", kind="ncu_rep"):
    return Trace((InputInfo(path, kind),), tables)
