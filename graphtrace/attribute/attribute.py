# SPDX-License-Identifier: Apache-2.0
"""Attribution of a whole trace: stages, replays, coverage and the time budget."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from graphtrace.attribute.activity_stages import Eager, Owned, own_stages, write_back
from graphtrace.attribute.budget import budget_of
from graphtrace.attribute.coverage import coverage_of, uncovered_warning
from graphtrace.attribute.graph_table import GraphRows, complete_graphs, execs_of, one_value
from graphtrace.attribute.host import host_times
from graphtrace.attribute.keys import Bools, Ints, renumbered, rows_of
from graphtrace.attribute.launches import Calls, Steps
from graphtrace.attribute.open_stages import Open, OpenStages
from graphtrace.attribute.origin import Lineage, Roots
from graphtrace.attribute.paths import StagePaths
from graphtrace.attribute.replay_table import ReplayRows, find_replays, summary
from graphtrace.attribute.units import (
    LAUNCH_GAP_NS,
    UnitTimes,
    device_times,
    eager_busy,
    times_table,
)
from graphtrace.attribute.work import Work, ints
from graphtrace.model.analysis import Budget, Coverage, EagerWork, Replays
from graphtrace.model.arrays import numbers
from graphtrace.model.trace import TableSet, Trace

__all__ = ["Attributed", "attribute"]


@dataclass(frozen=True, slots=True)
class Attributed:
    """An attributed trace.

    Attributes:
        trace: the trace with stages, graphs, nodes, execs, replays, activities, `ranges.stage` and
            stage_times filled in, and with warnings a person must read first.
        coverage: None where no input can carry device work.
        replays: None where no input can carry graph launches.
        budget: None where no input has times to share.
    """

    trace: Trace
    coverage: Coverage | None
    replays: Replays | None
    budget: Budget | None


def attribute(trace: Trace, *, launch_gap_ns: int = LAUNCH_GAP_NS) -> Attributed:
    """Find the stage of all work, and share the wall time among the stages.

    Args:
        trace: a trace as loaded; attributing one twice gives the same.
        launch_gap_ns: longest gap inside a replay that counts as launch latency, ns.

    Returns:
        The attributed trace. Nothing is guessed: what is not certain has no stage and a reason.

    Raises:
        InternalError: the budget does not add up.
    """
    tables = trace.tables
    paths = StagePaths(tables.get("stages"))
    opened = OpenStages(tables.get("ranges"), paths)
    if tables.has("activities"):
        return _with_device_work(trace, paths, opened, launch_gap_ns)
    times = host_times(opened, tables.get("batches"))
    return _host_only(trace, paths, opened, times)


def _host_only(
    trace: Trace, paths: StagePaths, opened: OpenStages, times: UnitTimes | None
) -> Attributed:
    stages, final = paths.finish()
    tables = _with_stages(trace.tables, stages, opened, final)
    budget = None
    if times is not None:
        budget = budget_of(times, paths.path_by_key, EagerWork(0, 0))
        tables = tables.with_tables(stage_times=times_table(times, final))
    warnings = _warnings(trace, opened, _overlap_warning(times), None)
    found = replace(trace, tables=tables, warnings=warnings)
    return Attributed(found, None, None, budget)


def _with_stages(tables: TableSet, stages: pa.Table, opened: OpenStages, final: Ints) -> TableSet:
    """The tables with stages, and with the stage of each range."""
    new = {"stages": stages} if stages.num_rows or tables.has("stages") else {}
    if tables.has("ranges"):
        stage = renumbered(opened.stage_of_range, final)
        new["ranges"] = _set_column(tables.get("ranges"), "stage", stage)
    return tables.with_tables(**new)


def _set_column(table: pa.Table, name: str, keys: Ints) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), numbers(keys, pa.int32(), keys >= 0))


@dataclass(frozen=True, slots=True)
class _Found:
    """Work, where it was launched, and what was open there."""

    work: Work
    replays: ReplayRows
    replay: Ints
    node: Ints
    graph: Ints
    graphs: GraphRows
    owned: Owned


def _with_device_work(
    trace: Trace, paths: StagePaths, opened: OpenStages, launch_gap_ns: int
) -> Attributed:
    tables = trace.tables
    found = _find(tables, opened)
    work, owned = found.work, found.owned
    scope_times, eager = _times(tables, opened, found, launch_gap_ns)
    stages, final = paths.finish()
    # What is as long as the trace is let go as soon as it may be.
    budget = budget_of(scope_times, paths.path_by_key, eager)
    stage_times = times_table(scope_times, final)
    overlap = _overlap_warning(scope_times)
    del scope_times
    activities = write_back(
        tables.get("activities"),
        owned,
        renumbered(owned.stage, final),
        found.replay,
        found.graph,
        found.node,
    )
    execs, replays = _complete_replays(tables.get("execs"), found, found.graph)
    tables = _with_stages(tables, stages, opened, final).with_tables(
        activities=activities,
        graphs=found.graphs.graphs,
        nodes=_set_column(
            found.graphs.nodes, "stage", renumbered(ints(found.graphs.nodes, "stage"), final)
        ),
        execs=execs,
        replays=replays.table(),
        stage_times=stage_times,
    )
    warnings = _warnings(trace, opened, overlap, uncovered_warning(work, owned))
    return Attributed(
        replace(trace, tables=tables, warnings=warnings),
        coverage_of(activities, work, owned),
        summary(replays),
        budget,
    )


def _find(tables: TableSet, opened: OpenStages) -> _Found:
    activities, api = tables.get("activities"), tables.get("api_calls")
    work = Work.of(activities)
    batches = tables.get("batches")
    replays, replay = find_replays(tables.get("replays"), api, batches, work)
    roots = Lineage.of(tables.get("graph_events")).roots(
        work.process, work.node_id, _used_at(work, replays, replay), work.has_node
    )
    created = _open_at_creation(tables.get("graph_events"), opened)
    graphs = complete_graphs(
        tables.get("graphs"), tables.get("nodes"), tables.get("graph_events"), created.stage
    )
    created_in = _pick(created, roots.event)
    eager = _eager(api, work, opened, Steps(batches))
    owned = own_stages(activities, work, replay, roots, created_in, eager)
    node, graph = _nodes_of(work, roots, graphs)
    return _Found(work, replays, replay, node, graph, graphs, owned)


def _eager(api: pa.Table, work: Work, opened: OpenStages, steps: Steps) -> Eager:
    """What launched the work outside of graphs, and what was open there."""
    rows = np.flatnonzero(~work.in_graph)
    process = work.process[rows]
    calls = Calls.of(api, process, work.correlation[rows], work.has_correlation[rows])
    known = np.flatnonzero(calls.found)
    thread, begin = calls.thread[known], calls.begin[known]
    part = opened.at(process[known], thread, begin)
    stage, root, batch = (np.full(len(rows), -1, dtype=np.int64) for _ in range(3))
    refused = np.zeros(len(rows), dtype=np.bool_)
    stage[known], root[known], refused[known] = part.stage, part.root, part.refused
    batch[known] = steps.at(process[known], thread, begin)
    return Eager(rows, calls, Open(stage, root, refused), batch)


def _used_at(work: Work, replays: ReplayRows, replay: Ints) -> Ints:
    """When the node id of each activity was used: at its launch, else when it began."""
    if not len(replays.key):
        return work.begin
    row = replays.row_of(replay)
    at = np.maximum(row, 0)
    known = (row >= 0) & replays.launch_known[at]
    return np.where(known, replays.launch_begin[at], work.begin)


def _open_at_creation(events: pa.Table, opened: OpenStages) -> Open:
    return opened.at(ints(events, "process"), ints(events, "thread"), ints(events, "time_ns"))


def _pick(answers: Open, row: Ints) -> Open:
    """Answers of the given rows; none where the row is -1."""
    if not len(answers.stage):
        return Open(row, row, row >= 0)
    at, some = np.maximum(row, 0), row >= 0
    return Open(
        np.where(some, answers.stage[at], -1),
        np.where(some, answers.root[at], -1),
        some & answers.refused[at],
    )


def _nodes_of(work: Work, roots: Roots, graphs: GraphRows) -> tuple[Ints, Ints]:
    """Node and graph of each activity: those its lineage leads to, else what the reader says."""
    event, answer = roots.event, roots.answer
    if not len(graphs.node_of_event):
        return np.broadcast_to(np.int32(-1), work.count), work.graph
    node = np.where(event >= 0, graphs.node_of_event[event], -1).astype(np.int32)[answer]
    graph = np.where(event >= 0, graphs.graph_of_event[event], -1).astype(np.int32)[answer]
    lacks = graph < 0
    return node, np.where(lacks, work.graph, graph) if lacks.any() else graph


def _complete_replays(execs: pa.Table, found: _Found, graph: Ints) -> tuple[pa.Table, ReplayRows]:
    """Fill exec and graph of each replay where all its nodes agree."""
    replays = found.replays
    row = replays.row_of(found.replay)
    lacks = replays.graph < 0
    source = np.where(lacks, _agreed(row, lacks, graph), replays.graph)
    open_ = replays.exec < 0
    native = np.full(len(open_), -1, dtype=np.int64)
    if open_.any():
        exec_id = np.where(found.work.has_node, found.work.node_id >> 32, -1)
        native = _agreed(row, open_, np.where(exec_id > 0, exec_id, -1))
    table, key = execs_of(execs, replays.process, native, source)
    return table, replace(replays, exec=np.where(open_, key, replays.exec), graph=source)


def _agreed(row: Ints, wanted: Bools, value: Ints) -> Ints:
    """For each replay that is wanted the value that its activities agree on, else -1."""
    if not wanted.any():
        return np.full(len(wanted), -1, dtype=np.int64)
    # Row -1 reaches the last entry.
    mine = rows_of(np.append(wanted, False)[row])
    return one_value(row[mine], value[mine], len(wanted))


def _times(
    tables: TableSet, opened: OpenStages, found: _Found, launch_gap_ns: int
) -> tuple[UnitTimes, EagerWork]:
    """Times by replay, else by batch, else by outermost range; what lies outside is eager."""
    work, owned = found.work, found.owned
    if len(found.replays.key):
        times = device_times("replay", work, owned.stage, found.replay, launch_gap_ns)
        return times, EagerWork(*eager_busy(work, found.replay))
    if (owned.batch >= 0).any():
        unit = owned.of_eager(owned.batch)
        times = device_times("batch", work, owned.stage, unit)
    else:
        unit = owned.of_eager(opened.ordinals(owned.root))
        times = device_times("range", work, owned.stage, unit)
    return times, EagerWork(*eager_busy(work, unit))


def _overlap_warning(times: UnitTimes | None) -> str | None:
    if times is None or not times.overlapping:
        return None
    unit = {"replay": "replays", "batch": "batches", "range": "top-level ranges"}[times.scope]
    return (
        f"{times.overlapping:,} of {times.units:,} {unit} overlap others on their device; the time "
        "they share is counted once."
    )


def _warnings(
    trace: Trace, opened: OpenStages, overlap: str | None, uncovered: str | None
) -> tuple[str, ...]:
    """What a person must read first, then what was known before."""
    first = [uncovered] if uncovered else []
    later = []
    if opened.crossing:
        later.append(
            f"{opened.crossing:,} NVTX ranges overlap an earlier range of their thread without "
            "lying inside it; what was launched while they were open has no stage."
        )
    if overlap:
        later.append(overlap)
    return tuple(dict.fromkeys([*first, *trace.warnings, *later]))
