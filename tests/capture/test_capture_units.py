# SPDX-License-Identifier: Apache-2.0
"""Layouts by property, names of modules, the guard, and what the launcher says with a GPU."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from capture_helpers import clean_environment, script
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.capture import api, finish, guard, launcher, recorder
from graphtrace.capture.access import describe
from graphtrace.capture.launcher import LaunchOptions, launch
from graphtrace.capture.modules import matcher

EXTENTS = st.lists(st.integers(0, 4), max_size=4)


@given(EXTENTS, st.data(), st.sampled_from([1, 2, 4, 8]))
def test_layouts_against_every_address(shape: list[int], data: st.DataObject, item: int) -> None:
    strides = [data.draw(st.integers(0, 6)) for _ in shape]
    addresses = {
        sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)
    }
    dense = len(addresses) == int(np.prod(shape)) and addresses == set(range(len(addresses)))
    found = describe(shape, strides, item, dense=dense)
    # Never less than what is touched, and exact where no two windows overlap.
    assert found["working_set"] >= len(addresses) * item
    repeated = any(s == 0 for n, s in zip(shape, strides, strict=True) if n > 1)
    if not addresses:
        assert found["working_set"] == 0
        return
    expected = "broadcast" if repeated else "contiguous" if dense else "strided"
    assert found["pattern"] == expected
    if dense:
        assert found["working_set"] == len(addresses) * item
        assert found["row_bytes"] > 0
    span = max(addresses) + 1
    assert found["working_set"] <= span * item


@pytest.mark.parametrize(
    ("shape", "strides", "dense", "expected"),
    [
        ([4, 16], [16, 1], True, ("contiguous", 64, 64, 256)),
        ([4, 16], [64, 1], False, ("strided", 64, 256, 256)),
        ([16, 4], [1, 16], False, ("strided", 4, 64, 256)),
        ([4, 16], [0, 1], False, ("broadcast", 64, 0, 64)),
        ([4, 16], [0, 0], False, ("broadcast", 4, 0, 4)),
        ([2, 3, 4, 5], [60, 1, 15, 3], True, ("contiguous", 12, 12, 480)),
        ([8, 4], [1, 1], False, ("strided", 16, 4, 44)),
        ([], [], True, ("contiguous", 4, None, 4)),
        ([1, 7], [7, 1], True, ("contiguous", 28, None, 28)),
    ],
)
def test_layouts(
    shape: list[int], strides: list[int], dense: bool, expected: tuple[object, ...]
) -> None:
    found = describe(shape, strides, 4, dense=dense)
    assert tuple(found.values()) == expected


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("blocks.*", ["blocks.0", "blocks.x"], ["blocks", "blocks.0.attn", "xblocks.0"]),
        ("**.attn", ["a.attn", "a.b.attn"], ["attn", "a.attn.q"]),
        ("b?.c", ["b1.c"], ["b.c", "b..c", "b12.c"]),
        ("a.b", ["a.b"], ["aXb"]),
        ("[0]", ["[0]"], ["0"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    regex = matcher(pattern)
    assert all(regex.fullmatch(name) for name in yes)
    assert not any(regex.fullmatch(name) for name in no)


def test_the_guard_notes_once_switches_off_and_lets_interrupts_through() -> None:
    calls, told = [], []

    @guard.guarded("family")
    def hook(error: BaseException) -> None:
        calls.append(error)
        raise error

    guard.ON_FAILURE[:] = [lambda *told_of: told.append(told_of), lambda *_: 1 / 0]
    try:
        with pytest.raises(KeyboardInterrupt):
            hook(KeyboardInterrupt())
        hook(ValueError("one"))
        hook(ValueError("two"))
    finally:
        guard.ON_FAILURE.clear()
        guard.reset()
    assert len(calls) == 2
    assert told == [("family", "ValueError: one")]


def test_without_a_recording_nothing_happens() -> None:
    assert not recorder.ACTIVE
    with api.batch(valid_tokens=object()), api.stage("x") as stage:  # type: ignore[arg-type]
        assert stage.name == "x"

    @api.stage("f")
    def function(a: int, *, b: int) -> int:
        """Doc."""
        return a + b

    assert function(1, b=2) == 3
    assert (function.__name__, function.__doc__) == ("function", "Doc.")
    with pytest.raises(ZeroDivisionError), api.stage("x"), api.batch():
        raise ZeroDivisionError


def test_the_child_side_loads_the_standard_library_only(tmp_path: Path) -> None:
    text = """
        import sys
        import graphtrace
        import graphtrace.capture.api, graphtrace.capture.child, graphtrace.capture.modules
        import graphtrace.capture.calibrate, graphtrace.capture.folder
        tops = {name.partition(".")[0] for name in sys.modules}
        print(sorted(tops - set(sys.stdlib_module_names) - {"graphtrace", "__main__"}))
    """
    path = script(tmp_path, text)
    done = subprocess.run(
        [sys.executable, "-S", str(path)],
        capture_output=True,
        check=True,
        env=clean_environment(PYTHONPATH=str(Path(api.__file__).parents[2])),
    )
    assert done.stdout == b"[]\n"


def test_with_a_gpu_the_person_is_told_what_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "has_gpu", lambda: True)
    monkeypatch.chdir(tmp_path)
    result = launch([sys.executable, "-c", "pass"], LaunchOptions(Path("run.gtrace")))
    assert result.exit_code == 0
    assert finish.NO_REPLAYS in result.sentences
    command = next(s for s in result.sentences if "nsys profile" in s)
    assert "--cuda-graph-trace=node -t cuda,nvtx" in command


def test_a_signal_before_the_program_runs_waits_for_it() -> None:
    forwarder = launcher._Forwarder()
    forwarder(signal.SIGTERM, None)

    class Child:
        got: list[int] = []  # noqa: RUF012 - a stand-in

        def send_signal(self, number: int) -> None:
            self.got.append(number)

    child = Child()
    forwarder.attach(child)  # type: ignore[arg-type]  # a stand-in
    forwarder(signal.SIGHUP, None)
    assert child.got == [signal.SIGTERM, signal.SIGHUP]


def test_handlers_are_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    launch([sys.executable, "-c", "pass"], LaunchOptions())
    assert [signal.getsignal(number) for number in numbers] == before
