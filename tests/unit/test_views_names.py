# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from graphtrace.views.names import fit, short_kernel, short_kernels, shown_width, visible

GEMM = (
    "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaMultistage<"
    "cutlass::gemm::GemmShape<(int)128, (int)96, (int)64>, signed char>>>(T1::Params)"
)


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("addConstDouble3(int, double3 *)", 40, "addConstDouble3"),
        ("void fa3_fwd_kernel<(int)64, (bool)1>(const __half *, int)", 40, "fa3_fwd_kernel<64, 1>"),
        ("set_halo_values_x_396_gpu", 40, "set_halo_values_x_396_gpu"),
        (GEMM, 60, "Kernel<Gemm<MmaMultistage<…>>>"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::F<float>, "
            "std::array<char*, 3ul> >(int, at::native::F<float>)",
            70,
            "vectorized_elementwise_kernel<4, F<float>, array<char*, 3ul>>",
        ),
        (
            "(anonymous namespace)::softmax_warp_forward<float, 10>(float*)",
            40,
            "softmax_warp_forward<float, 10>",
        ),
        ("void ns::S::operator()(int)", 40, "operator()"),
        ("void unnamed>::gemm_tiled_kernel<32>(const float *, int)", 40, "gemm_tiled_kernel<32>"),
        ("unnamed>::transpose_naive_kernel(const float *)", 40, "transpose_naive_kernel"),
        ("std::enable_if<!T7, void>::type kernel<int, 7>(T10)", 40, "kernel<int, 7>"),
        (
            "void k<a(float)::[lambda() (instance 3)]>(int)",
            60,
            "k<a(float)::[lambda() (instance 3)]>",
        ),
        ("sm90_xmma_gemm_bf16_tilesize128x128x64_cublas", 20, "sm90_xmma_gem…cublas"),
        ("", 10, ""),
    ],
)
def test_short_kernel(name, width, short):
    assert short_kernel(name, width) == short


@given(st.text(max_size=200), st.integers(1, 60))
def test_what_is_shown_fits_and_is_harmless(name, width):
    for shown in (short_kernel(name, width), fit(visible(name), width)):
        assert shown_width(shown) <= width
        assert visible(shown) == shown


CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_{}_align4>(T1::Params)"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, "
    "std::array<char*, 3ul> >(int, at::native::{}<float>, std::array<char*, 3ul>)"
)


@pytest.mark.parametrize("width", [24, 30, 46])
@pytest.mark.parametrize(
    "names",
    [
        [CUTLASS.format(form) for form in ("64x64_16x5_nt", "64x64_16x5_tn", "128x64_16x3_nn")],
        [ELEMENTWISE.format(what, what) for what in ("GeluFunctor", "CUDAFunctor_add", "Fill")],
    ],
)
def test_instances_of_one_template_are_told_apart(names, width):
    shown = short_kernels(names, width)
    assert len(set(shown)) == len(names)


def test_a_name_that_is_alone_or_the_same_twice_is_shortened_as_ever():
    names = [GEMM, "copy(int)", GEMM]
    assert short_kernels(names, 60) == [short_kernel(name, 60) for name in names]


@given(st.lists(st.text("<>():, aB_\u202e日", max_size=60), max_size=6), st.integers(1, 40))
def test_names_of_a_table_fit_and_are_harmless(names, width):
    shown = short_kernels(names, width)
    assert len(shown) == len(names)
    for short in shown:
        assert shown_width(short) <= width
        assert visible(short) == short


@given(st.text("<>(){}[]:, abkernel\x1b\u202e*&", max_size=120), st.integers(8, 60))
def test_unbalanced_brackets_never_break_it(name, width):
    assert shown_width(short_kernel(name, width)) <= width


@pytest.mark.parametrize("text", ["日本語カーネル", "abc", "é", "\uff46\uff55\uff4c", "кернел"])
def test_width_agrees_with_the_terminal_library(text):
    assert shown_width(text) == cell_len(text)


@pytest.mark.parametrize(
    "bad",
    ["\x1b", "\x07", "\n", "\r", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\u2028", "\ud800"],
)
def test_controls_become_visible(bad):
    shown = visible(f"a{bad}b")
    assert bad not in shown
    assert shown.startswith("a\\") and shown.endswith("b")
