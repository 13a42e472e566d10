# SPDX-License-Identifier: Apache-2.0
"""What an input lacks, why that matters, and what collects it.

Where the reader of the input has a sentence on it, that sentence is the reason, and it is taken
out of the warnings: nothing is said twice.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.analysis.vendor import nvidia
from graphtrace.attribute.keys import join_keys
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import as_numpy, codes_of, valid_of
from graphtrace.model.description import Gap, GraphCounts
from graphtrace.model.trace import TableSet
from graphtrace.views.numbers import plural

__all__ = ["gaps_of"]

_NSYS: Final = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run PROGRAM"
_CAPTURE: Final = _NSYS.replace("PROGRAM", "graphtrace capture -- PROGRAM")
_NCU: Final = "ncu --set full --cache-control none --clock-control none -o profile PROGRAM"
_TORCH: Final = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) and "
    "export_chrome_trace"
)
_COMMAND: Final = re.compile(r": (?=(?:nsys profile|torch\.profiler\.profile\() ?)")

_FAMILIES: Final = {
    "nsys_sqlite": "nsys",
    "nsys_parquetdir": "nsys",
    "nsys_rep": "nsys",
    "kineto": "torch",
    "ncu_rep": "ncu",
    "ncu_csv": "ncu",
}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What rules ask about an input."""

    kind: str
    family: str
    tables: TableSet
    graphs: GraphCounts | None

    def empty(self, table: str) -> bool:
        return not self.tables.rows(table)

    def nulls(self, table: str, column: str) -> bool:
        """Whether all values of a table that has rows are null."""
        values = self.tables.get(table).column(column)
        return len(values) > 0 and values.null_count == len(values)

    @property
    def timeline(self) -> bool:
        return self.family in ("nsys", "torch")

    @property
    def nvidia(self) -> bool:
        """Whether NVIDIA's tools can profile the device, as far as is known."""
        return nvidia(self.tables)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One thing that an input may lack.

    Attributes:
        what: what it is.
        when: whether it lacks it, where no sentence of the reader says so.
        why: why it matters, in our words; empty for what only a reader can tell.
        command: what collects it.
        says: what a reader's sentence on it matches.
    """

    what: str
    when: Callable[[_Facts], bool]
    why: str = ""
    command: Callable[[_Facts], str | None] = lambda _: None
    says: str | None = None


def _by_profiler(facts: _Facts) -> str | None:
    return {"nsys": _NSYS, "torch": _TORCH, "recording": _CAPTURE}.get(facts.family)


def _sm_unknown(facts: _Facts) -> bool:
    devices = facts.tables.get("devices")
    return facts.timeline and not bool(valid_of(devices.column("sm_count")).all())


def _nodes_without_creation(facts: _Facts) -> bool:
    graphs = facts.graphs
    nodes = graphs is not None and graphs.replays > graphs.opaque
    return facts.family == "nsys" and nodes and facts.empty("graph_events")


def _nodes_of_torch(facts: _Facts) -> bool:
    """Whether a trace of the PyTorch profiler names nodes; it never says where they come from."""
    named = facts.graphs is not None and facts.graphs.replays > 0 and not facts.empty("execs")
    return facts.family == "torch" and named and facts.empty("graph_events")


_RULES: Final[tuple[_Rule, ...]] = (
    _Rule(
        "work of the GPU",
        lambda facts: facts.family == "recording" and facts.empty("activities"),
        "A recording holds what the host did.",
        lambda _: _CAPTURE,
        says=r"^No GPU here: |^Work on the GPU, ",
    ),
    _Rule(
        "kernels inside the replays",
        lambda facts: facts.graphs is not None and facts.graphs.opaque > 0,
        "Graph replays were recorded as a whole: the device was busy, but with which kernels is "
        "not known.",
        lambda _: _NSYS,
        says="recorded as a whole: ",
    ),
    _Rule(
        "work of launched graphs",
        lambda _: False,
        command=lambda _: _NSYS,
        says=r"launched without any work in the (export|trace)",
    ),
    _Rule(
        "ids of the graph nodes",
        lambda _: False,
        command=lambda facts: _NSYS if facts.nvidia else None,
        says="recorded without ids of the nodes",
    ),
    _Rule(
        "creation of the graph nodes",
        _nodes_without_creation,
        "The stage of a node is the range that was open when the node was created: start the "
        "recording before the graphs are captured.",
        lambda _: _NSYS,
        says="creation of the graph nodes was not recorded",
    ),
    _Rule(
        "creation of the graph nodes",
        _nodes_of_torch,
        "The trace names the nodes of the replays, but not the ranges that were open when they "
        "were created: their kernels stay without a stage.",
        lambda facts: _NSYS if facts.nvidia else None,
    ),
    _Rule(
        "ranges",
        lambda facts: facts.timeline and facts.empty("ranges"),
        "Stages come from ranges, and there is none.",
        lambda facts: _NSYS if facts.family == "nsys" else None,
        says=r"no table NVTX_EVENTS|no annotation in the trace",
    ),
    _Rule(
        "kernels",
        lambda _: False,
        command=lambda _: _NSYS,
        says="no table CUPTI_ACTIVITY_KIND_KERNEL",
    ),
    _Rule(
        "API calls",
        lambda facts: facts.timeline and facts.empty("api_calls"),
        "Without API calls neither launches nor the stages of eager kernels can be found.",
        _by_profiler,
        says=r"no table CUPTI_ACTIVITY_KIND_RUNTIME|no call of the CUDA or HIP runtime",
    ),
    _Rule(
        "size of the device",
        _sm_unknown,
        "The number of SMs is not in the file: whether a grid fills the device cannot be told.",
        says=r"no table TARGET_INFO_GPU|does not say how many SMs",
    ),
    _Rule(
        "tokens of the batches",
        lambda facts: facts.family == "recording" and facts.nulls("batches", "valid_tokens"),
        "Padding is told from the tokens of a batch, and no batch says them: in the program, "
        "graphtrace.batch(valid_tokens=..., captured_tokens=...).",
    ),
    _Rule(
        "metrics of the kernels",
        lambda facts: facts.timeline and facts.empty("metrics") and facts.nvidia,
        "A timeline says how long kernels take, not why: caches, occupancy and stalls are "
        "measured by Nsight Compute. Give both files to graphtrace analyze.",
        lambda _: _NCU,
    ),
    _Rule(
        "timeline",
        lambda facts: facts.family == "ncu" and facts.empty("activities"),
        "Nsight Compute runs each kernel alone: replays, the gaps between kernels and stages are "
        "not in its files. Give both files to graphtrace analyze.",
        lambda _: _NSYS,
    ),
)


def gaps_of(source: Source, graphs: GraphCounts | None) -> tuple[tuple[str, ...], tuple[Gap, ...]]:
    """The warnings that remain, and what is missing.

    Args:
        source: the input.
        graphs: its replays, counted.
    """
    origin = None if source.manifest is None else source.manifest.origin
    kind = source.info.kind if origin is None else origin.kind
    facts = _Facts(kind, _FAMILIES.get(kind, "recording"), source.tables, graphs)
    if source.nothing is not None:
        return _without_work(source, facts)
    left = list(source.warnings)
    gaps = []
    for rule in _RULES:
        said = [s for s in left if rule.says is not None and re.search(rule.says, s)]
        if said:
            left = [sentence for sentence in left if sentence not in said]
            gaps.append(_from_reader(rule.what, " ".join(said), rule.command(facts)))
        elif rule.when(facts):
            gaps.append(Gap(rule.what, rule.why, rule.command(facts)))
    return tuple(left), (*gaps, *_launches(facts), *_measurement(facts))


def _from_reader(what: str, said: str, command: str | None) -> Gap:
    """A gap in the words of a reader; the command that ends them stands on its own."""
    parts = _COMMAND.split(said)
    if len(parts) == 1:
        return Gap(what, said, command)
    return Gap(what, f"{parts[0]}.", parts[1].removesuffix("."))


def _without_work(source: Source, facts: _Facts) -> tuple[tuple[str, ...], tuple[Gap, ...]]:
    """All that an input without work lacks is work; what else is not there follows from that."""
    error = source.nothing
    assert error is not None
    what = "stages and batches" if facts.family == "recording" else "work of the GPU"
    left = tuple(sentence for sentence in source.warnings if sentence != error.why)
    return left, (_from_reader(what, f"{error.why} {error.do}", None),)


def _launches(facts: _Facts) -> Iterator[Gap]:
    """Work outside of replays whose launching calls are not among those that were recorded."""
    calls, work = facts.tables.get("api_calls"), facts.tables.get("activities")
    if not facts.timeline or not calls.num_rows or not work.num_rows:
        return
    kinds, words = codes_of(work.column("kind"))
    marks = np.isin(kinds, [code for code, word in enumerate(words) if word == "mark"])
    rows = np.flatnonzero(~valid_of(work.column("replay")) & ~marks)
    known = valid_of(work.column("correlation"))[rows]
    names = ("process", "correlation")
    mine, theirs = join_keys(
        [as_numpy(work.column(name))[rows] for name in names],
        [as_numpy(calls.column(name)) for name in names],
    )
    lost = len(rows) - int(np.count_nonzero(known & np.isin(mine, theirs)))
    if lost:
        yield Gap(
            "launches of all work",
            f"The calls that launched {lost:,} of {plural(len(rows), 'activity', 'activities')} "
            "outside of replays are not in the file: this work stays without a stage. Start the "
            "recording before, and end it after the part that matters.",
            None,
        )


def _measurement(facts: _Facts) -> Iterator[Gap]:
    """What is unknown or unlike the program in how Nsight Compute measured."""
    results = facts.tables.get("ncu_results")
    total = results.num_rows
    if not total:
        return
    if facts.empty("metrics"):
        yield Gap("metrics", "The results have no metric of a kernel.", _NCU)
        return
    caches, clocks = _counts(results, "cache"), _counts(results, "clock")
    unknown = caches.get("unknown", 0), clocks.get("unknown", 0)
    if facts.kind == "ncu_csv" and any(unknown):
        yield Gap(
            "how it was measured",
            "Printed pages do not say whether caches were flushed and clocks locked; the report "
            "that they were printed from does.",
            "graphtrace info REPORT.ncu-rep",
        )
        return
    said = [
        *_cache_sentences(caches.get("flushed", 0), unknown[0], total),
        *_clock_sentences(total - clocks.get("none", 0) - unknown[1], unknown[1], total),
    ]
    if said:
        yield Gap("caches and clocks as the program has them", " ".join(said), _NCU)


def _cache_sentences(flushed: int, unknown: int, total: int) -> Iterator[str]:
    if flushed:
        yield (
            f"Caches were flushed before {_of(flushed, total)} (--cache-control all, ncu's "
            "default): what a kernel finds in L2 from the one before it cannot be told."
        )
    if unknown:
        yield f"Whether caches were flushed is not known of {_of(unknown, total)}."


def _clock_sentences(locked: int, unknown: int, total: int) -> Iterator[str]:
    if locked:
        yield f"Clocks were locked for {_of(locked, total)}: durations are not the program's."
    if unknown:
        yield f"Whether clocks were locked is not known of {_of(unknown, total)}."


def _of(part: int, total: int) -> str:
    if part == total:
        return "the result" if total == 1 else f"all {total:,} results"
    return f"{part:,} of {plural(total, 'result')}"


def _counts(table: pa.Table, column: str) -> dict[str, int]:
    codes, words = codes_of(table.column(column))
    counts = np.bincount(codes, minlength=len(words)).tolist()
    return dict(zip(words, counts, strict=True))
