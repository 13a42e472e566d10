# SPDX-License-Identifier: Apache-2.0
"""A CUDA driver without a GPU: streams, events and graph capture by the driver's own rules.

    gpu = FakeCuda()
    stream = gpu.user_stream()
    gpu.begin_capture(stream)
    gpu.user_launch(stream, "gemm")
    graph = gpu.end_capture(stream)        # CudaError 904 where a fork was never joined

It keeps what decides whether a program's capture survives: forks and joins by events, work that
nobody joined, calls that spoil a capture in each of the three modes and from other threads, the
legacy stream, handles that mean nothing after the end. Launched graphs run on a clock of their own
and write marks into real memory. It answers as a driver of a given version does, and fails any call
on request.
"""

import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from graphtrace.capture.cuda_port import (
    CAPTURE_ACTIVE,
    CAPTURE_INVALIDATED,
    CAPTURE_NONE,
    KIND_CONDITIONAL,
    KIND_KERNEL,
    CaptureInfo,
    CudaError,
    DeviceInfo,
    Edges,
    NodeId,
    NodeInfo,
)
from graphtrace.testing.fake_driver import GLOBAL, RELAXED, THREAD_LOCAL, FakeDriver
from graphtrace.testing.fake_graphs import FakeNode, run_graph

__all__ = ["GLOBAL", "RELAXED", "THREAD_LOCAL", "FakeCuda"]

_INVALID_VALUE: Final = 1
_INVALID_HANDLE: Final = 400
_LOSSY_QUERY: Final = 402
_NOT_SUPPORTED: Final = 801
_EDGE_DATA_SINCE: Final = 12_030
_TOOLS_ID_SINCE: Final = 13_010
_NAMES_SINCE: Final = 12_030


class FakeCuda(FakeDriver):
    """The port over the fake driver: see `graphtrace.capture.cuda_port.CudaPort`."""

    def driver_version(self) -> int:
        """The version asked for at first."""
        self.called("cuDriverGetVersion", needs_init=False)
        return self.version

    def device(self, ordinal: int) -> DeviceInfo:
        """A device that does not exist."""
        self.called("cuDeviceGetAttribute")
        return DeviceInfo(
            f"GPU-fake-{ordinal}", (9, 0), 132, 50 << 20, host_atomics=True, mig=False
        )

    @contextmanager
    def context(self, ordinal: int) -> Iterator[None]:
        """Makes a context current."""
        self.called("cuCtxPushCurrent")
        yield

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Exchanges the capture mode of this thread, and back."""
        self.called("cuThreadExchangeStreamCaptureMode")
        thread = threading.get_ident()
        before = self.modes.get(thread, GLOBAL)
        self.modes[thread] = RELAXED
        try:
            yield
        finally:
            self.modes[thread] = before

    def load(self, ordinal: int, image: bytes) -> dict[str, int]:
        """Finds the entries of PTX."""
        self.called("cuModuleLoadData")
        self.unsafe("cuModuleLoadData")
        names = [
            line.split(b".entry", 1)[1].split(b"(")[0].strip().decode()
            for line in image.splitlines()
            if b".entry" in line and not line.lstrip().startswith(b"//")
        ]
        if not names:
            raise CudaError(_INVALID_VALUE, "cuModuleLoadData")
        made = {name: self.handle() for name in names}
        self.functions.update({handle: name for name, handle in made.items()})
        return made

    def host_block(self, size: int, descriptor: int | None) -> tuple[int, int]:
        """Memory of a file, or of our own; host and device see it at different addresses."""
        self.called("cuMemHostRegister" if descriptor is not None else "cuMemHostAlloc")
        self.unsafe("cuMemHostAlloc")
        return self.memory.host(size, descriptor)

    def device_block(self, size: int, stream: int) -> int:
        """Zeroed memory."""
        self.called("cuMemAlloc")
        self.unsafe("cuMemAlloc")
        return self.memory.device(size)

    def launch(self, function: int, stream: int, params: Sequence[tuple[str, int]]) -> None:
        """Launches on a stream: into its capture, where it has one."""
        self.called("cuLaunchKernel")
        name = self.functions[function]
        if stream in self.streams and self.streams[stream].capture is not None:
            node = FakeNode(self.handle(), KIND_KERNEL, name, (1, 1, 1), (1, 1, 1), 0)
            self.add_user_node(stream, node, programmatic=False)
            return
        self.launches.append((name, stream))

    def own_stream(self, ordinal: int) -> int:
        """A stream that waits for nobody."""
        self.called("cuStreamCreate")
        self.unsafe("cuStreamCreate")
        return self.user_stream(ordinal, blocking=False)

    def sync(self, stream: int) -> None:
        """Waits, which is a call that spoils captures."""
        self.called("cuStreamSynchronize")
        self.unsafe("cuStreamSynchronize")

    def capture_info(self, stream: int) -> CaptureInfo:
        """What a stream captures."""
        self.called("cuStreamGetCaptureInfo")
        if stream not in self.streams:
            raise CudaError(_INVALID_HANDLE, "cuStreamGetCaptureInfo")
        found = self.streams[stream]
        if found.capture is None:
            return CaptureInfo(CAPTURE_NONE, 0, 0, (), edge_data=False)
        capture = found.capture
        if not capture.valid:
            return CaptureInfo(CAPTURE_INVALIDATED, capture.ident, 0, (), edge_data=False)
        if found.edge_data and self.version < _EDGE_DATA_SINCE:
            raise CudaError(_LOSSY_QUERY, "cuStreamGetCaptureInfo")
        deps, data = found.frontier, found.edge_data
        return CaptureInfo(CAPTURE_ACTIVE, capture.ident, capture.graph, deps, edge_data=data)

    def node_count(self, graph: int) -> int:
        """Nodes of a graph."""
        self.called("cuGraphGetNodes")
        return len(self.graph(graph, "cuGraphGetNodes").nodes)

    def nodes(self, graph: int) -> "array[int]":
        """Handles of its nodes."""
        self.called("cuGraphGetNodes")
        handles = [node.handle for node in self.graph(graph, "cuGraphGetNodes").nodes]
        if self.shuffled:
            self.random.shuffle(handles)
        return array("Q", handles)

    def edges(self, graph: int) -> Edges:
        """Its dependencies."""
        self.called("cuGraphGetEdges")
        edges = self.graph(graph, "cuGraphGetEdges").edges
        if any(edges.values()) and self.version < _EDGE_DATA_SINCE:
            raise CudaError(_LOSSY_QUERY, "cuGraphGetEdges")
        pairs = list(edges)
        return Edges(
            array("Q", [before for before, _ in pairs]),
            array("Q", [after for _, after in pairs]),
            array("Q", edges.values()),
        )

    def node(self, node: int) -> NodeInfo:
        """What a node is."""
        self.called("cuGraphKernelNodeGetParams")
        found = self.find_node(node)
        if found.kind != KIND_KERNEL:
            return NodeInfo(found.kind)
        return NodeInfo(found.kind, self.function_of(found.name), found.grid, found.block, 0)

    def func_name(self, function: int) -> str | None:
        """Name of a function, where this version tells."""
        self.called("cuFuncGetName")
        return self.functions[function] if self.version >= _NAMES_SINCE else None

    def add_kernel(
        self,
        graph: int,
        deps: Sequence[int],
        function: int,
        params: Sequence[tuple[str, int]],
        priority: int | None,
    ) -> int:
        """Adds a node by hand: nobody needs to join it."""
        self.called("cuGraphAddKernelNode")
        target = self.graph(graph, "cuGraphAddKernelNode")
        if len(set(deps)) != len(deps) or any(dep not in target for dep in deps):
            raise CudaError(_INVALID_VALUE, "cuGraphAddKernelNode")
        name = self.functions[function]
        node = FakeNode(
            self.handle(), KIND_KERNEL, name, (1, 1, 1), (1, 1, 1), 0, tuple(params), explicit=True
        )
        target.add(node, tuple(deps), 0)
        return node.handle

    def add_edges(self, graph: int, before: Sequence[int], after: Sequence[int]) -> None:
        """Adds dependencies; one that is there, or that closes a cycle, is refused."""
        self.called("cuGraphAddDependencies")
        target = self.graph(graph, "cuGraphAddDependencies")
        pairs = list(zip(before, after, strict=True))
        twice = len(set(pairs)) != len(pairs) or any(pair in target.edges for pair in pairs)
        if twice or any(node not in target for pair in pairs for node in pair):
            raise CudaError(_INVALID_VALUE, "cuGraphAddDependencies")
        for pair in pairs:
            target.edges[pair] = 0
        if not target.acyclic():
            for pair in pairs:
                del target.edges[pair]
            raise CudaError(_INVALID_VALUE, "cuGraphAddDependencies")

    def clone(self, graph: int) -> int:
        """A copy; memory and conditional nodes cannot be copied."""
        self.called("cuGraphClone")
        source = self.graph(graph, "cuGraphClone")
        if any(node.kind in (10, 11, KIND_CONDITIONAL) for node in source.nodes):
            raise CudaError(_NOT_SUPPORTED, "cuGraphClone")
        handle = self.handle()
        self.graphs[handle] = source.copied(self.handle)
        return handle

    def instantiate(self, graph: int, flags: int) -> int:
        """Makes a graph executable."""
        self.called("cuGraphInstantiate")
        self.unsafe("cuGraphInstantiate")
        handle = self.handle()
        self.idents += 1
        self.execs[handle] = self.graph(graph, "cuGraphInstantiate").instantiated(self.idents)
        return handle

    def launch_graph(self, executable: int, stream: int) -> None:
        """Runs a graph at once."""
        self.called("cuGraphLaunch")
        if executable not in self.execs:
            raise CudaError(_INVALID_HANDLE, "cuGraphLaunch")
        run_graph(self.execs[executable], self.clock, self.memory)

    def destroy_graph(self, graph: int) -> None:
        """Forgets a graph."""
        self.called("cuGraphDestroy")
        if self.graphs.pop(graph, None) is None:
            raise CudaError(_INVALID_HANDLE, "cuGraphDestroy")

    def destroy_exec(self, executable: int) -> None:
        """Forgets an executable graph."""
        self.called("cuGraphExecDestroy")
        if self.execs.pop(executable, None) is None:
            raise CudaError(_INVALID_HANDLE, "cuGraphExecDestroy")

    def node_id(self, node: int) -> NodeId | None:
        """Identity of a node, where this version tells."""
        self.called("cuGraphNodeGetToolsId")
        found = self.find_node(node)
        return NodeId(found.tools_id, "tools-id") if self.version >= _TOOLS_ID_SINCE else None

    def exec_id(self, executable: int) -> int | None:
        """Id of an executable graph, where this version tells."""
        self.called("cuGraphExecGetId")
        return self.execs[executable].ident if self.version >= _TOOLS_ID_SINCE else None
