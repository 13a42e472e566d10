# SPDX-License-Identifier: Apache-2.0
"""What the recorder asks of the CUDA driver, and nothing more. Standard library only.

Handles are plain integers, arrays are `array('Q')`. A call that the driver refuses raises
`CudaError` with the driver's code. The real port speaks to libcuda by ctypes; the fake one of the
tests keeps the rules of stream capture. One suite holds both to the same behaviour.
"""

from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = [
    "CAPTURE_ACTIVE",
    "CAPTURE_INVALIDATED",
    "CAPTURE_NONE",
    "KIND_CHILD",
    "KIND_CONDITIONAL",
    "KIND_EMPTY",
    "KIND_HOST",
    "KIND_KERNEL",
    "KIND_MEMCPY",
    "KIND_MEMSET",
    "NODE_KINDS",
    "CaptureInfo",
    "CudaError",
    "CudaPort",
    "DeviceInfo",
    "Edges",
    "NodeId",
    "NodeInfo",
]

CAPTURE_NONE: Final = 0
CAPTURE_ACTIVE: Final = 1
CAPTURE_INVALIDATED: Final = 2
"""Values of CUstreamCaptureStatus (cuda.h)."""

KIND_KERNEL: Final = 0
KIND_MEMCPY: Final = 1
KIND_MEMSET: Final = 2
KIND_HOST: Final = 3
KIND_CHILD: Final = 4
KIND_EMPTY: Final = 5
KIND_CONDITIONAL: Final = 13

NODE_KINDS: Final = {
    KIND_KERNEL: "kernel",
    KIND_MEMCPY: "memcpy",
    KIND_MEMSET: "memset",
    KIND_HOST: "host",
    KIND_CHILD: "child",
    KIND_EMPTY: "empty",
    6: "wait_event",
    7: "event_record",
    8: "semaphore_signal",
    9: "semaphore_wait",
    10: "mem_alloc",
    11: "mem_free",
    12: "batch_mem_op",
    KIND_CONDITIONAL: "conditional",
}
"""Names of CUgraphNodeType by value (cuda.h)."""


class CudaError(Exception):
    """The driver refused a call.

    Attributes:
        code: its CUresult.
        call: the function.
    """

    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call} failed with {code}")
        self.code = code
        self.call = call


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device. `host_atomics`: whether it can do atomics on host memory natively."""

    uuid: str
    cc: tuple[int, int]
    sms: int
    l2: int
    host_atomics: bool
    mig: bool


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """Capture of a stream.

    Attributes:
        status: one of the values above.
        ident: number of the capture sequence; streams that were forked from one share it.
        graph: handle of the graph being captured, 0 where there is none.
        deps: nodes that the next node on this stream will depend on.
        edge_data: whether any of those dependencies carries data (a programmatic launch).
    """

    status: int
    ident: int
    graph: int
    deps: tuple[int, ...]
    edge_data: bool


@dataclass(frozen=True, slots=True)
class Edges:
    """Dependencies: `before[i]` runs before `after[i]`; `kind[i]` is 1 for a programmatic one."""

    before: "array[int]"
    after: "array[int]"
    kind: "array[int]"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node: its kind, and of a kernel the function and launch shape (threads and bytes)."""

    kind: int
    function: int = 0
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class NodeId:
    """Identity of a node as profilers see it, and who gave it: tools-id or cupti-id."""

    value: int
    source: str


class CudaPort(Protocol):
    """The driver. Every method may raise `CudaError`; a graph is used by the thread capturing it.

    Graph calls want the device's context current where they launch or load; `context` makes it so.
    """

    def driver_version(self) -> int:
        """As 12040 for 12.4."""

    def device(self, ordinal: int) -> DeviceInfo:
        """Facts of a device."""

    def context(self, ordinal: int) -> AbstractContextManager[None]:
        """The device's primary context is current inside."""

    def relaxed(self) -> AbstractContextManager[None]:
        """Calls of this thread inside may be ones that would spoil somebody's capture."""

    def load(self, ordinal: int, image: bytes) -> dict[str, int]:
        """Load a module of kernels and each of its functions: handle by name."""

    def host_block(self, size: int, descriptor: int | None) -> tuple[int, int]:
        """Pinned memory that kernels can write: its address on the host and on the device.

        Args:
            size: bytes.
            descriptor: of the file whose memory it is to be; None for memory of the driver's own.
        """

    def device_block(self, size: int, stream: int) -> int:
        """Memory on the device, which work on this stream finds zeroed: its address."""

    def launch(self, function: int, stream: int, params: Sequence[tuple[str, int]]) -> None:
        """Launch one thread of a kernel; parameters are ("Q", value) or ("I", value)."""

    def own_stream(self, ordinal: int) -> int:
        """A stream of our own that waits for no other one."""

    def sync(self, stream: int) -> None:
        """Wait for a stream."""

    def capture_info(self, stream: int) -> CaptureInfo:
        """Whether and what a stream captures."""

    def node_count(self, graph: int) -> int:
        """Nodes of a graph."""

    def nodes(self, graph: int) -> "array[int]":
        """Handles of its nodes."""

    def edges(self, graph: int) -> Edges:
        """Its dependencies."""

    def node(self, node: int) -> NodeInfo:
        """What a node is."""

    def func_name(self, function: int) -> str | None:
        """Mangled name of a function; None where this driver does not tell."""

    def add_kernel(
        self,
        graph: int,
        deps: Sequence[int],
        function: int,
        params: Sequence[tuple[str, int]],
        priority: int | None,
    ) -> int:
        """Add a kernel of one thread to a graph; the new node."""

    def add_edges(self, graph: int, before: Sequence[int], after: Sequence[int]) -> None:
        """Add dependencies, none of which may be there already."""

    def clone(self, graph: int) -> int:
        """A copy of a graph."""

    def instantiate(self, graph: int, flags: int) -> int:
        """Make a graph executable."""

    def launch_graph(self, executable: int, stream: int) -> None:
        """Launch an executable graph."""

    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph of ours."""

    def destroy_exec(self, executable: int) -> None:
        """Destroy an executable graph of ours."""

    def node_id(self, node: int) -> NodeId | None:
        """The node's identity as profilers see it; None where this driver does not tell."""

    def exec_id(self, executable: int) -> int | None:
        """The executable graph's id as profilers see it; None where this driver does not tell."""
