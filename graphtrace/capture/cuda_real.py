# SPDX-License-Identifier: Apache-2.0
"""The CUDA port over libcuda. Standard library only; the library is the program's own.

Nothing here starts CUDA: the caller waits until the program has. Memory comes from the driver, not
from torch, whose allocator would take it from the pool of the graph that is being captured.
"""

import ctypes
import mmap
import os
import uuid
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from graphtrace.capture.cuda_abi import EdgeData, Functions, KernelParams
from graphtrace.capture.cuda_port import (
    CAPTURE_ACTIVE,
    KIND_KERNEL,
    CaptureInfo,
    CudaError,
    DeviceInfo,
    Edges,
    NodeId,
    NodeInfo,
)

__all__ = ["RealCuda", "find_library"]

_RELAXED: Final = 2
_NON_BLOCKING: Final = 1
_PORTABLE_AND_MAPPED: Final = 3
_PRIORITY_ATTRIBUTE: Final = 8
_EDGE_DATA_SINCE: Final = 12_030
_PARAMS_V2_SINCE: Final = 12_000
_MULTIPROCESSORS, _L2_BYTES, _HOST_ATOMICS, _MAJOR, _MINOR = 16, 38, 86, 75, 76
"""Values of CUdevice_attribute, CUlaunchAttributeID and flags (cuda.h)."""


def find_library() -> ctypes.CDLL | None:
    """The driver's library; None where there is none."""
    for name in ("libcuda.so.1", "libcuda.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _handles(values: Sequence[int]) -> Any:
    return (ctypes.c_void_p * max(len(values), 1))(*values)


class RealCuda:
    """See `graphtrace.capture.cuda_port.CudaPort`.

    Args:
        library: libcuda.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._cuda = Functions(library)
        self._contexts: dict[int, int] = {}
        self._maps: list[mmap.mmap] = []

    def _new(self, name: str, *arguments: Any) -> int:
        """Call a function whose first argument takes a new handle or address."""
        made = ctypes.c_void_p()
        self._cuda.call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def driver_version(self) -> int:
        """As 12040 for 12.4."""
        return self._cuda.version

    def device(self, ordinal: int) -> DeviceInfo:
        """Facts of a device."""
        device = ctypes.c_int()
        self._cuda.call("cuDeviceGet", ctypes.byref(device), ordinal)
        raw = ctypes.create_string_buffer(16)
        self._cuda.call("cuDeviceGetUuid", raw, device)

        def fact(number: int) -> int:
            value = ctypes.c_int()
            self._cuda.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
            return value.value

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        mig = ordinal < len(visible) and visible[ordinal].strip().startswith("MIG-")
        return DeviceInfo(
            uuid=f"GPU-{uuid.UUID(bytes=raw.raw)}",
            cc=(fact(_MAJOR), fact(_MINOR)),
            sms=fact(_MULTIPROCESSORS),
            l2=fact(_L2_BYTES),
            host_atomics=bool(fact(_HOST_ATOMICS)),
            mig=mig,
        )

    @contextmanager
    def context(self, ordinal: int) -> Iterator[None]:
        """The device's primary context is current inside."""
        if ordinal not in self._contexts:
            device = ctypes.c_int()
            self._cuda.call("cuDeviceGet", ctypes.byref(device), ordinal)
            self._contexts[ordinal] = self._new("cuDevicePrimaryCtxRetain", device)
        self._cuda.call("cuCtxPushCurrent", self._contexts[ordinal])
        try:
            yield
        finally:
            self._new("cuCtxPopCurrent")

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Calls of this thread inside may be ones that would spoil somebody's capture."""
        mode = ctypes.c_int(_RELAXED)
        self._cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def load(self, ordinal: int, image: bytes) -> dict[str, int]:
        """Load a module of kernels and each of its functions: handle by name."""
        module = self._new("cuModuleLoadData", image)
        names = [
            line.split(b".entry", 1)[1].split(b"(")[0].strip()
            for line in image.splitlines()
            if b".entry" in line and not line.lstrip().startswith(b"//")
        ]
        made = {}
        for name in names:
            made[name.decode()] = self._new("cuModuleGetFunction", module, name)
            if self._cuda.has("cuFuncLoad"):
                # With lazy loading the kernel is loaded here and not at its first launch.
                self._cuda.call("cuFuncLoad", made[name.decode()])
        return made

    def host_block(self, size: int, descriptor: int | None) -> tuple[int, int]:
        """Pinned memory that kernels can write: its address on the host and on the device."""
        if descriptor is None:
            host = self._new("cuMemHostAlloc", size, _PORTABLE_AND_MAPPED)
        else:
            block = mmap.mmap(descriptor, size)
            host = ctypes.addressof(ctypes.c_char.from_buffer(block))
            self._cuda.call("cuMemHostRegister", host, size, _PORTABLE_AND_MAPPED)
            self._maps.append(block)
        return host, self._new("cuMemHostGetDevicePointer", host, 0)

    def device_block(self, size: int, stream: int) -> int:
        """Memory on the device, which work on this stream finds zeroed: its address."""
        address = self._new("cuMemAlloc", size)
        self._cuda.call("cuMemsetD8Async", address, 0, size, stream)
        return address

    def launch(self, function: int, stream: int, params: Sequence[tuple[str, int]]) -> None:
        """Launch one thread of a kernel; parameters are ("Q", value) or ("I", value)."""
        with _packed(params) as pointers:
            self._cuda.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def own_stream(self, ordinal: int) -> int:
        """A stream of our own that waits for no other one."""
        return self._new("cuStreamCreate", _NON_BLOCKING)

    def sync(self, stream: int) -> None:
        """Wait for a stream."""
        self._cuda.call("cuStreamSynchronize", stream)

    def capture_info(self, stream: int) -> CaptureInfo:
        """Whether and what a stream captures."""
        status, ident = ctypes.c_int(), ctypes.c_uint64()
        graph, deps, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        data = ctypes.c_void_p()
        with_data = self._cuda.version_of("cuStreamGetCaptureInfo") >= _EDGE_DATA_SINCE
        self._cuda.call(
            "cuStreamGetCaptureInfo",
            stream,
            *map(ctypes.byref, (status, ident, graph, deps)),
            *([ctypes.byref(data)] if with_data else []),
            ctypes.byref(count),
        )
        if status.value != CAPTURE_ACTIVE:
            return CaptureInfo(status.value, ident.value, 0, (), edge_data=False)
        found = (ctypes.c_void_p * count.value).from_address(deps.value or 0) if count.value else ()
        carried = False
        if data.value and count.value:
            kinds = (EdgeData * count.value).from_address(data.value)
            carried = any(kind.type for kind in kinds)
        nodes = tuple(int(node or 0) for node in found)
        return CaptureInfo(status.value, ident.value, graph.value or 0, nodes, edge_data=carried)

    def node_count(self, graph: int) -> int:
        """Nodes of a graph."""
        count = ctypes.c_size_t()
        self._cuda.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        return count.value

    def nodes(self, graph: int) -> "array[int]":
        """Handles of its nodes."""
        count = ctypes.c_size_t(self.node_count(graph))
        found = (ctypes.c_uint64 * max(count.value, 1))()
        if count.value:
            self._cuda.call("cuGraphGetNodes", graph, found, ctypes.byref(count))
        return array("Q", found[: count.value])

    def edges(self, graph: int) -> Edges:
        """Its dependencies."""
        with_data = self._cuda.version_of("cuGraphGetEdges") >= _EDGE_DATA_SINCE
        none = (None,) if with_data else ()
        count = ctypes.c_size_t()
        # Asking for the number alone never loses data.
        self._cuda.call("cuGraphGetEdges", graph, None, None, *none, ctypes.byref(count))
        size = count.value
        before, after = (ctypes.c_uint64 * max(size, 1))(), (ctypes.c_uint64 * max(size, 1))()
        data = (EdgeData * max(size, 1))()
        if size:
            kinds = (data,) if with_data else ()
            arguments = (graph, before, after, *kinds, ctypes.byref(count))
            self._cuda.call("cuGraphGetEdges", *arguments)
        return Edges(
            array("Q", before[:size]),
            array("Q", after[:size]),
            array("Q", [edge.type for edge in data[:size]]),
        )

    def node(self, node: int) -> NodeInfo:
        """What a node is."""
        kind = ctypes.c_int()
        self._cuda.call("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value != KIND_KERNEL:
            return NodeInfo(kind.value)
        params = KernelParams()
        self._cuda.call("cuGraphKernelNodeGetParams", node, ctypes.byref(params))
        new = self._cuda.version_of("cuGraphKernelNodeGetParams") >= _PARAMS_V2_SINCE
        function = params.func or (params.kern if new else 0) or 0
        return NodeInfo(
            kind.value, function, _three(params.grid), _three(params.block), params.shared
        )

    def func_name(self, function: int) -> str | None:
        """Mangled name of a function; None where this driver does not tell."""
        for call in ("cuFuncGetName", "cuKernelGetName"):
            name = ctypes.c_char_p()
            try:
                self._cuda.call(call, ctypes.byref(name), function)
            except CudaError:
                # The handle may be a CUfunction or a CUkernel; either function refuses the other.
                continue
            return name.value.decode("utf-8", "replace") if name.value else None
        return None

    def add_kernel(
        self,
        graph: int,
        deps: Sequence[int],
        function: int,
        params: Sequence[tuple[str, int]],
        priority: int | None,
    ) -> int:
        """Add a kernel of one thread to a graph; the new node."""
        with _packed(params) as pointers:
            one = (ctypes.c_uint * 3)(1, 1, 1)
            wanted = KernelParams(function, one, one, 0, ctypes.addressof(pointers))
            node = self._new(
                "cuGraphAddKernelNode", graph, _handles(deps), len(deps), ctypes.byref(wanted)
            )
        if priority is not None:
            value = (ctypes.c_int * 16)(priority)
            self._cuda.call("cuGraphKernelNodeSetAttribute", node, _PRIORITY_ATTRIBUTE, value)
        return node

    def add_edges(self, graph: int, before: Sequence[int], after: Sequence[int]) -> None:
        """Add dependencies, none of which may be there already."""
        if before:
            ends = (_handles(before), _handles(after))
            self._cuda.call("cuGraphAddDependencies", graph, *ends, len(before))

    def clone(self, graph: int) -> int:
        """A copy of a graph."""
        return self._new("cuGraphClone", graph)

    def instantiate(self, graph: int, flags: int) -> int:
        """Make a graph executable."""
        return self._new("cuGraphInstantiateWithFlags", graph, flags)

    def launch_graph(self, executable: int, stream: int) -> None:
        """Launch an executable graph."""
        self._cuda.call("cuGraphLaunch", executable, stream)

    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph of ours."""
        self._cuda.call("cuGraphDestroy", graph)

    def destroy_exec(self, executable: int) -> None:
        """Destroy an executable graph of ours."""
        self._cuda.call("cuGraphExecDestroy", executable)

    def node_id(self, node: int) -> NodeId | None:
        """The node's identity as profilers see it; None where this driver does not tell."""
        if not self._cuda.has("cuGraphNodeGetToolsId"):
            return None
        value = ctypes.c_uint64()
        self._cuda.call("cuGraphNodeGetToolsId", node, ctypes.byref(value))
        return NodeId(value.value, "tools-id")

    def exec_id(self, executable: int) -> int | None:
        """The executable graph's id as profilers see it; None where this driver does not tell."""
        if not self._cuda.has("cuGraphExecGetId"):
            return None
        value = ctypes.c_uint()
        self._cuda.call("cuGraphExecGetId", executable, ctypes.byref(value))
        return value.value


def _three(values: Any) -> tuple[int, int, int]:
    x, y, z = values
    return int(x), int(y), int(z)


@contextmanager
def _packed(params: Sequence[tuple[str, int]]) -> Iterator[Any]:
    """Pointers to the parameters of a kernel, valid inside."""
    types = {"Q": ctypes.c_uint64, "I": ctypes.c_uint32}
    values = [types[kind](value) for kind, value in params]
    yield (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(v) for v in values))
