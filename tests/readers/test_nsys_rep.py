# SPDX-License-Identifier: Apache-2.0
"""Reports of nsys through an nsys that is faked, and through the installed one where there is."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nsys_samples import assert_same, edit, parquet_of, small

from graphtrace.ingest.nsys_rep import read
from graphtrace.ingest.nsys_sqlite import read as read_sqlite
from graphtrace.ingest.tool_run import run_tool
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputTruncated,
    InputUnsupported,
    ToolMissing,
    UsageError,
)
from graphtrace.testing.nsys import NsysExport

MAGIC = b"NVIDIA Tegra Profiler Report 1.\n"
HELP = "--lazy=  --quiet=  --type=  Possible values are: sqlite, hdf, text"
FAKE = """#!{python} -I
import os, pathlib, shutil, subprocess, sys, time
here = pathlib.Path({here!r})
arguments = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(repr(arguments) + "\\n")
if arguments == ["--version"]:
    print("NVIDIA Nsight Systems version 2199.1.2.3-abc")
    sys.exit()
if arguments == ["export", "--help"]:
    print({help!r})
    sys.exit()
target = pathlib.Path(arguments[arguments.index("--output") + 1])
report = pathlib.Path(arguments[-1])
assert report.read_bytes().startswith(b"NVIDIA Tegra")
assert sys.stdin.read() == ""
export = here / "export"
def copy():
    shutil.copytree(export, target) if export.is_dir() else shutil.copy(export, target)
{body}
"""


class Fake:
    """A folder with an nsys of our making, a report, and what that nsys exports."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.report = folder / "mine.nsys-rep"
        self.report.write_bytes(MAGIC + bytes(100))
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setenv("TMPDIR", str(self.temporary))
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.delenv("GRAPHTRACE_NSYS", raising=False)
        monkeypatch.delenv("GRAPHTRACE_NSYS_TIMEOUT", raising=False)

    def nsys(self, body: str, help_: str = HELP, name: str = "nsys") -> Path:
        """Write a program that does this when it shall export."""
        program = self.bin / name
        text = FAKE.format(python=sys.executable, here=str(self.folder), help=help_, body=body)
        program.write_text(text)
        program.chmod(0o755)
        return program

    def fails(self, kind: type[GraphtraceError]) -> GraphtraceError:
        """The error of reading the report; it names no temporary file and leaves none."""
        with pytest.raises(kind) as caught:
            read(self.report)
        error = caught.value
        for sentence in (error.what, error.why, error.do):
            assert sentence and "\n" not in sentence
            assert "graphtrace-nsys-" not in sentence
        assert str(self.report) in error.what
        self.left_nothing()
        return error

    def left_nothing(self) -> None:
        assert list(self.temporary.iterdir()) == []
        names = {"bin", "tmp", "mine.nsys-rep", "export", "calls"}
        names |= {"s.sqlite", "pids", "mine.sqlite"}
        assert {entry.name for entry in self.folder.iterdir()} <= names


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


def test_an_old_nsys_exports_sqlite(fake: Fake) -> None:
    fake.nsys("copy()")
    small(fake.folder / "export")
    source = read(fake.report)
    assert_same(source, read_sqlite(fake.folder / "export"))
    assert (source.info.path, source.info.kind) == (str(fake.report), "nsys_rep")
    assert (source.info.tool, source.info.tool_version) == ("nsys", "2025.3.1.90")
    calls = (fake.folder / "calls").read_text()
    assert "'--type=sqlite', '--force-overwrite=true', '--lazy=true', '--quiet=true'" in calls
    fake.left_nothing()


@pytest.mark.parametrize("rename", ["", "target = target.with_name('export_pqtdir')\n"])
def test_a_new_nsys_exports_parquet(fake: Fake, rename: str) -> None:
    fake.nsys(rename + "copy()", HELP + ", parquetdir, arrowdir")
    path = small(fake.folder / "s.sqlite")
    parquet_of(path, fake.folder / "export")
    source = read(fake.report)
    assert_same(source, read_sqlite(path))
    assert source.info.kind == "nsys_rep"
    assert "'--type=parquetdir'" in (fake.folder / "calls").read_text()
    fake.left_nothing()


def test_a_help_without_words_and_a_report_of_another_name(fake: Fake) -> None:
    fake.nsys("assert report.suffix == '.nsys-rep'\ncopy()", "")
    small(fake.folder / "export")
    fake.report = fake.report.rename(fake.folder / "-o")
    assert read(fake.report).info.path == str(fake.report)
    assert "--lazy" not in (fake.folder / "calls").read_text()


def test_an_export_beside_the_report_is_neither_used_nor_touched(fake: Fake) -> None:
    fake.nsys("copy()")
    small(fake.folder / "export", replays=3)
    stale = small(fake.folder / "mine.sqlite", replays=5)
    before = stale.read_bytes()
    assert read(fake.report).tables.rows("replays") == 3
    assert stale.read_bytes() == before
    fake.left_nothing()


def test_no_gpu_work_names_the_report(fake: Fake) -> None:
    fake.nsys("copy()")
    export = NsysExport()
    with export.process(1).range("x"):
        pass
    export.write(fake.folder / "export")
    source = read(fake.report)
    assert source.nothing is not None
    assert str(fake.report) in source.nothing.what


def test_without_nsys(fake: Fake) -> None:
    error = fake.fails(ToolMissing)
    assert error.exit_code == 5
    assert "nsys export --type sqlite mine.nsys-rep" in error.do


def test_the_environment_names_another_nsys(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.nsys("sys.exit(3)")
    small(fake.folder / "export")
    monkeypatch.setenv("GRAPHTRACE_NSYS", str(fake.nsys("copy()", name="nsys-new")))
    assert read(fake.report).tables.rows("replays") == 7
    monkeypatch.setenv("GRAPHTRACE_NSYS", "nsys-new")
    assert read(fake.report).tables.rows("replays") == 7
    monkeypatch.setenv("GRAPHTRACE_NSYS", "/no/nsys\x1b[31m")
    error = fake.fails(ToolMissing)
    assert "GRAPHTRACE_NSYS" in error.what
    assert "\x1b" not in str(error)


def test_an_nsys_that_cannot_be_started(fake: Fake) -> None:
    (fake.bin / "nsys").write_bytes(b"\x7fELF nonsense")
    (fake.bin / "nsys").chmod(0o755)
    assert fake.fails(ToolMissing).exit_code == 5


def test_its_last_line_is_said_in_one_clean_line(fake: Fake) -> None:
    fake.nsys(
        "print('Processing', report)\n"
        "print('first', file=sys.stderr)\n"
        "print('\\x1b[31mbad\\ttable in', target, '\\u202e' + 'x' * 999, file=sys.stderr)\n"
        "print(file=sys.stderr)\n"
        "sys.exit(9)"
    )
    error = fake.fails(InputError)
    assert error.exit_code == 3
    assert "ended with 9" in error.why
    assert "bad table in" in error.why and "\x1b" not in error.why and "\u202e" not in error.why
    assert len(error.why) < 300
    assert "2199.1.2.3" in error.what


def test_an_nsys_that_dies(fake: Fake) -> None:
    fake.nsys("copy()\nos.kill(os.getpid(), 11)")
    small(fake.folder / "export")
    assert "signal 11" in fake.fails(InputError).why


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_nsys_that_is_too_old(fake: Fake, code: int, stream: str) -> None:
    fake.nsys(
        "copy()\n"
        f"print('Warning: the report has been created by a newer version', file=sys.{stream})\n"
        f"print('Done.', file=sys.stderr)\nsys.exit({code})"
    )
    small(fake.folder / "export")
    error = fake.fails(InputUnsupported)
    assert "too old" in error.what
    assert "newer version" in error.why


def test_a_newer_release_that_is_advertised_is_no_error(fake: Fake) -> None:
    line = "A newer version of Nsight Systems is available."
    fake.nsys(f"copy()\nprint({line!r}, file=sys.stderr)")
    small(fake.folder / "export")
    assert read(fake.report).tables.rows("replays") == 7


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("lost", ["META_DATA_EXPORT", "ANALYSIS_DETAILS"])
def test_a_part_of_an_export_is_not_taken_for_one_without_work(
    fake: Fake, code: int, lost: str
) -> None:
    fake.nsys(f"copy()\nsys.exit({code})")
    edit(
        small(fake.folder / "export"),
        f"DROP TABLE {lost}",
        "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
    )
    error = fake.fails(InputError)
    assert error.exit_code == 3
    if not code:
        assert isinstance(error, InputUnsupported)
        assert "only a part" in error.what
        assert "half-way" in error.why


def test_a_part_of_a_parquet_export(fake: Fake) -> None:
    fake.nsys("copy()", HELP + ", parquetdir")
    folder = parquet_of(small(fake.folder / "s.sqlite"), fake.folder / "export")
    (folder / "ANALYSIS_DETAILS.parquet").unlink()
    assert "only a part" in fake.fails(InputUnsupported).what


def test_an_export_with_a_journal_beside_it(fake: Fake) -> None:
    fake.nsys(
        "copy()\n"
        "journal = target.with_name(target.name + '-journal')\n"
        "journal.write_bytes(bytes.fromhex('d9d505f920a163d7') + bytes(99))"
    )
    small(fake.folder / "export")
    assert "only a part" in fake.fails(InputUnsupported).what


def test_an_nsys_that_writes_nothing(fake: Fake) -> None:
    fake.nsys("print('all done')")
    assert "exported nothing" in fake.fails(InputError).what


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", InputEmpty),
        (b"rubbish", InputUnsupported),
        (b"SQLite format 3\0" + bytes(20), InputTruncated),
        (b"SQLite format 3\0" + b"\xff" * 5000, InputError),
    ],
)
def test_an_nsys_that_writes_rubbish(
    fake: Fake, content: bytes, kind: type[GraphtraceError]
) -> None:
    fake.nsys("copy()")
    (fake.folder / "export").write_bytes(content)
    assert "cannot be read" in fake.fails(kind).what


def test_a_folder_of_rubbish(fake: Fake) -> None:
    fake.nsys("copy()", HELP + ", parquetdir")
    folder = parquet_of(small(fake.folder / "s.sqlite"), fake.folder / "export")
    path = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert "cannot be read" in fake.fails(InputTruncated).what


def test_an_nsys_that_prints_rubbish(fake: Fake) -> None:
    fake.nsys(
        "for _ in range(300):\n"
        "    os.write(1, os.urandom(9999))\n"
        "    os.write(2, bytes(range(256)) * 9)\n"
        "copy()"
    )
    small(fake.folder / "export")
    assert read(fake.report).tables.rows("replays") == 7
    fake.nsys("os.write(2, bytes(range(256)) * 999)\nsys.exit(1)")
    assert len(fake.fails(InputError).why) < 300


HANG = """
children = [
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=new)
    for new in (False, True)
]
text = " ".join(str(pid) for pid in (os.getpid(), *(child.pid for child in children)))
(here / "pids.new").write_text(text)
(here / "pids.new").rename(here / "pids")
target.write_bytes(b"SQLite format 3")
while True:
    time.sleep(0.01)
    print("still at it", flush=True)
"""


def gone(fake: Fake) -> bool:
    """Whether the processes of a hanging nsys ended, or soon do."""
    pids = [int(pid) for pid in (fake.folder / "pids").read_text().split()]
    assert len(pids) == 3
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if not any(running(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


# A shell lets what it runs in the background ignore interrupts, and children inherit that.
HEEDING = (
    "import runpy, signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "runpy.run_module('graphtrace', run_name='__main__')\n"
)


def running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@proc
def test_an_nsys_that_hangs_is_killed_with_its_children(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.nsys(HANG)
    monkeypatch.setenv("GRAPHTRACE_NSYS_TIMEOUT", "3")
    error = fake.fails(InputError)
    assert error.exit_code == 3
    assert "3 seconds" in error.what
    assert "GRAPHTRACE_NSYS_TIMEOUT" in error.do
    assert gone(fake)


@proc
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_kills_it_too(fake: Fake, times: int) -> None:
    fake.nsys(HANG)
    command = [sys.executable, "-c", HEEDING, "analyze", str(fake.report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        limit = time.monotonic() + 60
        while not (fake.folder / "pids").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        for _ in range(times):
            started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert out == b""
    assert b"Traceback" not in err
    assert gone(fake)
    if times == 1:
        fake.left_nothing()


@proc
def test_a_child_that_outlives_nsys_is_killed(fake: Fake) -> None:
    child = HANG.partition("target.write")[0].replace("(False, True)", "(False, False)")
    fake.nsys(child + "copy()")
    small(fake.folder / "export")
    assert read(fake.report).tables.rows("replays") == 7
    assert gone(fake)


@pytest.mark.parametrize("limit", ["soon", "0", "-3", "inf", "nan", "1\x1b"])
def test_a_time_limit_that_is_none(fake: Fake, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("GRAPHTRACE_NSYS_TIMEOUT", limit)
    with pytest.raises(UsageError) as caught:
        read(fake.report)
    assert "\x1b" not in str(caught.value)


def test_what_is_no_whole_report(fake: Fake) -> None:
    for content, kind in {
        b"": InputEmpty,
        MAGIC[:9]: InputTruncated,
        b"something else": InputUnsupported,
    }.items():
        fake.report.write_bytes(content)
        fake.fails(kind)
    fake.report.unlink()
    fake.fails(InputMissing)
    fake.report.mkdir()
    fake.fails(InputMissing)


def test_no_temporary_folder(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.nsys("copy()")
    monkeypatch.setattr("tempfile.tempdir", str(fake.folder / "absent"))
    assert "TMPDIR" in fake.fails(InputError).do


def test_the_command_says_it_in_three_lines_and_in_json(fake: Fake) -> None:
    command = [sys.executable, "-m", "graphtrace", "analyze", str(fake.report)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, text=True)
    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 3
    fake.nsys("copy()")
    small(fake.folder / "export")
    done = subprocess.run(
        [*command, "--format", "json"], capture_output=True, check=True, timeout=120, text=True
    )
    (said,) = json.loads(done.stdout)["inputs"]
    assert said["path"] == str(fake.report)
    assert said["kind"] == "nsys_rep"
    fake.left_nothing()


def test_a_tool_that_fills_its_pipes_is_bounded(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(3000): os.write(1, b'x' * 9999)\nos.write(1, b'end')"
    ran = run_tool([sys.executable, "-c", code], tmp_path, 60)
    assert ran.code == 0
    assert ran.out.endswith("xend")
    assert len(ran.out) == 1 << 16


@pytest.fixture
def recorded(tmp_path: Path, nsys: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report of a program that does nothing, by the installed nsys."""
    monkeypatch.setenv("GRAPHTRACE_NSYS", nsys)
    monkeypatch.setenv("GRAPHTRACE_NSYS_TIMEOUT", "60")
    report = tmp_path / "true.nsys-rep"
    command = [nsys, "profile", "-t", "none", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
    ran = run_tool([*command, "true"], tmp_path, 60)
    if ran.code is None or not report.exists():
        pytest.skip(f"nsys does not record here: {'hangs' if ran.code is None else ran.code}")
    return report


def hung(error: InputError) -> bool:
    return "did not finish" in error.what


def test_the_installed_nsys_exports_a_report_without_work(recorded: Path) -> None:
    before = sorted(recorded.parent.iterdir())
    try:
        source = read(recorded)
    except InputError as error:
        if hung(error):
            pytest.skip("nsys does not export here: it hangs")
        raise
    assert source.nothing is not None
    assert source.nothing.exit_code == 4
    assert str(recorded) in source.nothing.what
    assert source.info.tool_version is not None
    assert sorted(recorded.parent.iterdir()) == before


def test_the_installed_nsys_refuses_a_report_that_is_cut(recorded: Path) -> None:
    recorded.write_bytes(recorded.read_bytes()[:3000])
    before = sorted(recorded.parent.iterdir())
    with pytest.raises(InputError) as caught:
        read(recorded)
    if hung(caught.value):
        pytest.skip("nsys does not export here: it hangs")
    assert not isinstance(caught.value, InputCorrupt)
    assert "failed to export" in caught.value.what
    assert sorted(recorded.parent.iterdir()) == before
