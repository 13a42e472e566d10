# SPDX-License-Identifier: Apache-2.0
"""Stages as NVTX ranges, for a profiler that is attached. Standard library only at import.

Nothing is emitted, and `nvtx` (which imports numpy) is not imported, unless a profiler is attached
when the first stage begins: without one nobody can see a range, and the program would pay for it.
"""

import os
import sys
from importlib import import_module
from typing import Any, Final, Protocol

__all__ = ["Emitter", "attached", "emitter"]

_SIGNS: Final = (
    # Set by Nsight Systems for NVTX, by any tool through NVTX's documented injection variable.
    ("NVTX_INJECTION64_PATH", "nvtx"),
    ("NSYS_PROFILING_SESSION_ID", "nsys"),
    # Set by Nsight Compute for the processes it starts.
    ("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "ncu"),
    ("CUDA_INJECTION64_PATH", "cuda injection"),
)
_DOMAIN: Final = "graphtrace"


class Emitter(Protocol):
    """Opens and closes ranges on the calling thread."""

    via: str
    """What emits: nvtx or torch, with its version where it says one."""

    def push(self, name: str) -> None:
        """Open a range."""

    def pop(self) -> None:
        """Close the range opened last."""


def attached() -> str | None:
    """Name of the profiler that this process runs under, by what it leaves in the environment."""
    found = [tool for variable, tool in _SIGNS if os.environ.get(variable)]
    return "nsys" if "nsys" in found else next(iter(found), None)


class _Nvtx:
    """Through the `nvtx` package: own domain, registered strings (ncu and nsys select by them)."""

    def __init__(self, nvtx: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            self.via = f"nvtx {version('nvtx')}"
        except PackageNotFoundError:
            self.via = "nvtx"
        self._nvtx = nvtx
        self._domain = nvtx.get_domain(_DOMAIN)
        # Domains have their own push and pop from 0.2.12 on. The package registers each message.
        self._direct = hasattr(self._domain, "push_range")
        self._attributes: dict[str, Any] = {}

    def push(self, name: str) -> None:
        if not self._direct:
            self._nvtx.push_range(name, domain=_DOMAIN)
            return
        attributes = self._attributes.get(name)
        if attributes is None:
            attributes = self._domain.get_event_attributes(message=name)
            self._attributes[name] = attributes
        self._domain.push_range(attributes)

    def pop(self) -> None:
        if self._direct:
            self._domain.pop_range()
        else:
            self._nvtx.pop_range(domain=_DOMAIN)


class _TorchNvtx:
    """Through torch's own NVTX, which knows no domains."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx
        self.via = "torch.cuda.nvtx"

    def push(self, name: str) -> None:
        self._nvtx.range_push(name)

    def pop(self) -> None:
        self._nvtx.range_pop()


def emitter() -> Emitter | None:
    """What emits ranges here; None where no profiler is attached or nothing can emit."""
    if attached() is None:
        return None
    try:
        return _Nvtx(import_module("nvtx"))
    except ImportError:
        pass
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch.version, "cuda", None):
        return _TorchNvtx(torch.cuda.nvtx)
    return None
