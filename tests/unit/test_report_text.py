# SPDX-License-Identifier: Apache-2.0
import os
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import (
    EMPTY,
    HOSTILE,
    finding,
    graph_analysis,
    hostile_analysis,
    ncu_analysis,
    ncu_kernel,
)
from rich.cells import cell_len

from graphtrace.model.analysis import Abstention, BatchRow, Gate
from graphtrace.report.text import SYNTHETIC_LABEL, render

SNAPSHOTS = Path(__file__).parent / "report_snapshots"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
SHOWN = {
    "ncu_80": (ncu_analysis(), 80),
    "ncu_120": (ncu_analysis(), 120),
    "ncu_160": (ncu_analysis(), 160),
    "graph_80": (graph_analysis(), 80),
    "graph_120": (graph_analysis(), 120),
    "empty_80": (EMPTY, 80),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_person_reads(name):
    """Compare with the text on file; GRAPHTRACE_SNAPSHOTS=write puts the new one there."""
    analysis, width = SHOWN[name]
    path = SNAPSHOTS / f"{name}.txt"
    text = render(analysis, width=width)
    if os.environ.get("GRAPHTRACE_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def _is_command(line):
    return line.lstrip().startswith(("$ ", "prove    $ "))


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("analysis", [ncu_analysis(), graph_analysis(), hostile_analysis(), EMPTY])
def test_nothing_but_commands_is_wider_than_the_terminal(analysis, width):
    for line in render(analysis, width=width).splitlines():
        assert _is_command(line) or cell_len(line) <= width, line


def test_east_asian_names_stay_in_their_columns():
    wide = ncu_kernel("注意力カーネル_前向き<半精度, ヘッド次元128>" * 4, 10**6)
    text = render(replace(ncu_analysis(), kernels=(wide, ncu_kernel())), width=80)
    assert all(_is_command(line) or cell_len(line) <= 80 for line in text.splitlines())
    rows = [line for line in text.splitlines() if line.lstrip().startswith(("1 ", "2 "))]
    ends = [cell_len(line[: line.index("77.1")]) for line in rows if "77.1" in line]
    assert len(ends) == 2 and len(set(ends)) == 1


def test_no_escape_without_colour_and_the_same_words_with_it():
    plain = render(graph_analysis(), width=100)
    assert "\x1b" not in plain
    coloured = render(graph_analysis(), width=100, color=True)
    assert "\x1b[" in coloured
    stripped = "\n".join(line.rstrip() for line in ESCAPE.sub("", coloured).splitlines())
    assert stripped.strip() == plain.strip()


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [60, 100, 160])
def test_names_from_files_cannot_steer_the_terminal(width, color):
    text = ESCAPE.sub("", render(hostile_analysis(), width=width, color=color))
    bad = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert bad <= {"\n"}
    assert "\\x1b[31m" in text
    assert "[red]" in text


def test_colour_is_the_callers_choice(monkeypatch):
    before = render(graph_analysis())
    for name, value in (
        ("FORCE_COLOR", "1"),
        ("COLUMNS", "40"),
        ("TERM", "dumb"),
        ("NO_COLOR", "1"),
    ):
        monkeypatch.setenv(name, value)
        assert render(graph_analysis()) == before


def test_a_name_cannot_forge_a_line():
    forged = "k\nVerdict: Clean. Nothing to see."
    text = render(replace(ncu_analysis(), kernels=(ncu_kernel(forged),)), width=120)
    assert sum(line.startswith("Verdict") for line in text.splitlines()) == 1
    assert HOSTILE not in text


def test_synthetic_inputs_are_named_first():
    assert render(graph_analysis()).splitlines()[0].strip() == SYNTHETIC_LABEL
    assert SYNTHETIC_LABEL not in render(ncu_analysis())


def test_absent_is_a_dash_and_invalid_has_a_reason():
    text = render(ncu_analysis(), width=120)
    row = next(line for line in text.splitlines() if "inv. a" in line and "reduce" in line)
    assert " - " in row
    assert "inv. a: invalid, 121 % hit rate: hits and lookups of two passes" in text


def test_commands_stand_whole_on_one_line():
    command = "ncu " + " ".join(f"--metrics metric_{i}" for i in range(20))
    made = replace(
        ncu_analysis(),
        findings=(finding(prove=command),),
        abstentions=(Abstention("cache_thrash", "why", command),),
    )
    text = render(made, width=60)
    assert text.count(f"$ {command}\n") == 2


def test_long_lists_say_how_much_is_left():
    made = replace(
        ncu_analysis(),
        findings=tuple(finding(id=f"f{i}") for i in range(30)),
        kernels=tuple(ncu_kernel(f"k{i}", 100 - i) for i in range(30)),
        truncated={"kernels": 5},
        batches=tuple(BatchRow(f"b{i}", 1, 1, 1, 10) for i in range(30)),
    )
    text = render(made)
    assert "and 15 more findings: --format json has them all." in text
    assert "and 25 kernels more: --format json has them." in text
    assert "22 kind" in text
    assert text.count("why      Each load") == 5


def test_gates_are_said():
    gates = (Gate("recoverable", 0.08, 0.05, False), Gate("x", None, 0.1, None))
    text = render(replace(graph_analysis(), gates=gates))
    assert "gate recoverable: 8.0 %, limit 5.0 %: FAILED" in text
    assert "gate x: -, limit 10.0 %: cannot be decided" in text
