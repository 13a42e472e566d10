# SPDX-License-Identifier: Apache-2.0
"""Results of a report as `ncu_report` gives them, in this process or, of large reports, in others.

`ncu_report` 2026.3.1 never gives back what it has read: 1.3 MB stay for each result of 90 KB, 4 MB
for one of 660 KB, and closing the report frees nothing. A report of some thousand results would
fill the memory, so its results are read in parts, each by a process that ends afterwards.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc

from graphtrace.ingest.ncu_frames import Report
from graphtrace.ingest.ncu_metrics import Facts, MetricColumns
from graphtrace.ingest.ncu_wire import Damage

__all__ = ["Gathered", "gather", "main", "nothing_gathered"]

_HERE_BYTES: Final = 8 << 20
"""Up to here results are read in this process; that keeps about 100 MB for good."""
_PART_BYTES: Final = 16 << 20
_PROCESSES: Final = 4
_PART_SECONDS: Final = 300
"""A part takes 2 s; nothing that passed the walk has ever hung."""

_WORKLOADS: Final = {0: "kernel", 1: "range", 2: "cmdlist", 3: "graph"}
"""By `ncu_report.IAction.WorkloadType_*`; a subgrid schedule (4) is no workload of ours."""
_META: Final = b"results"
_DAMAGED: Final = 3


@dataclass(frozen=True, slots=True)
class Gathered:
    """Results in the order of the report.

    Attributes:
        names: demangled name, one a result; so are the next three.
        functions: function name.
        workloads: kernel, range, graph, cmdlist or unknown.
        facts: values of the metrics that were asked for.
        metrics: the table `metrics`, whose key `result` counts from 0.
    """

    names: list[str]
    functions: list[str | None]
    workloads: list[str]
    facts: list[Facts]
    metrics: pa.Table


def nothing_gathered() -> Gathered:
    """No result at all."""
    return Gathered([], [], [], [], MetricColumns(()).table())


def gather(path: Path, report: Report, wanted: Sequence[str]) -> Gathered:
    """Read all results of a report that `walk` found whole.

    Args:
        path: the report.
        report: what the walk found.
        wanted: metrics whose values go to `facts`.

    Raises:
        ImportError: the package `ncu_report` is not installed.
        Damage: a result cannot be read.
    """
    import_module("ncu_report")
    parts = _parts(report)
    if len(parts) == 1 or not sys.executable:
        return _gather_here(path, 0, None, wanted)
    with ThreadPoolExecutor(min(_PROCESSES, os.cpu_count() or 1)) as pool:
        read = list(pool.map(lambda part: _gather_there(path, part[0], part[1], wanted), parts))
    table = pa.concat_tables([one.metrics for one in read]).unify_dictionaries().combine_chunks()
    return Gathered(
        [name for one in read for name in one.names],
        [function for one in read for function in one.functions],
        [workload for one in read for workload in one.workloads],
        [fact for one in read for fact in one.facts],
        table,
    )


def _parts(report: Report) -> list[tuple[int, int | None]]:
    """Numbers of the first result of each part and of the one after its last."""
    if sum(r.size for r in report.results) <= _HERE_BYTES:
        return [(0, None)]
    starts, filled = [0], 0
    for index, result in enumerate(report.results):
        if filled and filled + result.size > _PART_BYTES:
            starts.append(index)
            filled = 0
        filled += result.size
    return list(zip(starts, [*starts[1:], None], strict=True))


def _gather_here(path: Path, start: int, stop: int | None, wanted: Sequence[str]) -> Gathered:
    names: list[str] = []
    functions: list[str | None] = []
    workloads: list[str] = []
    facts: list[Facts] = []
    metrics = MetricColumns(wanted)
    try:
        for action in islice(_actions(path, start), None if stop is None else stop - start):
            workload = _WORKLOADS.get(action.workload_type(), "unknown")
            name, function = action.name(action.NameBase_DEMANGLED), action.name()
            if workload == "kernel" and not (name and function):
                raise Damage("has a result without a name")
            facts.append(metrics.add(start + len(names), action))
            names.append(name or function or workload)
            functions.append(function)
            workloads.append(workload)
    except UnicodeDecodeError:
        raise Damage("has a name that is no text") from None
    except (RuntimeError, SystemError, IndexError, ValueError, MemoryError) as error:
        # What the package raises on inconsistent content is not documented.
        raise Damage(f"cannot be read by ncu-report ({type(error).__name__})") from None
    return Gathered(names, functions, workloads, facts, metrics.table())


def _actions(path: Path, start: int) -> Iterator[Any]:
    """Results of all ranges from a number on."""
    import ncu_report

    with _loadable(path) as name:
        with _quiet():
            context = ncu_report.load_report(name)
        for number in range(context.num_ranges()):
            one = context.range_by_idx(number)
            count = one.num_actions()
            for index in range(min(start, count), count):
                with _quiet():
                    action = one.action_by_idx(index)
                yield action
            start -= min(start, count)


@contextlib.contextmanager
def _loadable(path: Path) -> Iterator[str]:
    """A name for the file that ncu_report takes: it refuses names that are not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield f"/dev/fd/{file.fileno()}"
    else:
        yield str(path)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the C++ library writes to stderr about damage from mixing with our sentences.

    Only opening a file and a result writes, so nobody else's words are lost for longer than that.
    """
    try:
        kept = os.dup(2)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _gather_there(path: Path, start: int, stop: int | None, wanted: Sequence[str]) -> Gathered:
    """Read some results in a process of their own."""
    asked = json.dumps({"start": start, "stop": stop, "wanted": list(wanted)})
    # -P: whatever lies in the working directory is not to be taken for a module.
    command = [sys.executable, "-P", "-m", __name__, os.fspath(path.absolute()), asked]
    places = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PART_SECONDS,
            env={**os.environ, "PYTHONPATH": places},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Damage("keeps ncu-report busy without end") from None
    if done.returncode == _DAMAGED:
        raise Damage(done.stdout.decode("utf-8", "replace"))
    if 0 < done.returncode < 256:
        # Not the report's fault: Python itself could not start or import there.
        return _gather_here(path, start, stop, wanted)
    if done.returncode:
        raise Damage("makes ncu-report crash")
    table = pa.ipc.open_stream(done.stdout).read_all()
    found = json.loads(table.schema.metadata[_META])
    # What was written is the declared schema with our words added to its metadata.
    return Gathered(
        found["names"],
        found["functions"],
        found["workloads"],
        found["facts"],
        table.cast(MetricColumns(()).table().schema),
    )


def main(arguments: Sequence[str]) -> int:
    """Read the results that `_gather_there` asks for and write them to stdout.

    Args:
        arguments: the report, and a JSON object that says which results and metrics.

    Returns:
        0, or 3 where the report is damaged; the half sentence that says how is on stdout.
    """
    path, asked = Path(arguments[0]), json.loads(arguments[1])
    try:
        read = _gather_here(path, asked["start"], asked["stop"], asked["wanted"])
    except Damage as damage:
        sys.stdout.buffer.write(damage.why.encode())
        return _DAMAGED
    words = {
        "names": read.names,
        "functions": read.functions,
        "workloads": read.workloads,
        "facts": read.facts,
    }
    table = read.metrics.replace_schema_metadata({_META: json.dumps(words).encode()})
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
        stream.write_table(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
