# SPDX-License-Identifier: Apache-2.0
"""A small vision encoder that serves batches of mixed resolutions.

It is a hybrid: a convolution stem, a patch embedding, transformer blocks and a classifier head. As
a server does, it pads every batch to the next of a few captured sizes. On a GPU each size is one
CUDA graph, captured once over static inputs and replayed for every batch; without a GPU the same
model runs eagerly. Nothing here is written for a profiler: `graphtrace capture -- python infer.py`
finds the stages by the names of the modules.

    python infer.py
    python infer.py --steps 100 --sizes 96,160,224 --device cuda

Standard output depends on the arguments and the machine only, so that two runs can be compared by
it; times go to standard error. No GPU has run the captured path yet: it is tested against a
stand-in for torch.cuda that records operations and repeats them on the CPU.
"""

import argparse
import hashlib
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

PATCH = 16  # pixels a token stands for, along each side
WIDTH = 192
HEADS = 3
DEPTH = 4
CLASSES = 100
MEAN, SPREAD = 0.45, 0.225  # of pixel values


@dataclass(frozen=True)
class Batch:
    """Images of mixed resolutions, padded to one captured size.

    Attributes:
        pixels: float32 [slots, 3, side, side], zero outside of each image.
        extents: int64 [slots, 2], rows and columns of tokens of each image; 0 for an empty slot.
        side: the captured size, pixels.
        tokens: tokens of each image, without padding.
    """

    pixels: Tensor
    extents: Tensor
    side: int
    tokens: tuple[int, ...]

    @property
    def captured_tokens(self) -> int:
        """Tokens that the captured size computes, with padding."""
        return len(self.pixels) * (self.side // PATCH) ** 2


class ConvStem(nn.Module):
    """Two strided convolutions: [B, 3, S, S] to [B, 64, S/4, S/4], padding kept at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(64)

    def forward(self, pixels: Tensor, valid: Tensor) -> Tensor:
        """Features of the images; `valid` is the token mask [B, 1, S/16, S/16]."""
        features = functional.gelu(self.norm1(self.conv1(pixels)))
        features = features * functional.interpolate(valid, scale_factor=8.0, mode="nearest")
        features = functional.gelu(self.norm2(self.conv2(features)))
        return features * functional.interpolate(valid, scale_factor=4.0, mode="nearest")


class PatchEmbed(nn.Module):
    """Tokens of 4 x 4 features with sine and cosine positions: [B, T, WIDTH]."""

    def __init__(self, grid: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(64, WIDTH, 4, stride=4)
        steps = torch.arange(grid).float()[:, None]
        rates = torch.exp(torch.arange(WIDTH // 4).float() * (-9.2 / (WIDTH // 4)))
        wave = torch.cat([torch.sin(steps * rates), torch.cos(steps * rates)], dim=1)
        rows = wave[:, None, :].expand(grid, grid, -1)
        columns = wave[None, :, :].expand(grid, grid, -1)
        self.register_buffer("positions", torch.cat([rows, columns], dim=2), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Tokens in row order; a token's position does not depend on the captured size."""
        tokens = self.proj(features).permute(0, 2, 3, 1)
        side = tokens.shape[1]
        return (tokens + self.positions[:side, :side]).flatten(1, 2)


class Attention(nn.Module):
    """Multi-head attention that ignores the keys of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, keys: Tensor) -> Tensor:
        """[B, T, WIDTH] to the same shape; `keys` is True [B, T] where a token may be attended."""
        count, length, _ = tokens.shape
        mixed = self.qkv(tokens).view(count, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keys[:, None, None, :]
        )
        return self.proj(out.transpose(1, 2).reshape(count, length, WIDTH))


class Mlp(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T, WIDTH] to the same shape, each token for itself."""
        return self.down(functional.gelu(self.up(tokens)))


class Block(nn.Module):
    """A transformer block with the norm first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, tokens: Tensor, keys: Tensor) -> Tensor:
        """[B, T, WIDTH] to the same shape."""
        tokens = tokens + self.attn(self.norm1(tokens), keys)
        return tokens + self.mlp(self.norm2(tokens))


class MaskedPool(nn.Module):
    """Mean over the tokens that are not padding."""

    def forward(self, tokens: Tensor, valid: Tensor) -> Tensor:
        """[B, T, WIDTH] and True [B, T] to [B, WIDTH]; zeros for an empty slot."""
        weight = valid.to(tokens.dtype)[:, :, None]
        return (tokens * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class HybridEncoder(nn.Module):
    """Convolution stem, patch embedding, transformer blocks, pooling, head.

    The result for an image does not depend on how much its batch was padded.
    """

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.stem = ConvStem()
        self.patch_embed = PatchEmbed(largest // PATCH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.pool = MaskedPool()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pixels: Tensor, extents: Tensor) -> Tensor:
        """Logits [B, CLASSES] of padded images and their extents (see `Batch`)."""
        index = torch.arange(pixels.shape[-1] // PATCH, device=pixels.device)
        rows = index[None, :] < extents[:, :1]
        columns = index[None, :] < extents[:, 1:]
        grid = rows[:, :, None] & columns[:, None, :]
        valid = grid.flatten(1)
        # The first token of an empty slot stays a key: a softmax over no key is not a number.
        keys = valid | (torch.arange(valid.shape[1], device=valid.device) == 0)
        tokens = self.patch_embed(self.stem(pixels, grid[:, None].to(pixels.dtype)))
        for block in self.blocks:
            tokens = block(tokens, keys)
        return self.head(self.pool(self.norm(tokens), valid))


class EagerRunner:
    """Runs the model as it is."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model = model
        self.device = device

    def __call__(self, batch: Batch) -> Tensor:
        """Logits [slots, CLASSES]."""
        return self.model(batch.pixels.to(self.device), batch.extents.to(self.device))


@dataclass(frozen=True)
class CapturedSize:
    """One CUDA graph and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    pixels: Tensor
    extents: Tensor
    logits: Tensor


class GraphRunner:
    """Replays one CUDA graph a captured size."""

    def __init__(
        self, model: nn.Module, device: torch.device, sizes: Sequence[int], slots: int
    ) -> None:
        self.model = model
        self.device = device
        self.captured: dict[int, CapturedSize] = {}
        pool = None
        # The largest first: the smaller ones then find room in its memory pool.
        for side in sorted(sizes, reverse=True):
            self.captured[side] = self._capture(side, slots, pool)
            pool = self.captured[side].graph.pool()

    def _capture(self, side: int, slots: int, pool: object) -> CapturedSize:
        pixels = torch.zeros(slots, 3, side, side, device=self.device)
        extents = torch.full((slots, 2), side // PATCH, dtype=torch.int64, device=self.device)
        warm_up = torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            for _ in range(3):
                self.model(pixels, extents)
        torch.cuda.current_stream().wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = self.model(pixels, extents)
        return CapturedSize(graph, pixels, extents, logits)

    def __call__(self, batch: Batch) -> Tensor:
        """Logits [slots, CLASSES], copied out before another replay may overwrite them."""
        size = self.captured[batch.side]
        size.pixels.copy_(batch.pixels, non_blocking=True)
        size.extents.copy_(batch.extents, non_blocking=True)
        size.graph.replay()
        return size.logits.clone()


def traffic(steps: int, slots: int, sizes: Sequence[int], seed: int) -> Iterator[Batch]:
    """Batches as a server would form them: some slots empty, images of any shape that fits."""
    shapes = random.Random(seed)
    noise = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        limit = shapes.choice(sizes) // PATCH
        extents = torch.zeros(slots, 2, dtype=torch.int64)
        images = shapes.randint(max(1, slots // 2), slots)
        for slot in range(images):
            extents[slot, 0] = shapes.randint(1 + limit // 3, limit)
            extents[slot, 1] = shapes.randint(1 + limit // 3, limit)
        side = min(size for size in sizes if size >= PATCH * int(extents.max()))
        pixels = torch.zeros(slots, 3, side, side)
        for slot in range(images):
            height, width = (PATCH * int(extent) for extent in extents[slot])
            image = torch.rand(3, height, width, generator=noise)
            pixels[slot, :, :height, :width] = (image - MEAN) / SPREAD
        tokens = tuple(int(rows * columns) for rows, columns in extents[:images])
        yield Batch(pixels, extents, side, tokens)


def batch_facts(batch: Batch) -> AbstractContextManager[object]:
    """Tell a recording how much of the batch is padding, where graphtrace is installed."""
    try:
        from graphtrace import batch as recorded
    except ImportError:
        return nullcontext()
    return recorded(
        valid_tokens=sum(batch.tokens),
        captured_tokens=batch.captured_tokens,
        sizes=batch.tokens,
        label=f"{batch.side} px",
    )


def serve(
    runner: Callable[[Batch], Tensor], batches: Iterator[Batch], device: torch.device
) -> tuple[list[Tensor], list[Batch], list[float]]:
    """Run every batch: logits of its images, the batches, and the time of each in ms."""
    results, served, times = [], [], []
    for batch in batches:
        begin = time.perf_counter()
        with batch_facts(batch):
            logits = runner(batch)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - begin))
        results.append(logits[: len(batch.tokens)].cpu())
        served.append(batch)
    return results, served, times


def choose_device(wanted: str) -> torch.device:
    """The device asked for; `auto` takes the GPU where there is one."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise SystemExit("infer.py: --device cuda needs a GPU that torch can use; there is none")
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Captured sizes in pixels from a comma-separated list."""
    try:
        sizes = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error
    if any(size < PATCH or size % PATCH for size in sizes):
        raise argparse.ArgumentTypeError(f"each size must be a multiple of {PATCH} pixels")
    return sizes


def parse_count(text: str) -> int:
    """A whole number above 0."""
    try:
        count = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if count < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return count


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Serve batches of mixed resolutions.")
    parser.add_argument("--steps", type=parse_count, default=24, help="batches to serve")
    parser.add_argument("--seed", type=int, default=0, help="of weights, shapes and pixels")
    parser.add_argument("--slots", type=parse_count, default=8, help="images a batch has room for")
    parser.add_argument(
        "--sizes", type=parse_sizes, default=(96, 128, 160, 224), help="captured sizes, pixels"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return parser.parse_args(arguments)


def report(device: torch.device, results: Sequence[Tensor], served: Sequence[Batch]) -> str:
    """What was computed, in lines that are equal for equal runs."""
    logits = torch.cat(list(results))
    digest = hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:16]
    valid = sum(sum(batch.tokens) for batch in served)
    captured = sum(batch.captured_tokens for batch in served)
    used = Counter(batch.side for batch in served)
    how = "captured graphs, one a size" if device.type == "cuda" else "eager: no graph on a CPU"
    return "\n".join(
        (
            f"device   {device.type} ({how})",
            f"batches  {len(served)}: "
            + ", ".join(f"{count} of {side} px" for side, count in sorted(used.items())),
            f"tokens   {valid} valid of {captured} computed",
            f"results  {len(logits)} images, mean |logit| {float(logits.abs().mean()):.6f}",
            f"checksum {digest}",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the traffic and print the summary."""
    options = parse_arguments(arguments)
    torch.manual_seed(options.seed)
    device = choose_device(options.device)
    model = HybridEncoder(max(options.sizes)).eval().to(device)
    with torch.inference_mode():
        runner: EagerRunner | GraphRunner
        if device.type == "cuda":
            runner = GraphRunner(model, device, options.sizes, options.slots)
        else:
            runner = EagerRunner(model, device)
        batches = traffic(options.steps, options.slots, options.sizes, options.seed)
        results, served, times = serve(runner, batches, device)
    print(report(device, results, served))
    print(f"median {statistics.median(times):.1f} ms a batch", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
