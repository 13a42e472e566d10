# SPDX-License-Identifier: Apache-2.0
"""`graphtrace export` by the real command: the same answer, written whole or not at all."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphtrace.capture.recorder import Recorder
from graphtrace.capture.writer import Writer
from graphtrace.ingest.export import export as export_source
from graphtrace.ingest.load import load, read_source
from graphtrace.model.errors import InputError
from graphtrace.model.recording import FORMAT
from graphtrace.testing import planted_vit

CANARY = b"GT_CANARY"


def graphtrace(*args, **more):
    return subprocess.run(
        [sys.executable, "-m", "graphtrace", *map(str, args)],
        capture_output=True,
        timeout=300,
        check=False,
        **more,
    )


def export(*args, **more):
    return graphtrace("export", *args, **more)


def refusal(done, code=2):
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert done.stdout == b""
    assert len(text.splitlines()) == 3, text
    return text


def answer(path, *names):
    """Exit code and JSON of an analysis, without what names the input or the clock."""
    done = graphtrace("analyze", path, "--format", "json")
    told = json.loads(done.stdout)
    told.pop("inputs", None)
    told.pop("timing", None)
    text = json.dumps(told, sort_keys=True)
    for name in (str(path), path.name, *names):
        text = text.replace(name, "INPUT")
    return done.returncode, text


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    path = tmp_path_factory.mktemp("vit") / "run.sqlite"
    planted_vit(path, replays=30)
    return path


def unfinished(home, batches=3):
    """A recording as a killed program leaves it."""
    raw = home / "raw"
    raw.mkdir(parents=True)
    (home / "manifest.json").write_text(json.dumps({"format": FORMAT, "format_version": 1}))
    writer = Writer(str(raw), "1-1", 4)
    writer.line(type="hello", layout=1, pid=1, parent=0, python="3.11.0", begin_ns=5)
    recorder = Recorder(writer, 2, ())
    for _ in range(batches):
        ident = recorder.open_batch({"valid": 5, "captured": 8, "sizes": [2, 3], "label": "x"})
        recorder.begin(1, "outer", "code")
        recorder.end(1, 1 << 61, nested=False)
        recorder.close_batch(ident, 1 << 61)
    writer.line(type="bye", borders=2 * batches, lost=0)
    writer.line(type="cost", border_ns=1000, skipped_ns=10)
    return home


def inputs(data_dir):
    return sorted(
        path
        for kind in ("ncu", "ncu_csv", "nsys", "kineto")
        for path in (data_dir / kind).iterdir()
    )


def test_every_real_file_gives_the_same_answer_when_exported(data_dir, tmp_path):
    exported = 0
    for path in inputs(data_dir):
        target = tmp_path / f"{path.name}.gtrace"
        done = export(path, "-o", target)
        code, before = answer(path)
        if code == 3:
            refusal(done, 3)
            assert not target.exists()
            continue
        assert done.returncode == 0, (path, done.stderr)
        assert done.stdout == b""
        assert done.stderr.startswith(f"wrote {target} (".encode())
        assert answer(target, path.name) == (code, before), path
        for file in target.iterdir():
            content = file.read_bytes()
            assert CANARY not in content, file
            assert str(path.parent).encode() not in content, file
        exported += 1
    assert exported > 20
    assert hidden(tmp_path) == []


def test_every_table_of_every_real_file_is_kept(data_dir, tmp_path):
    # In one process: units that ncu_report guesses from names may differ from process to process.
    for path in inputs(data_dir):
        try:
            first = read_source(path)
        except InputError:
            continue
        target = tmp_path / f"{path.name}.gtrace"
        export_source(path, target)
        second = read_source(target)
        assert second.tables.tables.keys() == first.tables.tables.keys()
        for name, table in first.tables.tables.items():
            assert second.tables.get(name).equals(table), (path, name)
        assert second.info.tool == first.info.tool
        assert second.info.tool_version == first.info.tool_version
        assert second.warnings == first.warnings
        assert (second.nothing is None) == (first.nothing is None)


def test_a_synthetic_export_stays_one(vit, tmp_path):
    target = tmp_path / "run.gtrace"
    assert export(vit, "-o", target).returncode == 0
    assert load(target).synthetic
    assert answer(target) == answer(vit)
    assert "Synthetic" in graphtrace("analyze", target).stdout.decode()


def test_what_is_printed_counts_the_work(vit, tmp_path):
    target = tmp_path / "run.gtrace"
    said = export(vit, "-o", target).stderr.decode()
    rows = load(vit).tables.rows("activities")
    size = sum(file.stat().st_size for file in target.iterdir())
    assert said == f"wrote {target} ({rows:,} activities, {size:,} bytes)\n"


def test_an_exported_recording_can_be_exported_again(vit, tmp_path):
    first, second = tmp_path / "a.gtrace", tmp_path / "b.gtrace"
    assert export(vit, "-o", first).returncode == 0
    assert export(first, "-o", second).returncode == 0
    assert (first / "manifest.json").read_bytes() == (second / "manifest.json").read_bytes()
    assert answer(first) == answer(second)


@pytest.mark.parametrize("batches", [3, 0])
def test_an_unfinished_recording_becomes_a_finished_one(tmp_path, batches):
    cut, whole = unfinished(tmp_path / "cut.gtrace", batches), tmp_path / "whole.gtrace"
    done = export(cut, "-o", whole)
    assert done.returncode == 0, done.stderr
    assert (whole / "done").exists()
    assert not (whole / "raw").exists()
    code, before = answer(cut)
    # The sentence that it was cut short names the recording that was.
    assert answer(whole) == (
        code,
        before.replace("INPUT is unfinished", "cut.gtrace is unfinished"),
    )
    assert code == (0 if batches else 4)
    assert read_source(whole).cost == read_source(cut).cost
    assert read_source(whole).cost.records == 4 * batches


def test_a_capture_keeps_its_manifest(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import graphtrace\nwith graphtrace.batch(), graphtrace.stage('a'): pass\n")
    run, again = tmp_path / "run.gtrace", tmp_path / "again.gtrace"
    done = graphtrace("capture", "-o", run, "--", sys.executable, program)
    assert done.returncode == 0, done.stderr
    assert export(run, "-o", again).returncode == 0
    assert (run / "manifest.json").read_bytes() == (again / "manifest.json").read_bytes()
    assert answer(run) == answer(again)


def test_targets_that_are_refused(vit, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    copy = home / "run.sqlite"
    shutil.copy(vit, copy)
    assert f"Write -o {home / 'x.db'}.gtrace" in refusal(export(copy, "-o", home / "x.db"))
    assert f"Write -o {home / 'run.gtrace'}" in refusal(export(copy, "-o", home))
    assert "does not exist" in refusal(export(copy, "-o", home / "nowhere" / "x.gtrace"))
    recording = home / "a.gtrace"
    assert export(copy, "-o", recording).returncode == 0
    assert "exists" in refusal(export(copy, "-o", recording))
    assert "is the input" in refusal(export(recording, "-o", recording, "--force"))
    linked = home / "link.gtrace"
    linked.symlink_to(recording)
    assert "is the input" in refusal(export(linked, "-o", recording, "--force"))
    assert "no recording" in refusal(export(copy, "-o", linked, "--force"))
    inner = recording / "inner.gtrace"
    assert "lies in the input" in refusal(export(recording, "-o", inner))
    within = recording / "run.sqlite"
    shutil.copy(vit, within)
    assert "holds the input" in refusal(export(within, "-o", recording, "--force"))
    within.unlink()
    refusal(export(copy))
    assert "No such option" in refusal(export(copy, "--ouput", recording))
    assert hidden(home) == []
    assert load(recording).tables.rows("replays") == 30


@pytest.mark.parametrize("what", ["folder", "file", "other manifest", "empty folder", "dangling"])
def test_force_replaces_recordings_only(vit, tmp_path, what):
    target = tmp_path / "x.gtrace"
    if what == "file":
        target.write_text("mine")
    elif what == "dangling":
        target.symlink_to(tmp_path / "nowhere")
    else:
        target.mkdir()
    if what == "folder":
        (target / "mine.txt").write_text("mine")
    if what == "other manifest":
        (target / "manifest.json").write_text('{"name": "a web app"}')
    before = sorted(tmp_path.rglob("*"))
    assert "no recording" in refusal(export(vit, "-o", target, "--force"))
    assert sorted(tmp_path.rglob("*")) == before


def test_force_replaces_a_recording_whole(vit, tmp_path):
    target = unfinished(tmp_path / "x.gtrace")
    (target / "mine.txt").write_text("left over")
    assert export(vit, "-o", target, "--force").returncode == 0
    assert not (target / "mine.txt").exists()
    assert not (target / "raw").exists()
    assert answer(target) == answer(vit)
    assert hidden(tmp_path) == []


def test_a_recording_of_a_newer_version_is_replaced(vit, tmp_path):
    target = tmp_path / "x.gtrace"
    target.mkdir()
    (target / "manifest.json").write_text(json.dumps({"format": FORMAT, "format_version": 99}))
    assert export(vit, "-o", target, "--force").returncode == 0


def test_an_input_that_cannot_be_read_leaves_the_target(vit, tmp_path):
    target, broken = tmp_path / "x.gtrace", tmp_path / "broken.sqlite"
    assert export(vit, "-o", target).returncode == 0
    broken.write_bytes(vit.read_bytes()[:5000])
    refusal(export(broken, "-o", target, "--force"), 3)
    assert answer(target) == answer(vit)


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_what_was_there(vit, tmp_path, force):
    target = tmp_path / "x.gtrace"
    if force:
        unfinished(target)
    more = ["--force"] if force else []
    said = refusal(export(vit, "-o", target, *more, preexec_fn=small_files))
    assert "could not be written" in said
    assert "too large" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == (["x.gtrace"] if force else [])
    assert not force or read_source(target).tables.rows("batches") == 3


# Writes the same recording over and over; the n-th call of the system fails or kills. One process
# tries it all, each time in a child, since starting Python anew takes most of the time.
SPOILED = """
import errno, json, os, shutil, signal, sys
from pathlib import Path
from graphtrace.ingest.export import export
from graphtrace.ingest.load import read_source
from graphtrace.model.errors import OutputError
home, small, how, force = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "force"
left = 0
def spoil(name):
    real = getattr(os, name)
    def spoiled(*args, **more):
        global left
        left -= 1
        if left == 0 and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **more)
    setattr(os, name, spoiled)
def attempt(number, target):
    global left
    left = number
    for name in ("fsync", "replace", "rename", "mkdir", "chmod", "rmdir", "unlink"):
        spoil(name)
    try:
        export(small, target, force=force)
    except OutputError:
        os._exit(2)
    except BaseException:
        os._exit(70)
    os._exit(0 if left < 0 else 99)
number, told = 0, []
while not told or told[-1]["code"] != 99:
    number += 1
    folder = home / str(number)
    folder.mkdir()
    target = folder / "x.gtrace"
    if force:
        shutil.copytree(small, target)
    child = os.fork()
    if not child:
        attempt(number, target)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    rows = read_source(target).tables.rows("batches") if target.exists() else None
    names = [path.name for path in folder.iterdir()]
    entry = {"code": code, "rows": rows, "done": (target / "done").exists(), "names": names}
    export(small, target, force=True)
    told.append({**entry, "after": read_source(target).tables.rows("batches")})
print(json.dumps(told))
"""


@pytest.mark.parametrize("force", ["force", "fresh"])
@pytest.mark.parametrize("how", ["kill", "full"])
def test_whatever_happens_no_half_recording_gets_the_name(tmp_path, how, force):
    small = unfinished(tmp_path / "small.gtrace")
    code = [sys.executable, "-c", SPOILED, str(tmp_path), str(small), how, force]
    done = subprocess.run(code, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) > 20
    assert {entry["code"] for entry in told} <= {99, 0, -9 if how == "kill" else 2}
    for entry in told:
        assert entry["rows"] in {None, 3}
        assert entry["after"] == 3
        assert all(name == "x.gtrace" or name[0] == "." for name in entry["names"])
        if entry["rows"] is None:
            # Only where it never stood there, or in the blink between two renames.
            assert entry["code"] != 0
            assert force == "fresh" or how == "kill"
        elif not entry["done"]:
            assert force == "force"
    assert sum(entry["rows"] is None for entry in told) <= (1 if force == "force" else len(told))
    assert any(entry["done"] for entry in told)


def test_hostile_names_reach_no_terminal(vit, tmp_path):
    source = tmp_path / "a\x1b[31m\u202e.sqlite"
    shutil.copy(vit, source)
    target = tmp_path / "b\x1b[31m\udcff.gtrace"
    done = export(source, "-o", target)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stderr
    again = tmp_path / "c.gtrace"
    assert export(target, "-o", again).returncode == 0
    assert b"\x1b" not in graphtrace("analyze", again).stdout


THREADS = """
import os, sys
import numpy, pyarrow, pyarrow.parquet
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
from pathlib import Path
from graphtrace.ingest.export import export
export(Path(sys.argv[1]), Path(sys.argv[2]))
sys.exit(threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_no_thread_is_left_after_an_export(vit, tmp_path):
    target = tmp_path / "x.gtrace"
    code = [sys.executable, "-c", THREADS, str(vit), str(target)]
    assert subprocess.run(code, check=False).returncode == 0
    assert target.is_dir()
