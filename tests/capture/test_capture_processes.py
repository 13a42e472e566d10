# SPDX-License-Identifier: Apache-2.0
"""Processes of every kind, sudden ends, and disks without room."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from capture_helpers import COMMAND, Run, capture, capture_text, clean_environment, script

from graphtrace.model import records

STAGE = """
import graphtrace, os, signal, sys, time
with graphtrace.batch():
    with graphtrace.stage("whole"):
        pass
"""


def pids(run: Run) -> int:
    return run.source().tables.rows("processes")


def test_forked_processes_have_records_of_their_own(tmp_path: Path) -> None:
    text = STAGE + (
        "with graphtrace.stage('parent'):\n"
        "    for n in range(3):\n"
        "        if os.fork() == 0:\n"
        "            with graphtrace.stage(f'child{n}'): pass\n"
        "            os._exit(0)\n"
        "    [os.wait() for _ in range(3)]\n"
    )
    run = capture_text(tmp_path, text)
    assert run.paths() == ["child0", "child1", "child2", "parent", "whole"]
    assert pids(run) == 4
    ranges = run.source().tables.get("ranges")
    assert ranges.num_rows == 5
    assert len(set(ranges.column("process").to_pylist())) == 4


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    text = """
        import multiprocessing, sys
        def work(n):
            import graphtrace
            with graphtrace.stage(f"worker{n}"):
                return n * n
        if __name__ == "__main__":
            import graphtrace
            with graphtrace.stage("main"):
                context = multiprocessing.get_context(sys.argv[1])
                with context.Pool(2) as pool:
                    print(pool.map(work, range(3), chunksize=1))
                process = context.Process(target=work, args=(3,))
                process.start(); process.join()
    """
    run = capture_text(tmp_path, text, method)
    assert run.out == b"[0, 1, 4]\n"
    assert run.paths() == ["main", "worker0", "worker1", "worker2", "worker3"]


def test_a_worker_of_multiprocessing_says_goodbye(tmp_path: Path) -> None:
    text = """
        import multiprocessing, graphtrace
        def work():
            with graphtrace.stage("worker"): pass
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start(); process.join()
    """
    run = capture_text(tmp_path, text)
    assert "without closing" not in run.said
    assert run.source().cost.overhead_ns is not None


def test_a_python_started_by_a_program_is_recorded(tmp_path: Path) -> None:
    inner = script(tmp_path, STAGE + "sys.exit(4)", "inner.py")
    text = f"""
        import subprocess, sys, os
        code = subprocess.run([sys.executable, {str(inner)!r}]).returncode
        shell = subprocess.run("{sys.executable} {inner}", shell=True).returncode
        os.execv(sys.executable, [sys.executable, {str(inner)!r}]) if code == shell == 4 else None
    """
    run = capture_text(tmp_path, text)
    assert run.code == 4
    assert run.paths() == ["whole"]
    assert run.source().tables.rows("ranges") == 3


def test_a_shell_script_around_python(tmp_path: Path) -> None:
    inner = script(tmp_path, STAGE, "inner.py")
    run = capture(tmp_path, "/bin/sh", "-c", f"echo one; exec '{sys.executable}' '{inner}'")
    assert run.out == b"one\n"
    assert run.paths() == ["whole"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os._exit(5)", 5),
        ("raise SystemError('mine')", 1),
        ("import ctypes; ctypes.string_at(0)", -11),
    ],
)
def test_a_sudden_end_loses_nothing_written(tmp_path: Path, end: str, code: int) -> None:
    resource_limits = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    text = (
        resource_limits
        + STAGE
        + (
            "for n in range(1000):\n"
            "    with graphtrace.stage('many'): pass\n"
            "graphtrace.batch().__enter__()\n"
            "graphtrace.stage('open').__enter__()\n" + end
        )
    )
    run = capture_text(tmp_path, text)
    assert run.code == code
    tables = run.source().tables
    assert tables.rows("ranges") == 1002
    ends = {row["text"]: row["end_ns"] for row in tables.get("ranges").to_pylist()}
    assert ends["open"] is None
    assert ends["many"] is not None
    assert tables.rows("batches") == 1
    refused = tables.get("quarantine").to_pylist()
    assert [(row["table"], row["count"]) for row in refused] == [("batches", 1)]
    if code == -9:
        assert "was ended by signal 9" in run.said


def test_what_was_written_outlives_the_launcher(tmp_path: Path) -> None:
    text = STAGE + "open('ready', 'w').close()\ntime.sleep(60)\n"
    process = subprocess.Popen(
        [*COMMAND, "-o", "run.gtrace", "--", sys.executable, str(script(tmp_path, text))],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    limit = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.kill()
    process.wait()
    run = Run(None, tmp_path / "run.gtrace")
    source = run.source()
    os.killpg(process.pid, signal.SIGKILL)
    assert run.paths() == ["whole"]
    assert source.tables.rows("batches") == 1
    assert "unfinished" in source.warnings[0]


def test_records_beyond_the_limit_are_counted_exactly(tmp_path: Path) -> None:
    borders = 200_000
    # The forked half proves that each process has a limit of its own.
    text = f"""
        import json, os, pathlib
        raw = pathlib.Path(os.environ["GRAPHTRACE_BOOT"], "config.json")
        config = json.loads(raw.read_text())
        raw.write_text(json.dumps({{**config, "segments": 2}}))
        import graphtrace
        if os.fork():
            os.wait()
        for _ in range({borders // 2}):
            with graphtrace.stage("x"): pass
    """
    run = capture_text(tmp_path, text)
    assert run.code == 0
    cost = run.source().cost
    room = 2 * records.SEGMENT_RECORDS
    assert cost.records == 2 * room
    assert cost.lost == 2 * (borders - room)
    assert f"{2 * (borders - room):,} records were lost" in run.said
    assert "limit of 2 MiB" in run.said


def test_records_are_counted_exactly_when_the_process_is_killed(tmp_path: Path) -> None:
    text = """
        import json, os, pathlib, signal
        raw = pathlib.Path(os.environ["GRAPHTRACE_BOOT"], "config.json")
        config = json.loads(raw.read_text())
        raw.write_text(json.dumps({**config, "segments": 1}))
        import graphtrace
        for _ in range(40_000):
            with graphtrace.stage("x"): pass
        os.kill(os.getpid(), signal.SIGKILL)
    """
    cost = capture_text(tmp_path, text).source().cost
    assert cost.records == records.SEGMENT_RECORDS
    assert cost.lost == 80_000 - records.SEGMENT_RECORDS


MANY = """
import graphtrace
for n in range(100_000):
    with graphtrace.stage("x"):
        with graphtrace.stage(f"y{n % 50}"):
            pass
print("all done")
"""


def test_a_small_file_size_limit_harms_nobody(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))

    run = capture_text(tmp_path, MANY, preexec_fn=limit)
    assert (run.code, run.out) == (0, b"all done\n")
    assert run.source().cost.lost == 400_000
    assert "File too large" in run.said


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_harms_nobody(tmp_path: Path, small_disk: Path) -> None:
    program = script(tmp_path, MANY)
    run = capture(small_disk, sys.executable, str(program))
    assert (run.code, run.out) == (0, b"all done\n")
    assert "No space left on device" in run.said
    source = run.source()
    assert source.cost.lost > 0
    assert source.cost.records + source.cost.lost == 400_000
    assert source.cost.records % records.SEGMENT_RECORDS == 0


def test_a_disk_full_from_the_start(tmp_path: Path, small_disk: Path) -> None:
    filler = os.open(small_disk / "filler", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):
        while os.write(filler, bytes(4096)):
            pass
    os.close(filler)
    program = script(tmp_path, MANY)
    run = capture(small_disk, sys.executable, str(program))
    assert run.code == 125
    assert "cannot be written" in run.said
    assert not (small_disk / "run.gtrace").exists()


def test_a_program_that_closes_every_file_keeps_its_files(tmp_path: Path) -> None:
    text = STAGE + (
        "os.closerange(3, 256)\n"
        "files = [open(f'mine{n}', 'wb') for n in range(20)]\n"
        "for n in range(3):\n"
        "    with graphtrace.stage(f'later{n}'), graphtrace.batch(valid_tokens=n): pass\n"
        "[f.write(b'x') for f in files]\n"
        "[f.close() for f in files]\n"
    )
    run = capture_text(tmp_path, text)
    assert run.code == 0
    assert run.paths() == ["later0", "later1", "later2", "whole"]
    assert all((tmp_path / f"mine{n}").read_bytes() == b"x" for n in range(20))


def test_a_program_that_deletes_its_recording_goes_on(tmp_path: Path) -> None:
    text = STAGE + (
        "import shutil\nshutil.rmtree('run.gtrace')\nwith graphtrace.stage('after'): print('on')\n"
    )
    run = capture_text(tmp_path, text)
    assert (run.code, run.out) == (0, b"on\n")
    assert "could not be finished" in run.said


def test_a_process_that_outlives_the_command(tmp_path: Path) -> None:
    text = STAGE + (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    [os.close(n) for n in (0, 1, 2)]\n"
        "    with graphtrace.stage('daemon'): pass\n"
        "    open('pid', 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)\n"
    )
    run = capture_text(tmp_path, text)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert run.paths() == ["daemon", "whole"]
    assert "was still running" in run.said


def test_recording_in_code(tmp_path: Path) -> None:
    text = """
        import graphtrace, sys
        before = set(sys.modules)
        with graphtrace.stage("outside"): pass
        with graphtrace.record("own.gtrace", depth=1):
            with graphtrace.batch(valid_tokens=2), graphtrace.stage("inside"):
                pass
        with graphtrace.stage("outside"): pass
        assert not {"numpy", "pyarrow"} & set(sys.modules)
        try:
            graphtrace.record("own.gtrace").__enter__()
        except graphtrace.GraphtraceError as error:
            print(error.what)
    """
    path = script(tmp_path, text)
    subprocess.run([sys.executable, str(path)], cwd=tmp_path, check=True, env=clean_environment())
    run = Run(None, tmp_path / "own.gtrace")
    assert run.paths() == ["inside"]
    assert (tmp_path / "own.gtrace" / "done").exists()
    manifest = json.loads((tmp_path / "own.gtrace" / "manifest.json").read_text())
    assert manifest["how"]["depth"] == 1


def test_recording_in_code_under_the_command_stays_one_recording(tmp_path: Path) -> None:
    text = """
        import graphtrace
        with graphtrace.record("own.gtrace"), graphtrace.stage("inside"):
            pass
    """
    run = capture_text(tmp_path, text)
    assert run.paths() == ["inside"]
    assert not (tmp_path / "own.gtrace").exists()


def test_recording_modules_in_code_twice(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = """
        import graphtrace, torch
        net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(torch.nn.Identity()))
        net(1)
        for name in ("one.gtrace", "two.gtrace"):
            with graphtrace.record(name, depth=1, stages=["1.*"]):
                net(2)
            net(3)
    """
    path = script(tmp_path, text)
    subprocess.run([sys.executable, str(path)], cwd=tmp_path, check=True, env=clean_environment())
    for name in ("one", "two"):
        run = Run(None, tmp_path / f"{name}.gtrace")
        assert run.paths() == ["0", "1", "1/0"]
        assert run.source().tables.rows("batches") == 1
