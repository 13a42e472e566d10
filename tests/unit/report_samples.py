# SPDX-License-Identifier: Apache-2.0
"""Analyses made by hand for the tests of views and reports; all of them synthetic."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from graphtrace.model.analysis import (
    Abstention,
    Analysis,
    BatchRow,
    Budget,
    Coverage,
    DeviceBudget,
    DeviceInfo,
    EagerWork,
    Evidence,
    Finding,
    KernelRow,
    MetricValue,
    Mode,
    Quarantined,
    Replays,
    Split,
    StageBudget,
    StageRow,
)
from graphtrace.model.arrays import dictionary, encode, make_table, numbers, strings
from graphtrace.model.trace import InputInfo, RunCost, TableSet, Trace

FLUSHED = Mode("flushed", "base", 8)
HOSTILE = (
    "</script><script>document.documentElement.dataset.pwned='1'</script>"
    "<img src=x onerror=\"document.documentElement.dataset.pwned='1'\">"
    '<b>\'"&amp;\u2028\u202e[red]\x1b[31m<a href="javascript:alert(1)">x</a>'
)

EMPTY = Analysis(
    verdict="cannot_tell",
    inputs=(InputInfo("empty.ncu-rep", "ncu_rep", "Nsight Compute", "2022.3"),),
    devices=(),
    coverage=None,
    replays=None,
    budget=None,
    stages=(),
    kernels=(),
    findings=(),
    abstentions=(),
    batches=None,
    quarantine=(),
    warnings=(),
    gates=(),
    options={},
    cost=None,
    timing={},
)


def _metric(value, unit, invalid=None):
    return MetricValue(value, unit, FLUSHED, invalid)


def ncu_kernel(name="addConstDouble3(int, double3 *)", ns=294_336, number=0, hit=66.7492784288903):
    """A row with the figures of Debian's addConstDouble3 sample."""
    bad = None if hit <= 100 else f"{hit:.0f} % hit rate: hits and lookups of two passes"
    return KernelRow(
        name=name,
        stage=None,
        count=1,
        total_ns=ns,
        metrics={
            "sm__warps_active.avg.pct_of_peak_sustained_active": _metric(77.06941464267601, "%"),
            "sm__maximum_warps_per_active_cycle_pct": _metric(100.0, "%"),
            "launch__waves_per_multiprocessor": _metric(26.25641025641026, ""),
            "lts__throughput.avg.pct_of_peak_sustained_elapsed": _metric(56.2768465289, "%"),
            "lts__t_sector_hit_rate.pct": _metric(None if bad else hit, "%", bad),
            "dram__bytes_read.sum": _metric(25_196_544, "byte"),
            "dram__bytes_write.sum": _metric(23_792_768, "byte"),
            "graphtrace__sectors_per_request_ld": _metric(24.0, "sector/request"),
            "graphtrace__sectors_per_request_st": _metric(24.0, "sector/request"),
            "launch__graph_exec_cuda_id": _metric(2**63 + 1, ""),
        },
        source="ncu",
        result=f"report.ncu-rep#{number}",
        grid=(4096, 1, 1),
        block=(256, 1, 1),
        stalls={"long_scoreboard": 21.5, "lg_throttle": 4.2, "selected": 1.0},
    )


def finding(**changes):
    made = Finding(
        id="f-3a91",
        analyzer="cache_thrash",
        kind="uncoalesced",
        severity="high",
        confidence="high",
        stage=None,
        claimed_ns=None,
        recoverable_ns=None,
        share=0.6667,
        share_of="kernel",
        evidence=(
            Evidence("graphtrace__sectors_per_request_ld", 24.0, "sector/request", FLUSHED),
            Evidence("dram__bytes_read.sum", 25_196_544, "byte", FLUSHED),
        ),
        why="Each load request moves 24 sectors where 8 would carry the same bytes.",
        do="Store the three doubles in separate arrays, or load them through shared memory.",
        prove="ncu --section SourceCounters --section MemoryWorkloadAnalysis_Tables ./app",
        kernel="addConstDouble3(int, double3 *)",
        results=("report.ncu-rep#0",),
    )
    return replace(made, **changes)


def ncu_analysis():
    return replace(
        EMPTY,
        verdict="findings",
        inputs=(InputInfo("report.ncu-rep", "ncu_rep", "Nsight Compute", "2022.3"),),
        devices=(
            DeviceInfo(0, "gpu", 0, "Quadro RTX 5000", 48, 4_194_304, 448_064_000_000, "7.5"),
        ),
        kernels=(
            ncu_kernel(),
            ncu_kernel("void at::native::reduce_kernel<512, 1, F>(F)", 18_200, 1, 121.3),
        ),
        findings=(finding(),),
        abstentions=(
            Abstention(
                "cache_thrash",
                "The caches were flushed before each pass, so L2 reuse between kernels is unseen.",
                "ncu --cache-control none --section MemoryWorkloadAnalysis ./app",
            ),
        ),
        options={"cache_thrash": {"excess": 0.3}},
        timing={"read": 81_000_000, "analyze": 4_000_000},
    )


def _split_budget(walls):
    return tuple(StageBudget(s, b, i, (b + i) / walls) for s, b, i in STAGES)


STAGES = (
    ("encoder.layers.0/attn", 4_000_000, 600_000),
    ("encoder.layers.0/mlp", 2_500_000, 100_000),
    ("stem", 900_000, 300_000),
    ("head", 150_000, 50_000),
    (None, 700_000, 700_000),
)
WALL = sum(busy + idle for _, busy, idle in STAGES)


def graph_analysis():
    """A replayed graph on a synthetic timeline."""
    rows = _split_budget(WALL)
    busy = sum(row.busy_ns for row in rows)
    idle = WALL - busy
    kinds = {
        "launch_latency": 400_000,
        "dependency": 900_000,
        "copy_wait": 300_000,
        "host_node": 0,
        "unexplained": idle - 1_600_000,
    }
    device = DeviceBudget(0, WALL, busy, idle, rows, kinds)
    return replace(
        EMPTY,
        verdict="findings",
        inputs=(
            InputInfo("run.sqlite", "nsys_sqlite", "Nsight Systems", "2024.6", synthetic=True),
        ),
        devices=(DeviceInfo(0, "gpu", 0, "NVIDIA H100", 132, 52_428_800, None, "9.0"),),
        coverage=Coverage(
            Split(1000, 990, 900, 40, 60),
            Split(busy, busy - 1000, busy - 700_000, 0, 700_000),
            {"two nodes could be this kernel": 60},
        ),
        replays=Replays(20, WALL, WALL // 20, WALL // 15),
        budget=Budget("replay", 20, WALL, busy, idle, rows, kinds, (device,), EagerWork(10, 1000)),
        stages=tuple(StageRow(s, 100, 20, b) for s, b, _ in STAGES if s is not None),
        kernels=tuple(
            KernelRow(f"void flash_fwd_kernel<{k}>(Params)", s, 20, b, {}, "timeline", device=0)
            for k, (s, b, _) in enumerate(STAGES)
        ),
        findings=(
            finding(
                id="f-77",
                analyzer="occupancy_launch",
                kind="tail",
                stage="encoder.layers.0/attn",
                claimed_ns=900_000,
                recoverable_ns=800_000,
                share=800_000 / WALL,
                share_of="wall",
                replays=20,
                device=0,
            ),
        ),
        batches=tuple(
            BatchRow("224px" if i % 2 else "336px", 150 + i, 256, 8, 450_000 + i) for i in range(20)
        ),
        quarantine=(Quarantined("activities", "end before begin", 3),),
        warnings=("The last replay is cut off by the end of the recording.",),
        cost=RunCost(8000, 0, 410, 1_200_000, "nsys"),
        timing={"read": 81_000_000},
    )


def hostile_analysis():
    """Every text that comes from a file is an attack."""
    base = graph_analysis()
    rows = tuple(
        replace(r, stage=None if r.stage is None else HOSTILE + r.stage)
        for r in base.budget.by_stage
    )
    return replace(
        base,
        inputs=(replace(base.inputs[0], path=HOSTILE, tool=HOSTILE, tool_version=HOSTILE),),
        devices=(replace(base.devices[0], name=HOSTILE),),
        budget=replace(base.budget, by_stage=rows, by_device=()),
        coverage=replace(base.coverage, reasons={HOSTILE: 60}),
        kernels=(
            *(replace(k, name=HOSTILE, stage=HOSTILE) for k in base.kernels),
            replace(ncu_kernel(HOSTILE, hit=130.0), result=HOSTILE, stalls={HOSTILE: 3.0}),
        ),
        findings=tuple(
            replace(
                f,
                kernel=HOSTILE,
                stage=HOSTILE,
                why=HOSTILE,
                do=HOSTILE,
                prove=HOSTILE,
                results=(HOSTILE,),
                evidence=(Evidence(HOSTILE, HOSTILE, ""),),
            )
            for f in base.findings
        ),
        abstentions=(Abstention("cache_thrash", HOSTILE, HOSTILE),),
        batches=(BatchRow(HOSTILE, 1, 2, 1, 100),),
        quarantine=(Quarantined("activities", HOSTILE, 3),),
        warnings=(HOSTILE,),
        cost=RunCost(1, 0, 1, 1, HOSTILE),
    )


def stage_table(paths):
    n = len(paths)
    return make_table(
        "stages",
        n,
        {
            "stage": np.arange(n),
            "path": strings(paths),
            "name": strings([p.rsplit("/", 1)[-1] for p in paths]),
            "origin": encode(["module"] * n),
        },
    )


def graph_trace(kernels=40, paths=("stem", "attn", "mlp"), replays=3, name="k"):
    """Replays of `kernels` kernels on two streams; replay r takes (r + 1) x as long."""
    total = kernels * replays
    replay = np.repeat(np.arange(replays), kernels)
    step = np.tile(np.arange(kernels), replays)
    scale = replay + 1
    begin = replay * 10_000_000 + step * 1000 * scale
    end = begin + 800 * scale
    stage = step * len(paths) // kernels
    known = step % 10 != 9
    activities = make_table(
        "activities",
        total,
        {
            "activity": np.arange(total),
            "process": np.zeros(total),
            "device": np.zeros(total),
            "stream": 7 + step % 2,
            "kind": dictionary(np.zeros(total), ["kernel"]),
            "name": dictionary(step % 3, [f"{name}{i}" for i in range(3)]),
            "begin_ns": begin,
            "end_ns": end,
            "replay": numbers(replay, pa.int32()),
            "stage": numbers(stage, pa.int32(), known),
        },
    )
    firsts = np.arange(replays) * kernels
    replay_table = make_table(
        "replays",
        replays,
        {
            "replay": np.arange(replays),
            "process": np.zeros(replays),
            "device": np.zeros(replays),
            "begin_ns": begin[firsts],
            "end_ns": end[firsts + kernels - 1],
        },
    )
    tables = {"activities": activities, "replays": replay_table, "stages": stage_table(paths)}
    info = InputInfo("run.sqlite", "nsys_sqlite", "Nsight Systems", "2024.6", synthetic=True)
    return Trace((info,), TableSet(tables))


def host_trace(batches=3, paths=("encoder", "encoder/attn", "encoder/mlp", "head")):
    """A recording without a GPU: batch b takes (b + 1) x as long; stages nest."""
    spans = ((0, 700), (10, 300), (310, 690), (710, 990))
    rows = [
        (b * 10_000 + lo * (b + 1), b * 10_000 + hi * (b + 1), s)
        for b in range(batches)
        for s, (lo, hi) in enumerate(spans)
    ]
    n = len(rows)
    begin, end, stage = (np.array(column) for column in zip(*rows, strict=True))
    ranges = make_table(
        "ranges",
        n,
        {
            "process": np.zeros(n),
            "thread": np.full(n, 11),
            "domain": encode(["graphtrace"] * n),
            "text": dictionary(stage, list(paths)),
            "kind": encode(["push_pop"] * n),
            "begin_ns": begin,
            "end_ns": end,
            "stage": stage,
        },
    )
    steps = np.arange(batches)
    batch_table = make_table(
        "batches",
        batches,
        {
            "batch": steps,
            "process": np.zeros(batches),
            "thread": np.full(batches, 11),
            "begin_ns": steps * 10_000,
            "end_ns": steps * 10_000 + 1000 * (steps + 1),
            "label": encode([f"{224 + 112 * int(b)}px" for b in steps]),
        },
    )
    tables = {"ranges": ranges, "batches": batch_table, "stages": stage_table(paths)}
    return Trace((InputInfo("run.gtrace", "gtrace", "graphtrace", "0.1.0"),), TableSet(tables))
