# SPDX-License-Identifier: Apache-2.0
"""The program under `graphtrace capture` does what it does without it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from capture_helpers import COMMAND, capture, capture_text, clean_environment, script

from graphtrace.capture import folder as recording_folder

SEEN = """
    import json, os, sys
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GRAPHTRACE_BOOT", "_")}
    json.dump({"argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__,
               "cwd": os.getcwd(), "environ": own, "flags": list(sys.flags),
               "fds": sorted(os.listdir("/proc/self/fd")),
               "main": sorted(vars(sys.modules["__main__"]))}, sys.stdout)
"""


def both(tmp_path: Path, text: str, *arguments: str, **kwargs):
    """The program alone and recorded."""
    path = script(tmp_path, text)
    command = [sys.executable, str(path), *arguments]
    kwargs.setdefault("env", clean_environment())
    alone = subprocess.run(
        command, cwd=tmp_path, capture_output=True, timeout=60, check=False, **kwargs
    )
    return alone, capture(tmp_path, *command, **kwargs)


@pytest.mark.parametrize(
    "arguments",
    [(), ("a b", "ü漢", "", "--force", "-o", "x", "--", "-h", "'\"$HOME\\")],
)
def test_a_program_sees_the_same_world(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    alone, recorded = both(tmp_path, SEEN, *arguments)
    assert json.loads(recorded.out) == json.loads(alone.stdout)
    assert recorded.code == 0


def test_a_path_that_the_user_set_is_kept(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    script(tmp_path / "lib", "WORD = 'found'\n", "mine.py")
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"))
    alone, recorded = both(tmp_path, "import mine, sys; print(mine.WORD, sys.path)", env=env)
    assert recorded.out == alone.stdout
    assert b"found" in recorded.out


def test_a_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    script(tmp_path / "lib", "import sys\nsys.marked = __file__, __name__\n", "sitecustomize.py")
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"))
    text = "import sys, sitecustomize; print(sys.marked, sitecustomize.__spec__.origin)"
    alone, recorded = both(tmp_path, text, env=env)
    assert recorded.out == alone.stdout
    assert b"lib/sitecustomize.py" in recorded.out


@pytest.mark.parametrize("broken", ["1/0", "import nowhere_to_be_found", "def"])
def test_a_broken_sitecustomize_of_the_user_stays_the_users(tmp_path: Path, broken: str) -> None:
    (tmp_path / "lib").mkdir()
    script(tmp_path / "lib", broken, "sitecustomize.py")
    env = clean_environment(PYTHONPATH=str(tmp_path / "lib"))
    alone, recorded = both(tmp_path, "print(1)", env=env)
    assert (recorded.code, recorded.out) == (alone.returncode, alone.stdout)
    assert recorded.said.startswith(alone.stderr.decode())


def test_bytes_pass_through_in_both_directions(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    text = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.stderr.write('e')"
    alone, recorded = both(tmp_path, text, input=data)
    assert recorded.out == alone.stdout == data
    assert recorded.said.startswith("egraphtrace: ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit(255)", 255),
        ("import sys; sys.exit('words')", 1),
        ("import os; os._exit(7)", 7),
        ("raise RuntimeError('mine')", 1),
        ("def", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_the_end_is_the_programs(tmp_path: Path, text: str, code: int) -> None:
    alone, recorded = both(tmp_path, text)
    assert recorded.code == alone.returncode == code
    assert recorded.said.startswith(alone.stderr.decode())
    assert (recorded.recording / "done").is_file()


def test_not_found_and_not_executable(tmp_path: Path) -> None:
    missing = capture(tmp_path, "no-such-program-anywhere")
    assert missing.code == 127
    assert "nothing was recorded" in missing.said
    plain = tmp_path / "plain.txt"
    plain.write_text("x")
    assert capture(tmp_path, str(plain)).code == 126
    assert capture(tmp_path, str(tmp_path)).code == 126
    assert not (tmp_path / "run.gtrace").exists()


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("echo shell $1\nexit 9\n")
    path.chmod(0o755)
    recorded = capture(tmp_path, str(path), "word")
    assert (recorded.code, recorded.out) == (9, b"shell word\n")


def test_what_exists_is_refused_without_force(tmp_path: Path) -> None:
    assert capture_text(tmp_path, "print(1)").code == 0
    again = capture_text(tmp_path, "print(2)")
    assert (again.code, again.out) == (125, b"")
    assert "exists already" in again.said
    forced = capture_text(tmp_path, "print(3)", options=("--force",))
    assert (forced.code, forced.out) == (0, b"3\n")


def test_force_replaces_recordings_only(tmp_path: Path) -> None:
    (tmp_path / "run.gtrace").mkdir()
    (tmp_path / "run.gtrace" / "thesis.txt").write_text("years of work")
    recorded = capture_text(tmp_path, "print(1)", options=("--force",))
    assert (recorded.code, recorded.out) == (125, b"")
    assert (tmp_path / "run.gtrace" / "thesis.txt").read_text() == "years of work"


def test_an_unwritable_place_stops_before_the_program(tmp_path: Path) -> None:
    # A file in the way is unwritable for everybody, root too.
    (tmp_path / "file").write_text("")
    process = subprocess.run(
        [*COMMAND, "-o", "file/run.gtrace", "--", sys.executable, "-c", "print(1)"],
        cwd=tmp_path,
        capture_output=True,
        env=clean_environment(),
        check=False,
    )
    assert (process.returncode, process.stdout) == (125, b"")
    assert b"cannot be written" in process.stderr


@pytest.mark.parametrize("options", [("-o", "plain"), ("--depth", "-1"), ("--no-such",)])
def test_wrong_options_stop_before_the_program(tmp_path: Path, options: tuple[str, ...]) -> None:
    process = subprocess.run(
        [*COMMAND, *options, "--", sys.executable, "-c", "print(1)"],
        cwd=tmp_path,
        capture_output=True,
        env=clean_environment(),
        check=False,
    )
    assert (process.returncode, process.stdout) == (125, b"")
    assert not list(tmp_path.iterdir())


def test_a_recording_is_named_after_the_program_and_the_time(tmp_path: Path) -> None:
    path = script(tmp_path, "pass", "my model.py")
    for _ in range(2):
        subprocess.run(
            [*COMMAND, "--", sys.executable, "-u", str(path)],
            cwd=tmp_path,
            capture_output=True,
            env=clean_environment(),
            check=True,
        )
    names = sorted(p.name for p in tmp_path.glob("*.gtrace"))
    assert len(names) == 2
    assert all(re.fullmatch(r"my_model-\d{8}-\d{6}(-2)?\.gtrace", name) for name in names)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "a/b/infer.py", "x.py"], "infer"),
        (["python3.12", "-m", "pkg.serve", "--x"], "pkg.serve"),
        (["python", "-c", "print(1)"], "python"),
        (["./serve", "--port", "1"], "serve"),
        (["torchrun", "--nproc", "2", "train.py"], "torchrun"),
        (["..."], "run"),
    ],
)
def test_names(command: list[str], name: str) -> None:
    now = time.strptime("2026-01-02 03:04:05", "%Y-%m-%d %H:%M:%S")
    assert recording_folder.default_name(command, now) == f"{name}-20260102-030405.gtrace"


@pytest.mark.parametrize("flags", [("-I",), ("-E",), ("-S",), ("-I", "-S")])
def test_a_python_that_ignores_us_is_named(tmp_path: Path, flags: tuple[str, ...]) -> None:
    recorded = capture(tmp_path, sys.executable, *flags, "-c", "print(5)")
    assert (recorded.code, recorded.out) == (0, b"5\n")
    assert "No Python process said hello" in recorded.said
    source = recorded.source()
    assert source.nothing is not None
    assert source.nothing.exit_code == 4


def test_a_change_of_folder_does_not_lose_the_recording(tmp_path: Path) -> None:
    recorded = capture_text(tmp_path, STAGED.replace("BODY", "os.chdir('/')"))
    assert recorded.paths() == ["a", "a/b"]


STAGED = """
import os, sys
import graphtrace
BODY
with graphtrace.stage("a"):
    with graphtrace.stage("b"):
        pass
"""


def test_open_files_pass_through(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    try:
        text = f"import os; os.write({write_end}, b'inherited')"
        recorded = capture_text(tmp_path, text, pass_fds=(write_end,))
        assert recorded.code == 0
        assert os.read(read_end, 100) == b"inherited"
    finally:
        os.close(read_end)
        os.close(write_end)


def wait_for(path: Path) -> None:
    limit = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit, f"{path} never came"
        time.sleep(0.01)


WAITING = """
import os, signal, sys, time, pathlib
count = []
def seen(number, frame):
    count.append(number)
    pathlib.Path("seen").write_text(str(len(count)))
HANDLE
pathlib.Path("ready").write_text("")
for _ in range(SECONDS * 100):
    time.sleep(0.01)
    if count:
        time.sleep(0.3)
        print(len(count))
        sys.exit(11)
"""


def heed_signals() -> None:
    """Undo what `nohup` and background jobs of a shell hand down: signals that are ignored."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def started(tmp_path: Path, handle: str, seconds: int = 60) -> subprocess.Popen:
    text = WAITING.replace("HANDLE", handle).replace("SECONDS", str(seconds))
    path = script(tmp_path, text)
    process = subprocess.Popen(
        [*COMMAND, "-o", "run.gtrace", "--", sys.executable, str(path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        start_new_session=True,
        preexec_fn=heed_signals,  # noqa: PLW1509 - no thread runs here
    )
    wait_for(tmp_path / "ready")
    return process


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_to_us_reaches_the_program(tmp_path: Path, name: str) -> None:
    process = started(tmp_path, f"signal.signal(signal.{name}, seen)")
    process.send_signal(getattr(signal, name))
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (11, b"1\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_we_die_of_what_the_program_died_of(tmp_path: Path, name: str) -> None:
    process = started(tmp_path, "")
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=60)
    assert process.returncode == -getattr(signal, name)
    assert (tmp_path / "run.gtrace" / "done").is_file()


def test_an_interrupt_from_the_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    process = started(tmp_path, "signal.signal(signal.SIGINT, seen)")
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (11, b"1\n")


def test_an_interrupt_that_the_program_dies_of(tmp_path: Path) -> None:
    process = started(tmp_path, "")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in errors
    assert (tmp_path / "run.gtrace" / "done").is_file()


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    text = """
        from signal import SIG_IGN, SIGHUP, SIGINT, getsignal
        print(getsignal(SIGHUP) is SIG_IGN, getsignal(SIGINT) is SIG_IGN)
    """
    path = script(tmp_path, text)
    inner = " ".join([f"'{word}'" for word in [*COMMAND, "-o", "run.gtrace", "--"]])
    shell = f"trap '' HUP INT; exec {inner} '{sys.executable}' '{path}'"
    process = subprocess.run(
        ["/bin/sh", "-c", shell],
        cwd=tmp_path,
        capture_output=True,
        env=clean_environment(),
        check=True,
    )
    assert process.stdout == b"True True\n"


def test_the_recording_holds_no_argument_and_no_environment(tmp_path: Path) -> None:
    canary = "GT_CANARY-must-not-appear"
    env = clean_environment(GT_SECRET=canary)
    recorded = capture_text(tmp_path, "import graphtrace.capture.api", canary, env=env)
    assert recorded.code == 0
    for path in recorded.recording.rglob("*"):
        assert canary.encode() not in path.read_bytes()
    manifest = json.loads((recorded.recording / "manifest.json").read_text())
    assert manifest["command"] == Path(sys.executable).name
    assert manifest["exit_code"] == 0
