# SPDX-License-Identifier: Apache-2.0
"""Rules of stream capture, as the driver's documentation states them: the fake driver's heart.

What is claimed here is from cuda.h and cuda_runtime_api.h of CUDA 13.0. Whether a real driver does
the same is what the suite that both ports pass finds out where there is a GPU.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from graphtrace.capture.cuda_port import (
    KIND_CHILD,
    KIND_HOST,
    KIND_KERNEL,
    KIND_MEMCPY,
    CudaError,
)
from graphtrace.testing.fake_graphs import FakeClock, FakeGraph, FakeMemory, FakeNode

__all__ = ["GLOBAL", "RELAXED", "THREAD_LOCAL", "FakeDriver"]

GLOBAL: Final = 0
THREAD_LOCAL: Final = 1
RELAXED: Final = 2
"""Values of CUstreamCaptureMode."""

_INVALID_VALUE: Final = 1
_NOT_INITIALIZED: Final = 3
_INVALID_HANDLE: Final = 400
_LOSSY_QUERY: Final = 402
_UNSUPPORTED: Final = 900
_INVALIDATED: Final = 901
_MERGE: Final = 902
_UNMATCHED: Final = 903
_UNJOINED: Final = 904
_ISOLATION: Final = 905
_IMPLICIT: Final = 906
_WRONG_THREAD: Final = 908
_EDGE_DATA_SINCE: Final = 12_030
_TOOLS_ID_SINCE: Final = 13_010
__NAMES_SINCE: Final = 12_030


@dataclass(slots=True)
class _Capture:
    """A capture sequence: it began on one stream and spread by events."""

    ident: int
    origin: int
    mode: int
    thread: int
    graph: int
    valid: bool = True
    streams: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Stream:
    ordinal: int
    blocking: bool
    capture: _Capture | None = None
    frontier: tuple[int, ...] = ()
    edge_data: bool = False


@dataclass(frozen=True, slots=True)
class _Event:
    capture: _Capture | None
    frontier: tuple[int, ...]


_NAMES: Final = {KIND_MEMCPY: "copy", KIND_HOST: "host", KIND_CHILD: "child"}


class FakeDriver:
    """Streams, events and captures of programs.

    Args:
        version: as `cuDriverGetVersion` says it.
        seed: of the handles, which mean nothing and come in no order.
        shuffled: `nodes` lists nodes in any order, which the driver's documentation allows.
        clock: time of the device.
        fail: called with the name of each call; a code that it returns is what the call fails with.
    """

    def __init__(
        self,
        version: int = 13_000,
        *,
        seed: int = 0,
        shuffled: bool = False,
        clock: FakeClock | None = None,
        fail: Callable[[str], int] | None = None,
    ) -> None:
        self.version = version
        self.initialized = False
        self.calls: list[str] = []
        self.clock = clock or FakeClock()
        self.memory = FakeMemory()
        self.launches: list[tuple[str, int]] = []
        self.random = random.Random(seed)
        self.shuffled = shuffled
        self._fail = fail
        self._handles: set[int] = set()
        self.streams: dict[int, _Stream] = {}
        self._events: dict[int, _Event] = {}
        self.graphs: dict[int, FakeGraph] = {}
        self.execs: dict[int, FakeGraph] = {}
        self.functions: dict[int, str] = {}
        self._captures: list[_Capture] = []
        self.modes: dict[int, int] = {}
        self.idents = 0

    def init(self) -> None:
        """The program has touched CUDA."""
        self.initialized = True

    def user_stream(self, ordinal: int = 0, *, blocking: bool = True) -> int:
        """A stream of the program's."""
        handle = self.handle()
        self.streams[handle] = _Stream(ordinal, blocking)
        return handle

    def begin_capture(self, stream: int, mode: int = GLOBAL) -> None:
        """Start to capture what the stream is given."""
        self.idents += 1
        graph = self.handle()
        self.graphs[graph] = FakeGraph(self.idents)
        capture = _Capture(self.idents, stream, mode, threading.get_ident(), graph)
        capture.streams.add(stream)
        self._captures.append(capture)
        made = self.streams[stream]
        made.capture, made.frontier, made.edge_data = capture, (), False

    def end_capture(self, stream: int) -> int:
        """End the capture that began on this stream: the graph, which is the program's own copy."""
        capture = self.streams[stream].capture
        if capture is None or capture.origin != stream:
            raise CudaError(_UNMATCHED, "cuStreamEndCapture")
        if capture.mode != RELAXED and capture.thread != threading.get_ident():
            raise CudaError(_WRONG_THREAD, "cuStreamEndCapture")
        graph = self.graphs.pop(capture.graph)
        reached = graph.ancestors(self.streams[stream].frontier)
        for handle in capture.streams:
            member = self.streams[handle]
            member.capture, member.frontier = None, ()
        self._captures.remove(capture)
        if not capture.valid:
            raise CudaError(_INVALIDATED, "cuStreamEndCapture")
        if any(node.handle not in reached and not node.explicit for node in graph.nodes):
            raise CudaError(_UNJOINED, "cuStreamEndCapture")
        handle = self.handle()
        self.graphs[handle] = graph
        return handle

    def user_launch(
        self,
        stream: int,
        name: str = "kernel",
        *,
        duration: int = 1_000,
        programmatic: bool = False,
    ) -> int:
        """The program launches a kernel: a node while it captures, else work (0)."""
        node = FakeNode(
            self.handle(), KIND_KERNEL, name, (8, 1, 1), (128, 1, 1), 0, duration=duration
        )
        return self.add_user_node(stream, node, programmatic=programmatic)

    def user_node(self, stream: int, kind: int, *, duration: int = 1_000) -> int:
        """The program adds a copy, a memset, a host call, a child graph or a conditional."""
        node = FakeNode(self.handle(), kind, _NAMES.get(kind, ""), duration=duration)
        return self.add_user_node(stream, node, programmatic=False)

    def add_user_node(self, stream: int, node: FakeNode, *, programmatic: bool) -> int:
        """A node of the program's: in its capture, else nothing (0)."""
        self._tick()
        target = self.streams[stream]
        if target.capture is None:
            return 0
        if not target.capture.valid:
            raise CudaError(_INVALIDATED, "cuLaunchKernel")
        graph = self.graphs[target.capture.graph]
        graph.add(node, target.frontier, 1 if programmatic and target.frontier else 0)
        target.frontier, target.edge_data = (node.handle,), programmatic
        return node.handle

    def record_event(self, stream: int) -> int:
        """The program records an event."""
        source = self.streams[stream]
        event = self.handle()
        self._events[event] = _Event(source.capture, source.frontier)
        return event

    def wait_event(self, stream: int, event: int) -> None:
        """The program makes a stream wait: how captures fork and join."""
        target, waited = self.streams[stream], self._events[event]
        if waited.capture is None:
            if target.capture is not None:
                self._spoil(target.capture)
                raise CudaError(_ISOLATION, "cuStreamWaitEvent")
            return
        if target.capture is None:
            target.capture, target.frontier = waited.capture, ()
            waited.capture.streams.add(stream)
        elif target.capture is not waited.capture:
            self._spoil(target.capture)
            self._spoil(waited.capture)
            raise CudaError(_MERGE, "cuStreamWaitEvent")
        target.frontier = tuple(dict.fromkeys((*target.frontier, *waited.frontier)))

    def touch_legacy_stream(self) -> None:
        """The program uses the stream that waits for all blocking ones."""
        blocked = [
            capture
            for capture in self._captures
            if capture.mode != RELAXED and any(self.streams[s].blocking for s in capture.streams)
        ]
        for capture in blocked:
            self._spoil(capture)
        if blocked:
            raise CudaError(_IMPLICIT, "legacy stream")

    def graph_of(self, handle: int) -> FakeGraph:
        """What a graph holds, for tests."""
        return self.graphs[handle]

    def functions_by_name(self) -> dict[str, int]:
        """Handles of the functions that were loaded."""
        return {name: handle for handle, name in self.functions.items()}

    def device_address(self, size: int = 4) -> int:
        """Zeroed memory of the device, for tests."""
        return self.memory.device(size)

    def captures(self) -> int:
        """Captures that are open."""
        return len(self._captures)

    def handle(self) -> int:
        """A handle that was not used before."""
        while True:
            handle = self.random.randrange(1 << 12, 1 << 47) & ~0xF
            if handle not in self._handles:
                self._handles.add(handle)
                return handle

    def called(self, name: str, *, needs_init: bool = True) -> None:
        """Note a call, and fail it where that was asked for."""
        self.calls.append(name)
        if needs_init and not self.initialized:
            raise CudaError(_NOT_INITIALIZED, name)
        code = self._fail(name) if self._fail is not None else 0
        if code:
            raise CudaError(code, name)

    def _spoil(self, capture: _Capture) -> None:
        capture.valid = False

    def unsafe(self, name: str) -> None:
        """Refuse a call that may not be made while somebody captures, as cuda_runtime_api.h says.

        A thread that is relaxed may. Otherwise every capture in global mode is spoilt, and those
        in thread-local mode of this thread.
        """
        thread = threading.get_ident()
        if self.modes.get(thread, GLOBAL) == RELAXED:
            return
        hurt = [
            capture
            for capture in self._captures
            if capture.mode == GLOBAL or (capture.mode == THREAD_LOCAL and capture.thread == thread)
        ]
        for capture in hurt:
            self._spoil(capture)
        if hurt:
            raise CudaError(_UNSUPPORTED, name)

    def _tick(self) -> None:
        self.clock.advance(100)

    def graph(self, handle: int, call: str) -> FakeGraph:
        """A graph by handle."""
        if handle not in self.graphs:
            raise CudaError(_INVALID_HANDLE, call)
        return self.graphs[handle]

    def find_node(self, handle: int) -> FakeNode:
        """A node by handle."""
        for graph in self.graphs.values():
            found = graph.get(handle)
            if found is not None:
                return found
        raise CudaError(_INVALID_HANDLE, "node")

    def function_of(self, name: str) -> int:
        """Handle of a function by name."""
        known = next((h for h, n in self.functions.items() if n == name), 0)
        if not known:
            known = self.handle()
            self.functions[known] = name
        return known
