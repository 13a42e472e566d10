# SPDX-License-Identifier: Apache-2.0
"""Ready-made synthetic exports with stalls whose place and size are known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphtrace.testing.nsys import Copy, Kernel, NsysExport, Set, Stage
from graphtrace.testing.nsys_schema import DialectName

__all__ = ["Planted", "planted_vit", "vit_stages"]

_BLOCKS: Final = 4
_SMALL_GRID_STAGE: Final = "blocks.2/mlp"
_GAP_STAGE: Final = "blocks.3/attn"
_GAP_NS: Final = 60_000
_PERIOD_NS: Final = 1_400_000
_CAPTURED_TOKENS: Final = 576
_VALID_TOKENS: Final = (576, 196, 400, 256)


@dataclass(frozen=True, slots=True)
class Planted:
    """What was planted.

    Attributes:
        path: the file.
        stages: paths of the stages, in capture order.
        replays: number of replays.
        nodes: nodes of the graph.
        period_ns: from launch to launch; what the replay does not fill of it is host-bound.
        small_grid_stage: stage whose largest kernel has fewer blocks than the GPU has SMs.
        small_grid: blocks of that kernel.
        gap_stage, gap_ns: stage in front of which the device waits in each replay, and how long
            beyond the gap that any node has.
        busy_ns: summed durations of each stage's nodes over all replays, in the order of `stages`;
            only in patch_embed do two of them run side by side.
    """

    path: Path
    stages: tuple[str, ...]
    replays: int
    nodes: int
    period_ns: int
    small_grid_stage: str
    small_grid: int
    gap_stage: str
    gap_ns: int
    busy_ns: tuple[int, ...]


def vit_stages() -> tuple[Stage, ...]:
    """A ViT-hybrid encoder: convolution stem, patch embedding, four blocks, head."""
    norm = Kernel("void layer_norm_kernel<float>(float*, float const*, int)", 7_000, (576, 1, 1))
    stages = [
        Stage(
            "stem",
            [
                Set(1 << 20, 2_000),
                Kernel("void implicit_convolve_sgemm<128, 5>(float*)", 42_000, (1536, 1, 1)),
                Kernel("void batch_norm_relu<float>(float*, int)", 11_000, (1536, 1, 1)),
            ],
        ),
        Stage(
            "patch_embed",
            [
                Kernel("ampere_sgemm_128x64_nn", 30_000, (288, 4, 1)),
                Kernel("void position_table<float>(float*, int)", 5_000, (144, 1, 1), stream=1),
                Kernel("void add_kernel<float>(float*, float const*)", 6_000, (576, 1, 1)),
            ],
        ),
    ]
    for block in range(_BLOCKS):
        stages += [_attention(f"blocks.{block}/attn", norm), _mlp(f"blocks.{block}/mlp", norm)]
    pool = Kernel("void mean_kernel<float>(float*, int)", 6_000, (256, 1, 1))
    stages.append(Stage("head", [pool, Kernel("ampere_sgemm_64x32_tn", 9_000, (192, 1, 1))]))
    return tuple(stages)


def _attention(path: str, norm: Kernel) -> Stage:
    kernels = [
        norm,
        Kernel("ampere_sgemm_128x128_tn", 28_000, (432, 1, 1)),
        Kernel("void fmha_forward<64, 64>(Params)", 34_000, (12, 36, 1), dynamic_bytes=49_152),
        Kernel("ampere_sgemm_128x64_tn", 16_000, (288, 1, 1)),
    ]
    return Stage(path, kernels, gap_ns=_GAP_NS if path == _GAP_STAGE else 0)


def _mlp(path: str, norm: Kernel) -> Stage:
    up = Kernel("ampere_sgemm_128x128_nn", 32_000, (576, 1, 1))
    if path == _SMALL_GRID_STAGE:
        up = Kernel("ampere_sgemm_128x128_nn", 118_000, (16, 1, 1))
    gelu = Kernel("void gelu_kernel<float>(float*, float const*)", 9_000, (1152, 1, 1))
    return Stage(path, [norm, up, gelu, Kernel("ampere_sgemm_128x64_nn", 31_000, (288, 1, 1))])


def planted_vit(
    path: Path,
    *,
    dialect: DialectName = "2025",
    replays: int = 200,
    seed: int = 0,
    force: bool = False,
    parquetdir: bool = False,
) -> Planted:
    """Write an export of a ViT-hybrid encoder that replays a graph, with planted stalls.

    A stage runs on a grid much smaller than the GPU, the device waits in front of another one, and
    launches come later than replays end. Each step's NVTX range says how many of the captured
    tokens were valid; the replay takes as long for few as for all: padding is executed.

    Args:
        path: file or folder to write.
        dialect: whose schema it has.
        replays: number of replays.
        seed: what deviations of times come from.
        force: replace what exists.
        parquetdir: write a folder of Parquet files instead of an SQLite file.

    Raises:
        OutputError: it exists, or cannot be written.
    """
    export = NsysExport(dialect, seed=seed)
    process = export.process(pid=4242)
    stages = vit_stages()
    with process.range("warm-up"):
        for stage in stages:
            with process.range(stage.path, domain="graphtrace"):
                process.eager(stage.kernels)
    process.now = max(process.now, process.free) + 100_000
    graph = process.graph(stages)
    timing = graph.replays(
        replays,
        _PERIOD_NS,
        jitter=0.02,
        labels=[f"batch valid={n} captured={_CAPTURED_TOKENS}" for n in _VALID_TOKENS],
        upload=Copy(3 * 384 * 384 * 4, 9_000, kind=1),
    )
    write = export.write_parquetdir if parquetdir else export.write
    write(path, force=force)
    per_node = (timing.end - timing.begin).sum(axis=0).tolist()
    busy, position = [], 0
    for stage in stages:
        busy.append(sum(per_node[position : position + len(stage.kernels)]))
        position += len(stage.kernels)
    return Planted(
        path=path,
        stages=tuple(stage.path for stage in stages),
        replays=replays,
        nodes=position,
        period_ns=_PERIOD_NS,
        small_grid_stage=_SMALL_GRID_STAGE,
        small_grid=16,
        gap_stage=_GAP_STAGE,
        gap_ns=_GAP_NS,
        busy_ns=tuple(busy),
    )
