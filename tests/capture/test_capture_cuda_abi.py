# SPDX-License-Identifier: Apache-2.0
"""The real port against a stand-in of libcuda that was compiled with NVIDIA's own header."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import graphtrace
from graphtrace.capture.cuda_port import CudaError, CudaPort, NodeId
from graphtrace.capture.cuda_real import RealCuda
from graphtrace.testing.fake_cuda import FakeCuda

SOURCE = Path(__file__).parent / "stub_libcuda.c"
PTX = Path(graphtrace.__file__).parent / "capture" / "gt_mark.ptx"
VERSIONS = (11_080, 12_020, 12_040, 13_000, 13_010)
PARAMS = (("Q", 0x1234_5678_9ABC), ("I", 0xDEAD))


def header() -> Path | None:
    """The folder of cuda.h in NVIDIA's packages, where they are installed."""
    found = importlib.util.find_spec("nvidia")
    for place in found.submodule_search_locations or () if found else ():
        for path in sorted(Path(place).glob("*/include/cuda.h")):
            if "cuGraphNodeGetToolsId" in path.read_text(errors="replace"):
                return path.parent
    return None


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler, include = shutil.which("cc"), header()
    if compiler is None or include is None:
        pytest.skip("needs a C compiler and the cuda.h of nvidia-cuda-runtime 13.1 or newer")
    built = tmp_path_factory.mktemp("stub") / "libcuda_stub.so"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", f"-I{include}", "-o", str(built)]
    done = subprocess.run(
        [*command, str(SOURCE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(built))
    loaded.stub_log.restype = ctypes.c_char_p
    return loaded


@pytest.fixture
def stub(library: ctypes.CDLL) -> ctypes.CDLL:
    library.stub_version(13_010)
    library.stub_clear()
    return library


def said(stub: ctypes.CDLL) -> list[str]:
    lines = stub.stub_log().decode().splitlines()
    stub.stub_clear()
    return lines


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_called_with_its_own_arguments(stub: ctypes.CDLL, version: int) -> None:
    stub.stub_version(version)
    port = RealCuda(stub)
    assert port.driver_version() == version
    info = port.capture_info(0x57)
    assert (info.status, info.ident, info.graph, info.deps) == (1, 12, 0x70, (0x1110, 0x2220))
    assert info.edge_data == (version >= 12_030)
    assert said(stub) == [f"cuStreamGetCaptureInfo({'v3' if version >= 12_030 else 'v2'}, 0x57)"]
    edges = port.edges(0x70)
    assert list(zip(edges.before, edges.after, edges.kind, strict=True)) == [
        (0x1110, 0x2220, 0),
        (0x2220, 0x3330, 1 if version >= 12_030 else 0),
    ]
    said(stub)
    assert port.add_kernel(0x70, (0x1110, 0x2220), 0xF1, PARAMS, None) == 0x4440
    form = "v2" if version >= 12_000 else "v1"
    assert said(stub) == [
        f"cuGraphAddKernelNode({form}, 0x70, 0x2220, 2, 0xf1, 1 1 1, 1 1 1, 0, 123456789abc dead,"
        " (nil))"
    ]
    node = port.node(0x1110)
    assert (node.kind, node.grid, node.block, node.shared) == (0, (1, 2, 3), (4, 5, 6), 7)
    assert node.function == (0xF2 if version >= 12_000 else 0xF1)
    assert port.node(0x2220).kind == 1
    names = "_Z6kernelv" if version >= 12_030 else None
    assert port.func_name(0xF2) == names
    assert port.func_name(0xF1) == ("_Z4gemmv" if version >= 12_030 else None)
    assert port.node_id(0x1110) == (
        NodeId((5 << 32) | 6, "tools-id") if version >= 13_010 else None
    )
    assert port.exec_id(0xE1) == (77 if version >= 13_010 else None)


def test_what_does_not_depend_on_the_version(stub: ctypes.CDLL) -> None:
    port = RealCuda(stub)
    facts = port.device(1)
    assert facts.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (facts.cc, facts.sms, facts.l2, facts.host_atomics) == ((9, 1), 132, 52_428_800, True)
    said(stub)
    with port.context(1), port.relaxed():
        assert port.own_stream(1) == 0x57
        assert port.device_block(4, 0x57) == 0xD00D0000
    assert said(stub) == [
        "cuDeviceGet(1)",
        "cuDevicePrimaryCtxRetain(41)",
        "cuCtxPushCurrent(0xc0)",
        "cuThreadExchangeStreamCaptureMode(2)",
        "cuStreamCreate(1)",
        "cuMemAlloc(4)",
        "cuMemsetD8Async(d00d0000, 0, 4, 0x57)",
        "cuThreadExchangeStreamCaptureMode(0)",
        "cuCtxPopCurrent()",
    ]
    with port.context(1):
        pass
    assert said(stub) == ["cuCtxPushCurrent(0xc0)", "cuCtxPopCurrent()"]
    assert port.load(1, PTX.read_bytes()) == {"gt_mark": 0xF1, "gt_nop": 0xF1}
    assert said(stub) == [
        "cuModuleLoadData(// SPDX-Lice)",
        "cuModuleGetFunction(0x30d, gt_mark)",
        "cuFuncLoad(0xf1)",
        "cuModuleGetFunction(0x30d, gt_nop)",
        "cuFuncLoad(0xf1)",
    ]
    port.launch(0xF1, 0x57, PARAMS)
    port.add_edges(0x70, (0x1110, 0x2220), (0x2220, 0x3330))
    port.add_edges(0x70, (), ())
    port.add_kernel(0x70, (), 0xF1, PARAMS, -5)
    assert (port.node_count(0x70), list(port.nodes(0x70))) == (3, [0x1110, 0x2220, 0x3330])
    assert (port.clone(0x70), port.instantiate(0x71, 8)) == (0x71, 0xE1)
    port.launch_graph(0xE1, 0x57)
    port.sync(0x57)
    port.destroy_exec(0xE1)
    port.destroy_graph(0x71)
    lines = said(stub)
    assert lines[0] == "cuLaunchKernel(0xf1, 1 1 1, 1 1 1, 0, 0x57, 123456789abc dead, (nil))"
    assert lines[1] == "cuGraphAddDependencies(0x70, 0x1110>0x2220, 0x2220>0x3330, 2)"
    assert lines[3] == "cuGraphKernelNodeSetAttribute(0x4440, 1, -5)"
    assert "cuGraphInstantiateWithFlags(0x71, 8)" in lines
    assert port.capture_info(0x99).status == 0


def test_memory_of_a_file_is_what_the_device_writes(stub: ctypes.CDLL) -> None:
    port = RealCuda(stub)
    descriptor = os.memfd_create("ring")
    try:
        os.ftruncate(descriptor, 8192)
        host, device = port.host_block(8192, descriptor)
        assert device == host + (1 << 40)
        assert os.pread(descriptor, 8192, 0) == b"\xab" * 8192  # the stand-in wrote there
    finally:
        os.close(descriptor)
    assert said(stub) == ["cuMemHostRegister(8192, 3)", "cuMemHostGetDevicePointer(0)"]
    host, device = port.host_block(4096, None)
    assert device == host + (1 << 40)


@pytest.mark.parametrize("call", ["cuGraphAddKernelNode", "cuGraphGetNodes"])
def test_what_the_driver_refuses_is_an_error_with_its_code(stub: ctypes.CDLL, call: str) -> None:
    port = RealCuda(stub)
    stub.stub_fail(call.encode(), 900)
    with pytest.raises(CudaError) as caught:
        if call == "cuGraphGetNodes":
            port.node_count(0x70)
        else:
            port.add_kernel(0x70, (), 0xF1, PARAMS, None)
    assert (caught.value.code, caught.value.call) == (900, call)


def test_a_context_is_given_back_and_a_mode_restored_after_an_error(stub: ctypes.CDLL) -> None:
    port = RealCuda(stub)
    with pytest.raises(KeyError), port.context(0), port.relaxed():
        raise KeyError
    assert said(stub)[-2:] == ["cuThreadExchangeStreamCaptureMode(0)", "cuCtxPopCurrent()"]


def test_both_ports_are_the_port(stub: ctypes.CDLL) -> None:
    """The type checker holds the same; this holds that no method is missing at run time."""
    wanted = {name for name in vars(CudaPort) if not name.startswith("_")}
    for port in (RealCuda(stub), FakeCuda()):
        assert wanted <= {name for name in dir(port) if not name.startswith("_")}


def check_types(real: RealCuda, fake: FakeCuda) -> tuple[CudaPort, CudaPort]:
    """For the type checker."""
    return real, fake
