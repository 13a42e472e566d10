# SPDX-License-Identifier: Apache-2.0
"""How a stage touches its tensors, read off the tensors that enter and leave it.

Only shapes, strides, dtypes and addresses are read, once for each stage and layout, and no tensor
is kept. Only plain tensors are looked at: fake, subclassed and traced ones answer with symbols or
record that they were asked. Standard library only at import.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

from graphtrace.capture.recorder import Recorder

__all__ = ["access_of", "describe"]

MAX_TENSORS: Final = 16
"""Tensors looked at for one stage."""

MAX_LAYOUTS: Final = 4096
"""Stage and layout pairs described in one process."""

MAX_ITEMS: Final = 64
"""Items of one container looked at."""

LINE_BYTES: Final = 128
"""Cache line of NVIDIA GPUs, to which alignment is stated."""

_NESTING: Final = 3


def _tensors(
    label: str, value: Any, plain: tuple[type, ...], left: int
) -> Iterator[tuple[str, Any]]:
    if type(value) in plain:
        yield label, value
    elif left and isinstance(value, tuple | list):
        for index, item in enumerate(value[:MAX_ITEMS]):
            yield from _tensors(f"{label}[{index}]", item, plain, left - 1)
    elif left and isinstance(value, dict):
        for key in list(value)[:MAX_ITEMS]:
            if isinstance(key, str):
                yield from _tensors(f"{label}.{key}", value[key], plain, left - 1)


def _collect(args: Any, kwargs: Any, output: Any, torch: Any) -> list[tuple[str, Any]]:
    plain = (torch.Tensor, torch.nn.Parameter)
    found: list[tuple[str, Any]] = []
    for label, value in (("input", args), ("input", kwargs), ("output", output)):
        for pair in _tensors(label, value, plain, _NESTING):
            found.append(pair)
            if len(found) == MAX_TENSORS:
                return found
    return found


def access_of(recorder: Recorder, stage: int, args: Any, kwargs: Any, output: Any) -> int:
    """Id of the access of this stage with tensors of these layouts; 0 where there is none.

    Args:
        recorder: where new layouts are described.
        stage: id of the stage.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        output: what it returned.
    """
    torch = sys.modules["torch"]
    if torch._C._get_tracing_state() is not None:
        return 0
    if torch._C._is_torch_function_mode_enabled():
        # The program watches what is asked of tensors: ask below its sight.
        with torch._C.DisableTorchFunction():
            return _access_of(recorder, stage, _collect(args, kwargs, output, torch), torch)
    return _access_of(recorder, stage, _collect(args, kwargs, output, torch), torch)


def _access_of(recorder: Recorder, stage: int, found: list[tuple[str, Any]], torch: Any) -> int:
    if not found:
        return 0
    layout = tuple((label, _layout(x, torch)) for label, x in found)
    known = recorder.accesses.get((stage, layout))
    if known is not None:
        return known
    if len(recorder.accesses) >= MAX_LAYOUTS:
        recorder.note("too-many-layouts", limit=MAX_LAYOUTS)
        return 0
    ident = recorder.accesses[stage, layout] = len(recorder.accesses) + 1
    inputs = {_storage(x, torch) for label, x in found if label.startswith("input")}
    rows = [_row(label, x, inputs, torch) for label, x in found]
    recorder.writer.line(type="access", id=ident, stage=stage, rows=rows)
    return ident


def _layout(x: Any, torch: Any) -> object:
    """What distinguishes one layout from another; only the type where the tensor has none."""
    try:
        return x.shape, x.stride() if x.layout is torch.strided else None, x.dtype
    except RuntimeError:
        return x.dtype


def _address(x: Any, torch: Any) -> int | None:
    # Asking a copy-on-write tensor for its address would make the copy.
    is_lazy_copy = getattr(torch._C, "_is_cow_tensor", None)
    try:
        if is_lazy_copy is not None and is_lazy_copy(x):
            return None
        return int(x.data_ptr()) or None
    except RuntimeError:
        return None


def _storage(x: Any, torch: Any) -> int | None:
    address = _address(x, torch)
    if address is None or x.layout is not torch.strided:
        return None
    return int(address - x.storage_offset() * x.element_size())


def _row(label: str, x: Any, inputs: set[int | None], torch: Any) -> dict[str, object]:
    try:
        return _described(label, x, inputs, torch)
    except RuntimeError:
        # Batched, nested and other tensors without one layout say so in this way.
        return {"tensor": label, "dtype": str(x.dtype).removeprefix("torch."), "pattern": "unknown"}


def _described(label: str, x: Any, inputs: set[int | None], torch: Any) -> dict[str, object]:
    entering = label.startswith("input")
    storage = _storage(x, torch)
    row: dict[str, object] = {
        "tensor": label,
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": [int(extent) for extent in x.shape],
        "read": True if entering else None,
        # A result that shares storage with an argument may be no more than a view of it.
        "written": None if entering or storage is None or storage in inputs else True,
    }
    if x.layout is not torch.strided:
        return {**row, "pattern": "unknown"}
    dense = x.is_contiguous() or any(
        x.dim() == rank and x.is_contiguous(memory_format=order)
        for rank, order in ((4, torch.channels_last), (5, torch.channels_last_3d))
    )
    address = _address(x, torch)
    row["offset"] = None if address is None else address % LINE_BYTES
    strides = [int(stride) for stride in x.stride()]
    row.update(describe([int(e) for e in x.shape], strides, int(x.element_size()), dense=dense))
    return row


def describe(
    shape: list[int], strides: list[int], item: int, *, dense: bool
) -> dict[str, str | int | None]:
    """Pattern and sizes of a strided layout.

    A row is what lies side by side in memory along the dimension with the smallest stride (of a
    dense layout) or along the last dimension (of any other); where that dimension is not
    contiguous, a row is one element.

    Args:
        shape: extent per dimension, in elements.
        strides: distance per dimension, in elements.
        item: bytes of an element.
        dense: whether the elements fill their memory without gaps.

    Returns:
        pattern; row_bytes; row_stride, bytes from row to row, None with a single row; working_set,
        unique bytes: elements not repeated by a zero stride, at most the span they lie in.
    """
    used = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    if any(n == 0 for n, _ in used):
        return {"pattern": "contiguous", "row_bytes": 0, "row_stride": None, "working_set": 0}
    distinct = span = 1
    for extent, stride in used:
        if stride != 0:
            distinct *= extent
            span += (extent - 1) * abs(stride)
    broadcast = any(stride == 0 for _, stride in used)
    pattern = "broadcast" if broadcast else "contiguous" if dense else "strided"
    order = sorted(used, key=lambda pair: -pair[1]) if dense else used
    row, step = 1, None
    if order:
        extent, stride = order[-1]
        if stride == 1:
            row = extent
            step = order[-2][1] if len(order) > 1 else None
        else:
            step = stride
    return {
        "pattern": pattern,
        "row_bytes": row * item,
        "row_stride": None if step is None else step * item,
        "working_set": min(distinct, span) * item,
    }
