# SPDX-License-Identifier: Apache-2.0
"""Steps of an inference server: one batch owns all the graph launches of a step."""

from pathlib import Path

import pytest

import graphtrace
from graphtrace.ingest.server_steps import step_tokens

KINETO = Path(__file__).parents[2].parent / "shared" / "data" / "kineto"
PIECEWISE = KINETO / "vllm_piecewise_25_x_15_mi300x.json.gz"
DECODE = KINETO / "vllm_decode_full_graph_mi300x.json.gz"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("execute_context_2(1024)_generation_8(8)", 1032),
        ("execute_context_0(0)_generation_32(32)", 32),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
            "_generation_37(sq37sk34489sqsq37sqsk34489)",
            8192,
        ),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", 32),
        ("execute_context_2(1024)_generation_8(8) again", None),
        ("execute_context_2()_generation_8(8)", None),
        ("execute_model", None),
        ("execute_context_1(99999999999999999999)_generation_1(1)", None),
        ("", None),
    ],
)
def test_the_name_of_a_step_says_how_many_tokens_it_computes(text: str, tokens: int | None) -> None:
    assert step_tokens(text) == tokens


@pytest.mark.skipif(not PIECEWISE.exists(), reason="the real files are not here")
@pytest.mark.parametrize(("path", "tokens", "launches"), [(PIECEWISE, 8192, 25), (DECODE, 32, 1)])
def test_a_step_of_vllm_owns_its_launches(path: Path, tokens: int, launches: int) -> None:
    from graphtrace.attribute.attribute import attribute

    trace = attribute(graphtrace.load(path)).trace
    (step,) = trace.table("batches").to_pylist()
    assert step["valid_tokens"] == tokens
    assert step["captured_tokens"] is None
    replays = trace.replays.to_pylist()
    assert [row["batch"] for row in replays] == [step["batch"]] * launches
    (report,) = graphtrace.analyze(graphtrace.load(path)).batches or ()
    assert report.valid_tokens == tokens
