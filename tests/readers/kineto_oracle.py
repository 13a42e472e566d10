# SPDX-License-Identifier: Apache-2.0
"""What a trace says, read slowly with `json` and one dict an event: the oracle of the reader."""

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pyarrow as pa

from graphtrace.ingest.source import Source

CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "runtime": "call",
    "driver": "call",
    "user_annotation": "range",
}
PLACES = {"H": "Host", "D": "Device", "A": "Array"}
LATE = 1 << 62
DAY = 86_400 * 10**9
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?")


@dataclass
class Expected:
    """Rows as sorted tuples, and how many were refused."""

    work: list[tuple[Any, ...]] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    ranges: list[tuple[Any, ...]] = field(default_factory=list)
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    replays: list[tuple[Any, ...]] = field(default_factory=list)
    refused: int = 0


def integer(value: Any) -> int | None:
    """A JSON integer, or a text that holds one."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < 1 << 63 else None


def nanoseconds(value: Any) -> int | None:
    """Microseconds as ns, rounded half to even."""
    if isinstance(value, str):
        value = value.strip()
        value = Decimal(value) if NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if not -30 < Decimal(value).adjusted() < 30:
        return 0 if Decimal(value).adjusted() <= -30 else None
    exact = int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))
    return exact if abs(exact) < LATE else None


def least(value: Any, bound: int, most: int = (1 << 63) - 1) -> int | None:
    """An integer within bounds."""
    number = integer(value)
    return number if number is not None and bound <= number <= most else None


def triple(value: Any) -> tuple[int | None, ...]:
    """The three extents of a grid or block."""
    good = isinstance(value, list) and len(value) == 3
    good = good and not any(isinstance(part, list | dict) for part in value)
    return tuple(least(part, 1) for part in value) if good else (None, None, None)


def first(*values: Any) -> int | None:
    """The first that is an integer."""
    return next((n for n in map(integer, values) if n is not None), None)


def lane(value: Any) -> Any:
    """A stream, without the word that stood before it in 2021."""
    return value[7:] if isinstance(value, str) and value.startswith("stream ") else value


def standard(name: str | None) -> str | None:
    """A copy or memset in the spelling of nsys."""
    copy = re.match(r"Memcpy ([HDA])to([HDA])\b", name or "")
    if copy:
        return f"{PLACES[copy[1]]}-to-{PLACES[copy[2]]}"
    if (name or "").startswith("Memcpy PtoP"):
        return "Peer-to-Peer"
    return "Memset" if (name or "").startswith("Memset (") else name


def expected(data: bytes) -> Expected:
    """Read a trace of one process."""
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    document = json.loads(data.decode("utf-8-sig", "replace"), parse_float=Decimal, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    base = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    base = base if isinstance(base, int) and not isinstance(base, bool) else 0
    base = base if 0 <= base < LATE else 0
    found = Expected()
    members: dict[int, list[tuple[Any, ...]]] = {}
    launches: set[int] = set()
    work = []
    for event in events:
        category, kind = event.get("cat"), None
        if isinstance(category, str) and event.get("ph") == "X":
            kind = CATEGORIES.get(category.lower())
        if kind is None:
            continue
        args = event.get("args") if isinstance(event.get("args"), dict) else {}
        begin, dur = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
        name = event.get("name") if isinstance(event.get("name"), str) else None
        name = None if name is None else name.encode("utf-8", "replace").decode()
        tid = first(event.get("tid"), lane(event.get("tid")))
        good = begin is not None and dur is not None and begin > 0 and 0 <= dur <= DAY
        good = good and 0 < begin + dur < LATE
        correlation = least(args.get("correlation"), 1)
        if kind in ("call", "range"):
            if not good or tid is None:
                found.refused += 1
            elif kind == "call":
                launch = "graphlaunch" in (name or "").lower()
                row = (name or "", tid, begin + base, begin + dur + base, correlation)
                found.calls.append(row)
                launches |= {correlation} if launch and correlation else set()
            else:
                step = re.fullmatch(r"ProfilerStep#\d+", name or "", re.ASCII)
                row = (name or "", tid, begin + base, begin + dur + base)
                (found.steps if step else found.ranges).append(row)
                if (name or "").startswith("execute_") and "_generation_" in (name or ""):
                    found.steps.append(row)  # a step of vLLM, and a range of the program
            continue
        device = first(args.get("device"), args.get("inDevice"), event.get("pid"))
        stream = first(args.get("stream"), tid)
        usable = device is not None and 0 <= device < (1 << 31) - 1 and stream is not None
        if not good or not usable:
            found.refused += 1
            continue
        most = (1 << 31) - 1
        work.append(
            (
                kind,
                standard(name),
                begin + base,
                begin + dur + base,
                device,
                least(first(args.get("context"), args.get("inContext")), 0, most),
                stream,
                correlation,
                *triple(args.get("grid")),
                *triple(args.get("block")),
                least(args.get("registers per thread"), 0, most),
                least(args.get("shared memory"), 0),
                least(args.get("bytes"), 0),
                least(args.get("graph node id"), 1),
            )
        )
    taken: set[tuple[int, int]] = set()
    for row in sorted(work, key=order):
        correlation, node = row[7], row[-1]
        if correlation and node:
            if (correlation, node) in taken:
                found.refused += 1
                continue
            taken.add((correlation, node))
        found.work.append(row)
        if correlation and (node or correlation in launches):
            members.setdefault(correlation, []).append(row)
    found.replays = sorted(
        (number, len(rows), min(r[2] for r in rows), max(r[3] for r in rows))
        for number, rows in members.items()
    )
    for rows in (found.work, found.calls, found.ranges, found.steps):
        rows.sort(key=order)
    return found


def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key by which rows with nulls can be sorted, by begin first."""
    return (row[2], row[3], *((cell is not None, cell) for cell in row))


def read_as(source: Source) -> Expected:
    """The reader's tables in the oracle's form."""
    tables = source.tables
    devices = tables.get("devices").column("ordinal").to_pylist()
    work = [
        (
            row["kind"],
            row["name"],
            row["begin_ns"],
            row["end_ns"],
            devices[row["device"]],
            row["context"],
            row["stream"],
            row["correlation"],
            *(row[f"{size}_{axis}"] for size in ("grid", "block") for axis in "xyz"),
            row["registers"],
            row["shared_bytes"],
            row["bytes"],
            row["node_native_id"],
        )
        for row in tables.get("activities").to_pylist()
    ]
    sizes = Counter(tables.get("activities").column("replay").to_pylist())
    return Expected(
        work=sorted(work, key=order),
        calls=rows(tables.get("api_calls"), "name thread begin_ns end_ns correlation"),
        ranges=rows(tables.get("ranges"), "text thread begin_ns end_ns"),
        steps=rows(tables.get("batches"), "label thread begin_ns end_ns"),
        replays=sorted(
            (row["correlation"], sizes[row["replay"]], row["begin_ns"], row["end_ns"])
            for row in tables.get("replays").to_pylist()
        ),
        refused=sum(tables.get("quarantine").column("count").to_pylist()),
    )


def rows(table: pa.Table, names: str) -> list[tuple[Any, ...]]:
    """Some columns as sorted tuples."""
    return sorted(
        (tuple(row[name] for name in names.split()) for row in table.to_pylist()), key=order
    )
