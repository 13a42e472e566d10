# SPDX-License-Identifier: Apache-2.0
"""SMs that stand idle: partial last waves, grids smaller than the device, too few warps.

Kinds:
    tail: measured idle SMs in a kernel of few waves, the last of them partial (ncu).
    small_grid: fewer blocks than SMs (ncu, or a timeline in which nothing else runs meanwhile).
    low_occupancy: far fewer warps than could be resident, and those wait for memory (ncu).
"""

from typing import Final

import numpy as np

from graphtrace.model.analysis import Abstention
from graphtrace.model.arrays import as_numpy, codes_of
from graphtrace.model.metric_view import MetricView, function_name
from graphtrace.model.plugin import Analyzer, Need, Outcome
from graphtrace.model.trace import TableSet
from graphtrace_analyzers._claims import PROGRAM, ncu_command
from graphtrace_analyzers._occupancy_launch_ncu import profiled
from graphtrace_analyzers._occupancy_launch_options import ID, Options
from graphtrace_analyzers._occupancy_launch_timeline import timeline

__all__ = ["ANALYZER", "Options"]

_SECTIONS: Final = (
    "--section LaunchStats --section Occupancy --section SchedulerStats --section WarpStateStats"
    " --section SpeedOfLight"
)


def run(tables: TableSet, options: Options) -> Outcome:
    """Claims and abstentions for the ncu results and the timeline of a trace."""
    claims, abstentions = timeline(tables, options)
    if tables.rows("metrics"):
        more, undecided = profiled(MetricView.of(tables), options)
        return Outcome((*claims, *more), (*abstentions, *undecided))
    return Outcome(claims, (*abstentions, *_unprofiled(tables)))


def _unprofiled(tables: TableSet) -> tuple[Abstention, ...]:
    """What a timeline alone never says, and the kernel to start with."""
    activities = tables.get("activities")
    kinds, kind_words = codes_of(activities.column("kind"))
    names, words = codes_of(activities.column("name"))
    kernel = kind_words.index("kernel") if "kernel" in kind_words else -2
    rows = np.flatnonzero((kinds == kernel) & (names >= 0))
    if not len(rows):
        return ()
    spent = as_numpy(activities.column("end_ns")) - as_numpy(activities.column("begin_ns"))
    total = np.zeros(len(words), dtype=np.int64)
    np.add.at(total, names[rows], spent[rows])
    name = words[int(np.argmax(total))]
    reason = "Tails and low occupancy cannot be seen in a timeline: they need hardware counters."
    rerun = ncu_command(function_name(name), f"--launch-count 1 {_SECTIONS} -o profile")
    return (Abstention(ID, reason, rerun),)


ANALYZER: Final = Analyzer(
    id=ID,
    summary="SMs that stand idle: partial waves, small grids, too few warps",
    needs=(
        Need(
            ("metrics", "activities"),
            "How kernels fill the SMs is not in the input: it holds no GPU kernels.",
            f"nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run {PROGRAM}",
        ),
    ),
    options=Options,
    run=run,
    kinds=("tail", "small_grid", "low_occupancy"),
)
