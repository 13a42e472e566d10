# SPDX-License-Identifier: Apache-2.0
"""Functions of libcuda by ctypes: which one to ask for, and with which arguments to call it.

A driver that is asked for a newer version of a function than it has may answer with the older one
and say success: called with the newer arguments that corrupts the stack. So a version is asked for
only up to the driver's own, and the arguments are chosen by what was asked for, never by what came
back. Names, versions and arguments are those of cuda.h and cudaTypedefs.h of CUDA 13.
Standard library only.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from graphtrace.capture.cuda_port import CudaError

__all__ = ["EdgeData", "Functions", "KernelParams", "Prototype"]

_NOT_FOUND: Final = 500
_P, _U, _I = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
_Q, _Z = ctypes.c_uint64, ctypes.c_size_t


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2; version 1 ends before `kern`."""

    _fields_ = (
        ("func", _P),
        ("grid", _U * 3),
        ("block", _U * 3),
        ("shared", _U),
        ("params", _P),
        ("extra", _P),
        ("kern", _P),
        ("ctx", _P),
    )


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (
        ("from_port", ctypes.c_uint8),
        ("to_port", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 5),
    )


@dataclass(frozen=True, slots=True)
class Prototype:
    """One version of a function.

    Attributes:
        version: the CUDA version to ask for, as 12030 for 12.3.
        arguments: their types.
    """

    version: int
    arguments: tuple[Any, ...]


def _one(version: int, *arguments: Any) -> tuple[Prototype, ...]:
    return (Prototype(version, arguments),)


_HANDLES = _P  # a pointer to handles; addresses of arrays are passed
_PROTOTYPES: Final[dict[str, tuple[Prototype, ...]]] = {
    "cuCtxPopCurrent": _one(4000, _P),
    "cuCtxPushCurrent": _one(4000, _P),
    "cuDeviceGet": _one(2000, _P, _I),
    "cuDeviceGetAttribute": _one(2000, _P, _I, _I),
    "cuDeviceGetUuid": _one(11040, _P, _I),
    "cuDevicePrimaryCtxRetain": _one(7000, _P, _I),
    "cuFuncGetName": _one(12030, _P, _P),
    "cuFuncLoad": _one(12040, _P),
    "cuGraphAddDependencies": _one(10000, _P, _HANDLES, _HANDLES, _Z),
    "cuGraphAddKernelNode": (
        Prototype(12000, (_P, _P, _HANDLES, _Z, _P)),
        Prototype(10000, (_P, _P, _HANDLES, _Z, _P)),
    ),
    "cuGraphClone": _one(10000, _P, _P),
    "cuGraphDestroy": _one(10000, _P),
    "cuGraphExecDestroy": _one(10000, _P),
    "cuGraphExecGetId": _one(13010, _P, _P),
    "cuGraphGetEdges": (
        Prototype(12030, (_P, _HANDLES, _HANDLES, _P, _P)),
        Prototype(10000, (_P, _HANDLES, _HANDLES, _P)),
    ),
    "cuGraphGetNodes": _one(10000, _P, _HANDLES, _P),
    "cuGraphInstantiateWithFlags": _one(11040, _P, _P, _Q),
    "cuGraphKernelNodeGetParams": (
        Prototype(12000, (_P, _P)),
        Prototype(10000, (_P, _P)),
    ),
    "cuGraphKernelNodeSetAttribute": _one(11000, _P, _I, _P),
    "cuGraphLaunch": _one(10000, _P, _P),
    "cuGraphNodeGetToolsId": _one(13010, _P, _P),
    "cuGraphNodeGetType": _one(10000, _P, _P),
    "cuKernelGetName": _one(12030, _P, _P),
    "cuLaunchKernel": _one(4000, _P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
    "cuMemAlloc": _one(3020, _P, _Z),
    "cuMemHostAlloc": _one(2020, _P, _Z, _U),
    "cuMemHostGetDevicePointer": _one(3020, _P, _P, _U),
    "cuMemHostRegister": _one(6050, _P, _Z, _U),
    "cuMemsetD8Async": _one(3020, _Q, ctypes.c_ubyte, _Z, _P),
    "cuModuleGetFunction": _one(2000, _P, _P, ctypes.c_char_p),
    "cuModuleLoadData": _one(2000, _P, ctypes.c_char_p),
    "cuStreamCreate": _one(2000, _P, _U),
    "cuStreamGetCaptureInfo": (
        Prototype(12030, (_P, _P, _P, _P, _P, _P, _P)),
        Prototype(11030, (_P, _P, _P, _P, _P, _P)),
    ),
    "cuStreamSynchronize": _one(2000, _P),
    "cuThreadExchangeStreamCaptureMode": _one(10010, _P),
}
"""Newest version first."""


class Functions:
    """Functions of a driver, looked up when they are first called.

    Args:
        library: libcuda, or what stands in for it.

    Raises:
        CudaError: it does not say its version, or has no way to ask for functions.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        version = _I()
        code = library.cuDriverGetVersion(ctypes.byref(version))
        if code:
            raise CudaError(code, "cuDriverGetVersion")
        self.version = version.value
        self._found: dict[str, tuple[Callable[..., int], Prototype] | None] = {}
        ask = getattr(library, "cuGetProcAddress_v2", None)
        self._asks_with_status = ask is not None
        ask = ask or getattr(library, "cuGetProcAddress", None)
        if ask is None:
            raise CudaError(_NOT_FOUND, "cuGetProcAddress")
        ask.restype = _I
        ask.argtypes = [ctypes.c_char_p, _P, _I, _Q, *([_P] if self._asks_with_status else [])]
        self._ask = ask

    def has(self, name: str) -> bool:
        """Whether this driver has a function in a version that we can call."""
        return self._find(name) is not None

    def version_of(self, name: str) -> int:
        """The version of a function that is called here; 0 where there is none."""
        found = self._find(name)
        return found[1].version if found else 0

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            CudaError: there is none, or it says no.
        """
        found = self._find(name)
        if found is None:
            raise CudaError(_NOT_FOUND, name)
        code = found[0](*arguments)
        if code:
            raise CudaError(code, name)

    def _find(self, name: str) -> tuple[Callable[..., int], Prototype] | None:
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def _look(self, name: str) -> tuple[Callable[..., int], Prototype] | None:
        fits = next((p for p in _PROTOTYPES[name] if p.version <= self.version), None)
        if fits is None:
            return None
        address, status = _P(), _I()
        rest = [ctypes.byref(status)] if self._asks_with_status else []
        code = self._ask(name.encode(), ctypes.byref(address), fits.version, 0, *rest)
        if code or status.value or not address.value:
            return None
        return ctypes.CFUNCTYPE(_I, *fits.arguments)(address.value), fits
