# SPDX-License-Identifier: Apache-2.0
"""Steps of an inference server, told by the ranges that it opens around them.

vLLM opens one range around each step of its worker while it is profiled, and writes into its name
how many requests and tokens the step takes: `execute_context_2(1024)_generation_8(8)`, two requests
in prefill with 1,024 tokens and eight in decode with one each. On ROCm the counts of prefill and
decode are sums that are named: `execute_8192_context_9(sq8155sk8430...)_generation_37(sq37...)`,
where `sq` counts the tokens to compute and `sk` those that they attend to.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.model.arrays import as_numpy, codes_of, make_table, numbers, valid_of, words_of

__all__ = ["server_steps", "step_tokens"]

_VLLM: Final = re.compile(
    r"execute_(?:\d+_)?context_\d+\((?:sq)?(\d{1,15})(?:sk\w*)?\)"
    r"_generation_\d+\((?:sq)?(\d{1,15})(?:sk\w*)?\)"
)


def step_tokens(text: str) -> int | None:
    """Tokens that a step computes, as the name of its range says; None where it names no step."""
    named = _VLLM.fullmatch(text)
    return None if named is None else int(named[1]) + int(named[2])


def server_steps(ranges: pa.Table, batches: pa.Table | None = None) -> pa.Table | None:
    """The table `batches` with the steps among the ranges; None where there is neither.

    Args:
        ranges: table `ranges`; one that was never closed is no step.
        batches: those that are known otherwise; they come first.
    """
    codes, words = codes_of(ranges.column("text"))
    tokens = np.asarray([-1 if t is None else t for t in map(step_tokens, words)] + [-1])
    rows = np.flatnonzero((tokens[codes] >= 0) & valid_of(ranges.column("end_ns")))
    if not len(rows):
        return batches
    first = 0 if batches is None else batches.num_rows
    columns = {
        "batch": first + np.arange(len(rows)),
        "process": as_numpy(ranges.column("process"))[rows],
        "thread": numbers(as_numpy(ranges.column("thread"))[rows], pa.int64()),
        "begin_ns": as_numpy(ranges.column("begin_ns"))[rows],
        "end_ns": as_numpy(ranges.column("end_ns"))[rows],
        "valid_tokens": numbers(tokens[codes[rows]], pa.int64()),
        "label": words_of(codes[rows], words),
    }
    made = make_table("batches", len(rows), columns)
    return made if batches is None else pa.concat_tables([batches, made])
