# SPDX-License-Identifier: Apache-2.0
"""Reports built byte by byte: what the framing walk accepts, refuses, and where it says why."""

import contextlib
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest import ncu_actions
from graphtrace.ingest.ncu_frames import walk
from graphtrace.ingest.ncu_rep import read
from graphtrace.ingest.ncu_wire import fields
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputEmpty,
    InputTruncated,
    InputUnsupported,
    NoGpuWork,
    ToolMissing,
)

SECRET = "GT_CANARY=must-not-appear-in-any-output"


def number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def whole(tag: int, value: int) -> bytes:
    return number(tag << 3) + number(value)


def part(tag: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return number(tag << 3 | 2) + number(len(data)) + data


def sized(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def metric(name: int, value: float | int | str | None, instances: tuple[int, ...] = ()) -> bytes:
    def one(v: float | int | str) -> bytes:
        if isinstance(v, str):
            return part(1, v)
        return number(5 << 3) + number(v) if isinstance(v, int) else b"\x19" + struct.pack("<d", v)

    content = whole(1, name)
    if value is not None:
        content += part(2, one(value))
    for index, instance in enumerate(instances):
        content += part(3, part(1, one(index)) + part(2, one(instance)))
    return part(13, content)


@dataclass(frozen=True)
class Kernel:
    """One result to be written."""

    name: str = "kernel"
    process: int = 7
    metrics: dict[str, float | int | str | None] = field(
        default_factory=lambda: {"gpu__time_duration.sum": 1234.4, "launch__grid_dim_x": 3}
    )
    lock: tuple[int, int] = (1, 1)


def result(kernel: Kernel, names: dict[str, int]) -> bytes:
    size = whole(1, 1) + whole(2, 1) + whole(3, 1)
    content = whole(1, 1) + whole(2, 2) + whole(3, 3) + whole(4, 4)
    content += part(5, kernel.name) + part(6, kernel.name) + part(7, f"{kernel.name}(int)")
    content += whole(8, 3) + part(9, size) + part(10, size) + part(11, size)
    for name, value in kernel.metrics.items():
        content += metric(names[name], value, (5, 6) if name == "listed" else ())
    content += part(15, whole(1, 9)) + whole(22, 1) + whole(23, 7)
    return content + part(25, whole(1, kernel.lock[0]) + whole(2, kernel.lock[1]))


def block(header: bytes, messages: tuple[bytes, ...] = (), process: int = 7) -> bytes:
    payload = b"".join(sized(m) for m in messages)
    who = part(6, whole(1, process) + part(2, SECRET) + part(3, SECRET))
    return sized(header + whole(5, len(payload)) + who) + payload


def report(
    *kernels: Kernel, command: str | None = None, version: str | None = "2024.1.1.0 (build 3)"
) -> bytes:
    names: dict[str, int] = {}
    for kernel in kernels:
        for name in kernel.metrics:
            names.setdefault(name, len(names))
    out = b"NVR\0" + sized(whole(1, 7))
    out += block(whole(1, 0) + part(3, whole(2, 5) + part(9, part(1, SECRET) + part(4, SECRET))))
    for index, kernel in enumerate(kernels):
        table = part(4, b"".join(part(1, n) for n in names)) if not index else part(4, b"")
        out += block(whole(1, 0) + whole(2, 1) + table, (result(kernel, names),), kernel.process)
    if version is not None:
        info = part(8, part(1, "Nsight Compute Target") + part(2, version))
        out += block(part(3, info))
    if command is not None:
        out += block(part(3, part(11, command)))
    return out


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "made.ncu-rep"


def borders(data: bytes) -> set[int]:
    """Where a block ends, by `ncu_wire` alone: a file cut there is a whole, shorter one."""
    at = 8 + struct.unpack_from("<I", data, 4)[0]
    ends = set()
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        at += 4
        found = {n: value for n, _, value, _ in fields(data, at, at + size)}
        at += size + found.get(5, 0)
        ends.add(at)
    return ends


TWO = report(Kernel(), Kernel("other", 8), command="/opt/ncu --cache-control none -o x ./app")


def test_results_processes_and_mode_are_read(place: Path) -> None:
    place.write_bytes(TWO)
    source = read(place)
    assert source.nothing is None
    assert source.info.tool_version == "2024.1.1.0"
    rows = source.tables.tables["ncu_results"].to_pylist()
    assert [r["function"] for r in rows] == ["kernel", "other"]
    assert [r["process_id"] for r in rows] == [7, 8]
    assert [r["duration_ns"] for r in rows] == [1234, 1234]
    assert [r["grid_x"] for r in rows] == [3, 3]
    assert rows[0]["block_x"] is None
    assert {(r["cache"], r["clock"], r["replay_mode"]) for r in rows} == {
        ("warm", "base", "kernel")
    }
    assert source.tables.tables["processes"].column("pid").to_pylist() == [7, 8]


def test_a_lock_that_was_not_granted_is_no_known_clock(place: Path) -> None:
    place.write_bytes(report(Kernel(lock=(1, 0)), Kernel(), command="ncu ./app"))
    rows = read(place).tables.tables["ncu_results"].to_pylist()
    assert [r["clock"] for r in rows] == ["unknown", "base"]


def test_kinds_of_values(place: Path) -> None:
    values = {"real": 0.5, "big": 2**63 + 1, "zero": 0, "text": "abc", "none": None, "listed": 11}
    place.write_bytes(report(Kernel(metrics=values)))
    rows = {r["name"]: r for r in read(place).tables.tables["metrics"].to_pylist()}
    assert rows["real"]["value"] == 0.5
    assert rows["real"]["integer"] is None
    assert rows["big"]["integer"] == 2**63 + 1
    assert (rows["zero"]["value"], rows["zero"]["integer"]) == (0.0, 0)
    assert (rows["text"]["text"], rows["text"]["value"]) == ("abc", None)
    assert (rows["none"]["value"], rows["none"]["integer"], rows["none"]["text"]) == (None,) * 3
    assert rows["listed"]["instances"] == [5.0, 6.0]
    assert rows["real"]["instances"] is None


def test_nothing_of_host_or_environment_gets_out(place: Path) -> None:
    place.write_bytes(report(Kernel(), command=f"ncu -o x ./app {SECRET}"))
    source = read(place)
    seen = repr(source.info) + repr(source.warnings) + repr(walk(place))
    for table in source.tables.tables.values():
        seen += str(table.to_pydict())
    assert "CANARY" not in seen


def test_a_report_without_results_is_no_error_but_has_no_work(place: Path) -> None:
    place.write_bytes(report())
    source = read(place)
    assert isinstance(source.nothing, NoGpuWork)
    assert source.tables.rows("ncu_results") == 0


def test_a_report_without_a_version_may_be_short(place: Path) -> None:
    place.write_bytes(report(Kernel(), version=None))
    (warning,) = read(place).warnings
    assert "may be missing" in warning


def test_missing_package_names_another_way(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_bytes(TWO)
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ToolMissing, match="ncu-report is not installed") as caught:
        read(place)
    assert caught.value.exit_code == 5
    assert "--csv --page raw" in caught.value.do


MANY = [
    Kernel(
        f"kernel{i}",
        i,
        {"launch__grid_dim_x": i, "text": f"t{i % 3}", f"only{i}": i / 7, "listed": i},
    )
    for i in range(20)
]


def split(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(ncu_actions, "_HERE_BYTES", 0)
    monkeypatch.setattr(ncu_actions, "_PART_BYTES", part)


@pytest.mark.parametrize("part", [1500, 10**6])
def test_parts_read_elsewhere_are_the_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    place.write_bytes(report(*MANY, command="ncu x"))
    here = read(place)
    split(monkeypatch, part)
    there = read(place)
    assert len(ncu_actions._parts(walk(place))) == (1 if part > 1500 else 2)
    for name, table in here.tables.tables.items():
        assert there.tables.tables[name].to_pylist() == table.to_pylist(), name


def test_damage_seen_elsewhere_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The framing is whole; what lacks is a required field deep inside a message.
    broken = part(9, part(2, "x"))
    place.write_bytes(report(*MANY) + block(part(3, broken)))
    for size in (10**6, 1500):
        split(monkeypatch, size)
        with pytest.raises(InputCorrupt, match="damaged"):
            read(place)


def test_a_crash_of_the_reader_is_damage(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_bytes(report(*MANY))
    split(monkeypatch, 1500)
    crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda _, **options: real(crash, **options))
    with pytest.raises(InputCorrupt) as caught:
        read(place)
    assert "makes ncu-report crash" in caught.value.why


def test_where_no_process_can_start_parts_are_read_here(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write_bytes(report(*MANY))
    split(monkeypatch, 1500)
    real = subprocess.run
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda _, **options: real([sys.executable, "-c", "raise SystemExit(1)"], **options),
    )
    assert read(place).tables.rows("ncu_results") == len(MANY)


@pytest.mark.parametrize("name", ["a\nb.ncu-rep", "\x1b[31mred.ncu-rep", "b\udcff.ncu-rep"])
def test_hostile_names(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.write_bytes(TWO)
    assert read(place).tables.rows("ncu_results") == 2
    place.write_bytes(TWO[:-3])
    with pytest.raises(InputTruncated):
        read(place)


def test_every_cut_is_seen(place: Path) -> None:
    whole_ends = borders(TWO)
    assert len(TWO) in whole_ends
    for length in range(4, len(TWO)):
        place.write_bytes(TWO[:length])
        if length in whole_ends:
            walk(place)
        else:
            with pytest.raises(InputTruncated, match="cut short"):
                walk(place)


def test_empty_and_foreign(place: Path) -> None:
    place.write_bytes(b"")
    with pytest.raises(InputEmpty):
        walk(place)
    place.write_bytes(b"NVIDIA")
    with pytest.raises(InputUnsupported):
        walk(place)


def _message(*, header: bytes = b"", messages: tuple[bytes, ...] = ()) -> bytes:
    return b"NVR\0" + sized(whole(1, 7)) + block(header, messages)


GOOD = result(Kernel(metrics={"m": 1.0}), {"m": 0})
TABLE = part(4, part(1, "m"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"NVR\0" + sized(b""), "claims 0 bytes"),
        (b"NVR\0" + struct.pack("<I", 2**31), "claims 2147483648 bytes"),
        (b"NVR\0" + sized(whole(2, 7)), "has no version"),
        (b"NVR\0" + sized(whole(1, 7)) + bytes(8), "has a header of no bytes"),
        (b"NVR\0" + sized(whole(1, 7)) + b"\xff\xff\xff\xff", "more than any message"),
        (_message(header=b"\x00\x01"), "without a number"),
        (_message(header=b"\x0f"), "no known type"),
        (_message(header=b"\x80" * 11), "does not end"),
        (_message(header=part(1, b"x")), "header field of the wrong type"),
        (_message(header=whole(2, 1)), "announces 1 messages and has 0"),
        (_message(messages=(GOOD,)), "announces 0 messages and has 1"),
        (_message(header=whole(2, 1), messages=(GOOD,)), "string tables do not have"),
        (_message(header=part(4, part(1, b"\xff"))), "holds no text"),
        (_message(header=part(4, whole(1, 3))), "holds something else"),
        (_message(header=whole(2, 1) + TABLE, messages=(whole(1, 1),)), "without a name"),
        (_message(header=whole(2, 1) + TABLE, messages=(GOOD + whole(13, 1),)), "wrong type"),
        (
            _message(header=whole(2, 1) + TABLE, messages=(GOOD + part(13, whole(4, 1)),)),
            "metric without a name",
        ),
        (
            _message(
                header=whole(2, 1) + TABLE,
                messages=(GOOD + part(13, whole(1, 0) + part(2, whole(9, 1))),),
            ),
            "no known kind",
        ),
        (
            _message(
                header=whole(2, 1) + TABLE,
                messages=(GOOD + part(13, whole(1, 0) + part(2, whole(3, 1))),),
            ),
            "value of the wrong type",
        ),
    ],
)
def test_what_contradicts_itself_is_named(place: Path, data: bytes, why: str) -> None:
    place.write_bytes(data)
    with pytest.raises(InputCorrupt) as caught:
        walk(place)
    assert why in caught.value.why


def test_unknown_fields_of_newer_versions_are_stepped_over(place: Path) -> None:
    future = whole(90, 1) + part(91, b"x") + number(92 << 3 | 5) + bytes(4)
    header = whole(2, 1) + TABLE + future
    place.write_bytes(_message(header=header, messages=(GOOD + future,)))
    assert [r.function for r in walk(place).results] == ["kernel"]


@given(
    st.lists(
        st.builds(
            Kernel,
            name=st.text(min_size=1, max_size=20),
            process=st.integers(0, 2**32 - 1),
            metrics=st.dictionaries(
                st.text(min_size=1, max_size=8),
                st.none() | st.integers(0, 2**64 - 1) | st.floats() | st.text(max_size=5),
                min_size=1,
                max_size=5,
            ),
        ),
        max_size=4,
    )
)
def test_walk_finds_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[Kernel]
) -> None:
    place = tmp_path_factory.getbasetemp() / "written.ncu-rep"
    place.write_bytes(report(*kernels, command="ncu x"))
    found = walk(place)
    assert [r.function for r in found.results] == [k.name for k in kernels]
    assert [r.metrics for r in found.results] == [len(k.metrics) for k in kernels]
    assert [r.process_id for r in found.results] == [k.process for k in kernels]
    assert found.command_lines == ("ncu x",)


@given(st.data())
def test_any_damage_is_an_answer_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.getbasetemp() / "damaged.ncu-rep"
    content = bytearray(TWO)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    place.write_bytes(content)
    try:
        walk(place)
    except GraphtraceError as error:
        assert error.exit_code == 3
        assert all(sentence.endswith(".") for sentence in (error.what, error.why, error.do))


@given(st.binary(max_size=200))
def test_any_bytes_after_the_magic(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    place = tmp_path_factory.getbasetemp() / "noise.ncu-rep"
    place.write_bytes(b"NVR\0" + data)
    with contextlib.suppress(InputCorrupt, InputTruncated):
        walk(place)
