# SPDX-License-Identifier: Apache-2.0
"""Reader of traces of the PyTorch profiler: Kineto's JSON, plain or gzip."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from graphtrace.ingest.kineto_events import collect
from graphtrace.ingest.kineto_scan import Document
from graphtrace.ingest.kineto_sentences import no_trace, no_work, warnings_of
from graphtrace.ingest.kineto_stream import pieces
from graphtrace.ingest.kineto_tables import collect_replays, device_tables, host_tables
from graphtrace.ingest.kineto_values import LATE
from graphtrace.ingest.kineto_work import KINDS, collect_parts
from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.server_steps import server_steps
from graphtrace.ingest.source import Source
from graphtrace.model.trace import InputInfo, TableSet

__all__ = ["SYNTHETIC_MARK", "read"]

SYNTHETIC_MARK: Final = "graphtrace_synthetic"
"""Value of the header that `graphtrace.testing` leaves in the files it builds."""
_TOOL: Final = "PyTorch profiler"
_AMD: Final = ("roctracer_version", "hip_runtime_version", "hip_driver_version")


def read(path: Path) -> Source:
    """Read a trace that `torch.profiler` exported, of 2021 or later.

    Of the header only devices, the rank, the time base and version marks are read: names of
    hosts, users, files and process groups stay in the file. The profiler's own steps become
    batches, annotations ranges; operators and Python functions are neither.

    The lexical structure of the whole text is checked, and every value that is used; what is not
    used is not. Of two members with one name the last one counts.

    Args:
        path: the file, plain or gzip.

    Returns:
        Processes, devices, api_calls, ranges, batches, activities, replays and execs, as far as the
        trace has them, and the quarantine. `stage`, `node` and the way they were found are null.
        Times are those of the host's clock where the trace has a base for them.

    Raises:
        InputMissing, InputEmpty: there is nothing to read.
        InputTruncated: the JSON or the gzip stream ends too early.
        InputCorrupt: it is no JSON, or no gzip.
        InputUnsupported: it is JSON and no trace of this profiler, or unpacks to absurd size.
    """
    document = Document(path, pieces(path))
    events = collect(document)
    header = document.header
    info = InputInfo(str(path), "kineto", _TOOL, None, SYNTHETIC_MARK in header)
    rows = len(events.device["kind"]) + len(events.host["kind"])
    if not rows and not {"schemaVersion", "deviceProperties"} & header.keys():
        raise no_trace(path, listed=document.listed)
    quarantine = Quarantine()
    parts = collect_parts(events, quarantine)
    base = _base(header)
    tables = host_tables(parts, base, _rank(header))
    kinds = parts.work.get("kind")
    if not (kinds < KINDS.index("memset")).any():
        tables["quarantine"] = quarantine.table()
        nothing = no_work(path, parts, quarantine)
        return Source(info, TableSet(tables), nothing=nothing)
    replayed = collect_replays(parts)
    amd = any(name in header for name in _AMD)
    facts = _devices(header, amd=amd)
    tables |= device_tables(parts, replayed, facts, base)
    steps = server_steps(tables["ranges"], tables.get("batches"))
    if steps is not None:
        tables["batches"] = steps
    tables["quarantine"] = quarantine.table()
    return Source(info, TableSet(tables), warnings_of(parts, replayed, facts))


def _base(header: Mapping[str, Any]) -> int:
    """What times count from, ns; before 2024 they were absolute."""
    base = _whole(header.get("baseTimeNanoseconds"))
    return base if base is not None and base < LATE else 0


def _rank(header: Mapping[str, Any]) -> int | None:
    found = header.get("distributedInfo")
    rank = _whole(found.get("rank")) if isinstance(found, dict) else None
    return rank if rank is not None and rank < 1 << 31 else None


def _whole(value: Any) -> int | None:
    """The value where it is a number of 0 or more without a fraction."""
    known = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if known and value >= 0 else None


def _devices(header: Mapping[str, Any], *, amd: bool) -> dict[int, dict[str, Any]]:
    """Facts of each device by ordinal; one that is described twice is not known.

    What HIP calls compute capability is another thing than CUDA's, and is left out.
    """
    found: dict[int, dict[str, Any]] = {}
    listed = header.get("deviceProperties")
    for entry in listed if isinstance(listed, list) else []:
        ordinal = _whole(entry.get("id")) if isinstance(entry, dict) else None
        if ordinal is not None:
            found[ordinal] = {} if ordinal in found else _facts(entry, amd=amd)
    return found


def _facts(entry: Mapping[str, Any], *, amd: bool) -> dict[str, Any]:
    name = entry.get("name")
    threads, warp = _count(entry, "maxThreadsPerMultiprocessor"), _count(entry, "warpSize")
    major = None if amd else _count(entry, "computeMajor", most=1 << 15)
    minor = _whole(entry.get("computeMinor"))
    return {
        "name": name if isinstance(name, str) and name else None,
        "sm_count": _count(entry, "numSms"),
        "l2_bytes": _count(entry, "l2CacheSize", most=LATE),
        "cc_major": major,
        "cc_minor": minor if major and minor is not None and minor < 1 << 15 else None,
        "max_warps_per_sm": threads // warp if threads and warp and threads % warp == 0 else None,
    }


def _count(entry: Mapping[str, Any], name: str, *, most: int = 1 << 31) -> int | None:
    """A number that no device has 0 of; None where it is absent or cannot be true."""
    value = _whole(entry.get(name))
    return value if value and value < most else None
