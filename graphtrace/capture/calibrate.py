# SPDX-License-Identifier: Apache-2.0
"""Measures what recording costs, by running the real code paths into memory that is thrown away."""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from graphtrace.capture import api, modules
from graphtrace.capture.recorder import Recorder
from graphtrace.capture.writer import Writer
from graphtrace.model import records

__all__ = ["border_costs"]

_ROUNDS: Final = 5
_CALLS: Final = 100


class _Memory(Writer):
    """A writer of the same path into plain memory; its definitions go nowhere."""

    def __init__(self) -> None:
        super().__init__("", "", 0)
        self._segments.append(bytearray(records.SEGMENT_BYTES))

    def line(self, **fields: object) -> None:
        """Drop a definition."""


def _median_ns(action: Callable[[], object]) -> int:
    times = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(_CALLS):
            action()
        times.append((time.perf_counter_ns() - begin) // _CALLS)
    return sorted(times)[_ROUNDS // 2]


def border_costs() -> tuple[int, int | None]:
    """Cost of one stage border, and of one module call that is no stage.

    Returns:
        ns for each begin or end of a stage (of a module where torch is loaded, with the slower call
        path that torch takes while a hook is registered), and ns for each call of a module that is
        no stage, None without torch.
    """
    recorder = Recorder(_Memory(), 1, ())
    recorder.mute()
    if modules.torch is None:
        return _code_border(recorder), None
    return _module_costs(recorder, modules.torch)


def _code_border(recorder: Recorder) -> int:
    def pair() -> None:
        api.enter_stage(recorder, 1, "calibration")
        api.leave_stage(recorder, 1, time.monotonic_ns())

    return _median_ns(pair) // 2


def _module_costs(recorder: Recorder, torch: Any) -> tuple[int, int]:
    """Times module calls; our own hooks must not be registered."""
    root, tensor = torch.nn.Sequential(torch.nn.Identity()), torch.empty(1, device="cpu")
    inner, stranger = root[0], torch.nn.Sequential(torch.nn.Sequential(torch.nn.Identity()))
    home = sys.modules["torch.nn.modules.module"]

    def before(module: Any, args: Any) -> None:
        modules.enter(recorder, module)

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        modules.leave(recorder, module, args, kwargs, output, time.monotonic_ns())

    bare = _median_ns(lambda: inner(tensor))
    handles = [
        home.register_module_forward_pre_hook(before),
        home.register_module_forward_hook(after, with_kwargs=True, always_call=True),
    ]
    try:
        modules.enter(recorder, root)
        stage = _median_ns(lambda: inner(tensor)) - bare
        modules.leave(recorder, root, (), {}, None, time.monotonic_ns())
        modules.enter(recorder, stranger)
        modules.enter(recorder, stranger[0])
        skipped = _median_ns(lambda: stranger[0][0](tensor)) - bare
        modules.leave(recorder, stranger, (), {}, None, time.monotonic_ns())
    finally:
        for handle in handles:
            handle.remove()
    return max(stage, 0) // 2, max(skipped, 0)
