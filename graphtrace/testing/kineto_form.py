# SPDX-License-Identifier: Apache-2.0
"""How Kineto wrote its traces from 2021 to 2026."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from graphtrace.testing.nsys_plan import Copy, Kernel, Node, Set

__all__ = ["DIALECTS", "Dialect", "DialectName", "call_of", "facts_of"]

DialectName = Literal["2021", "2022", "2025", "2026", "rocm"]
_KINDS: Final = {1: ("HtoD", "Pinned -> Device"), 2: ("DtoH", "Device -> Pinned")}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one generation of Kineto wrote its traces.

    Attributes:
        name: what it is called here.
        kernel, copy, set, runtime, operator, annotation, flow: categories.
        fractions: whether times have nanoseconds and count from a base; else whole microseconds.
        quoted: whether threads and streams are texts.
        external: name of the argument that links an operator.
        node_ids: whether replayed nodes carry `graph node id` and `graph id` (kineto#1276).
        amd: whether it is written through ROCm, without grids inside graphs.
    """

    name: str
    kernel: str = "kernel"
    copy: str = "gpu_memcpy"
    set: str = "gpu_memset"
    runtime: str = "cuda_runtime"
    operator: str = "cpu_op"
    annotation: str = "user_annotation"
    flow: str = "ac2g"
    fractions: bool = True
    quoted: bool = False
    external: str = "External id"
    node_ids: bool = False
    amd: bool = False

    @property
    def prefix(self) -> str:
        """What names of calls begin with."""
        return "hip" if self.amd else "cuda"


_OLDEST: Final = Dialect(
    "2021",
    kernel="Kernel",
    copy="Memcpy",
    set="Memset",
    runtime="Runtime",
    operator="Operator",
    annotation="Operator",
    flow="async",
    fractions=False,
    quoted=True,
    external="external id",
)
DIALECTS: Final[dict[DialectName, Dialect]] = {
    "2021": _OLDEST,
    "2022": Dialect("2022", flow="async_cpu_to_gpu", fractions=False),
    "2025": Dialect("2025"),
    "2026": Dialect("2026", node_ids=True),
    "rocm": Dialect("rocm", amd=True),
}
"""Dialects by name; the real traces that each was compared with are named in the tests."""


def call_of(node: Node, dialect: Dialect) -> str:
    """The call that launches a node."""
    match node:
        case Kernel():
            name = "LaunchKernel"
        case Copy():
            name = "MemcpyAsync"
        case Set():
            name = "MemsetAsync"
    return f"{dialect.prefix}{name}"


def facts_of(
    node: Node, dialect: Dialect, sm_count: int, *, in_graph: bool
) -> tuple[str, str, dict[str, Any]]:
    """Category, name and arguments of the work of a node.

    Args:
        node: what ran.
        dialect: how it is written.
        sm_count: SMs of the GPU.
        in_graph: whether it ran in a graph; ROCm then leaves out its grid.
    """
    match node:
        case Kernel():
            facts = _kernel(node, dialect, sm_count, in_graph=in_graph)
            return dialect.kernel, node.name, facts
        case Copy():
            how, places = _KINDS.get(node.kind, ("DtoD", "Device -> Device"))
            facts = {"bytes": node.bytes, "memory bandwidth (GB/s)": 1.5}
            return dialect.copy, f"Memcpy {how} ({places})", facts
        case Set():
            facts = {"bytes": node.bytes, "memory bandwidth (GB/s)": "N/A"}
            return dialect.set, "Memset (Device)", facts


def _kernel(kernel: Kernel, dialect: Dialect, sm_count: int, *, in_graph: bool) -> dict[str, Any]:
    shape = {"grid": list(kernel.grid), "block": list(kernel.block)}
    if dialect.amd:
        return {"kind": "Dispatch Kernel"} | ({} if in_graph else shape)
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / sm_count
    return {
        "queued": 0,
        "registers per thread": kernel.registers,
        "shared memory": kernel.static_bytes + kernel.dynamic_bytes,
        "blocks per SM": round(blocks, 6),
        "warps per SM": round(blocks * kernel.block[0] / 32, 6),
        **shape,
        "est. achieved occupancy %": 50,
    }
