# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import EMPTY, finding, graph_analysis, ncu_analysis, ncu_kernel

from graphtrace.model.analysis import (
    BatchRow,
    Budget,
    Coverage,
    EagerWork,
    Evidence,
    Mode,
    Split,
    StageBudget,
)
from graphtrace.views.budget import UNATTRIBUTED, budget_view, device_name
from graphtrace.views.findings import finding_cards, mode_text, verdict_view
from graphtrace.views.kernels import NCU_COLUMNS, ncu_table, timeline_table
from graphtrace.views.tables import batch_view, cost_facts, coverage_view, input_lines

NS = st.integers(0, 10**12)
ROWS = st.dictionaries(
    st.one_of(st.none(), st.text(min_size=1, max_size=8)),
    st.tuples(NS, NS),
    min_size=1,
    max_size=30,
)


def _budget(rows):
    busy = sum(b for b, _ in rows.values())
    idle = sum(i for _, i in rows.values())
    wall = busy + idle
    made = tuple(
        StageBudget(s, b, i, (b + i) / wall if wall else 0.0) for s, (b, i) in rows.items()
    )
    return Budget("replay", 3, wall, busy, idle, made, {"unexplained": idle}, (), EagerWork(0, 0))


@given(ROWS, st.integers(1, 20))
def test_bars_sum_to_the_wall_whatever_is_left_out(rows, top):
    view = budget_view(_budget(rows), top=top)
    assert sum(bar.busy_ns for bar in view.bars) == view.busy_ns
    assert sum(bar.idle_ns for bar in view.bars) == view.idle_ns
    assert view.busy_ns + view.idle_ns == view.wall_ns
    single = [bar for bar in view.bars if bar.role == "stage"]
    assert len(single) <= top + 1
    assert sum(bar.members for bar in view.bars if bar.role != "none") == len(
        [stage for stage in rows if stage is not None]
    )
    totals = [bar.total_ns for bar in single]
    assert totals == sorted(totals, reverse=True)


def test_the_rest_is_never_a_single_stage():
    rows = {f"s{i}": (10 - i, 0) for i in range(4)}
    assert [b.label for b in budget_view(_budget(rows), top=3).bars] == ["s0", "s1", "s2", "s3"]
    assert budget_view(_budget(rows), top=2).bars[-1].label == "2 other stages"


def test_budget_in_words():
    view = budget_view(graph_analysis().budget)
    assert view.sentence == "10.0 ms of wall time over 20 graph replays: busy 82.5 %, idle 17.5 %."
    assert view.bars[-1].label == UNATTRIBUTED
    assert view.eager == "Outside of these the device was busy for 1.00 µs; 10 kernels ran then."
    assert view.idle_kinds[0] == ("dependency", 900_000)
    assert "host node" not in dict(view.idle_kinds)
    assert not view.devices
    assert budget_view(None) is None


def test_several_devices_get_a_part_each():
    budget = graph_analysis().budget
    part = budget.by_device[0]
    view = budget_view(replace(budget, by_device=(part, replace(part, device=None))))
    assert [v.title for v in view.devices] == ["device 0", "host"]


def test_a_part_does_not_claim_the_units_of_all_devices():
    budget = graph_analysis().budget
    part = budget.by_device[0]
    view = budget_view(replace(budget, by_device=(part, replace(part, device=1))))
    assert "20 graph replays" in view.sentence
    assert [v.sentence for v in view.devices] == [
        "10.0 ms of wall time: busy 82.5 %, idle 17.5 %."
    ] * 2


@pytest.mark.parametrize(
    ("units", "eager", "said"),
    [
        (3, EagerWork(0, 0), None),
        (3, EagerWork(1, 2_000), "Outside of these the device was busy for 2.00 µs; 1 kernel ran"),
        (3, EagerWork(0, 2_000), "for 2.00 µs; no kernel ran then, only copies or memsets."),
        (0, EagerWork(2, 2_000), "The device was busy for 2.00 µs; 2 kernels ran then."),
    ],
)
def test_work_outside_is_not_said_to_be_of_kernels_alone(units, eager, said):
    view = budget_view(replace(_budget({"a": (0, 0)}), units=units, eager=eager))
    assert view.eager == said if said is None else said in view.eager


def test_a_budget_without_units_names_what_was_looked_for():
    view = budget_view(replace(_budget({"a": (0, 0)}), units=0))
    assert view.sentence == ("There is no wall time to split: no replay, no batch and no range.")


def test_a_table_of_kernels_says_how_much_work_is_no_kernels():
    rows = [replace(ncu_kernel(name, 1, 0), source="timeline", total_ns=100) for name in "ab"]
    table = timeline_table(rows, limit=1, work_ns=1_000)
    assert table.other.startswith("Kernels are 20.0 % of the device work; the rest, 800 ns, is ")
    assert timeline_table(rows, limit=1, work_ns=205).other == ""
    assert timeline_table(rows, limit=1).other == ""
    assert table.kept is None


def test_rows_left_out_by_the_analysis_bound_what_kernels_took():
    rows = [replace(ncu_kernel(name, 1, 0), source="timeline", total_ns=100) for name in "ab"]
    table = timeline_table(rows, limit=1, truncated=3, work_ns=1_000)
    assert "at most 50.0 % of the device work; the rest, at least 500 ns," in table.other
    assert timeline_table(rows, limit=1, truncated=8, work_ns=1_000).other == ""
    assert (table.left_out, table.kept) == (4, 2)


def test_findings_name_the_device_as_the_header_does():
    devices = graph_analysis().devices
    # The key of a device is ours; its ordinal is what a person knows it by.
    one = [replace(devices[0], device=0, ordinal=1)]
    assert finding_cards([finding(device=0)], one)[0].where.endswith("gpu 1")
    two = [*one, replace(devices[0], device=1, ordinal=1, name="NVIDIA A100")]
    assert finding_cards([finding(device=1)], two)[0].where.endswith("NVIDIA A100 (gpu 1)")
    assert finding_cards([finding(device=3)])[0].where.endswith("device 3")


def test_units_are_said_of_so_many():
    rows = [("block", 16), ("block", 1), ("sector", 2), ("sectors", 2), ("", 3), ("cycle", 1.5)]
    proofs = finding_cards(
        [finding(evidence=tuple(Evidence("x", value, unit) for unit, value in rows))]
    )[0].proofs
    said = ["16 blocks", "1 block", "2 sectors", "2 sectors", "3", "1.50 cycles"]
    assert [proof.text for proof in proofs] == said


def test_device_names():
    devices = graph_analysis().devices
    assert device_name(0, devices) == "NVIDIA H100 (gpu 0)"
    assert device_name(None, devices) == "host"
    assert device_name(0, [replace(devices[0], name=None)]) == "gpu 0"
    assert device_name(5, devices) == "device 5"


def test_a_budget_without_wall_does_not_divide():
    assert budget_view(_budget({"a": (0, 0)})).sentence == (
        "There is no wall time to split: 3 graph replays."
    )


def test_ncu_rows_by_time_and_metrics_in_their_columns():
    rows = [ncu_kernel("b", 10, 1), ncu_kernel("a", 20, 0, 121.3)]
    table = ncu_table(rows, limit=5)
    assert [line.name for line in table.lines] == ["a", "b"]
    cells = dict(zip((c.key for c in NCU_COLUMNS), table.lines[1].cells, strict=True))
    assert cells["achieved"].text == "77.1"
    assert cells["l2_hit"].text == "66.7"
    assert cells["l1_hit"].text == "-"
    assert cells["dram_read"].text == "25.2 MB"
    assert cells["sectors_ld"].text == "24.0"
    assert table.lines[0].cells[4].invalid == table.notes[0]
    assert table.lines[0].top_stall.text == "long scoreboard 21.5"
    assert "selected" not in dict(table.lines[0].stalls)
    assert table.lines[0].launch == "grid 4096x1x1, block 256x1x1"


def test_rows_left_out_are_counted():
    rows = [ncu_kernel(f"k{i}", i) for i in range(7)]
    assert ncu_table(rows, limit=5, truncated=4).left_out == 6
    assert ncu_table(rows, limit=10).left_out == 0
    assert ncu_table([], limit=5) is None
    assert timeline_table(rows, limit=5) is None


def test_second_spelling_of_a_metric_is_used():
    row = ncu_kernel()
    metrics = dict(row.metrics)
    metrics["dram__bytes_op_read.sum"] = metrics.pop("dram__bytes_read.sum")
    table = ncu_table([replace(row, metrics=metrics)], limit=1)
    assert table.lines[0].cells[6].hover == "dram__bytes_op_read.sum: 25,196,544 byte"


def test_timeline_mean_and_absent_total():
    row = replace(ncu_kernel(), source="timeline", total_ns=None)
    line = timeline_table([row], limit=3).lines[0]
    assert (line.duration.text, line.mean.text) == ("-", "-")


def test_shares_are_of_all_work_even_of_rows_left_out():
    rows = [replace(ncu_kernel(ns=ns), source="timeline") for ns in (10, 30)]
    assert timeline_table(rows, limit=1, work_ns=60).shares == (0.5,)
    assert timeline_table(rows, limit=2).shares == (None, None)


def test_verdicts():
    assert verdict_view(ncu_analysis()).sentence == (
        "1 finding of high severity. First: uncoalesced, 66.7 % of the kernel's own time. "
        "1 question needs another run."
    )
    assert verdict_view(replace(EMPTY, verdict="clean")).word == "Clean"
    assert verdict_view(EMPTY).word == "Cannot tell"
    many = replace(ncu_analysis(), findings=(finding(), finding(severity="low")), abstentions=())
    assert verdict_view(many).sentence.startswith("2 findings, 1 of them high. First")


def test_cards_say_what_is_gained_and_what_others_hold():
    made = finding(recoverable_ns=5_000, claimed_ns=9_000, share=0.1, share_of="wall", stage="s")
    card = finding_cards([made])[0]
    assert card.gain == "5.00 µs recoverable, 10.0 % of wall"
    assert card.overlap == "9.00 µs claimed, of which other findings hold 4.00 µs"
    assert card.where == "stage s, report.ncu-rep#0"
    assert finding_cards([finding(share=None)])[0].gain == "gain unknown"
    results = tuple(f"r#{i}" for i in range(9))
    assert finding_cards([finding(results=results)])[0].where == "r#0, r#1, r#2 and 6 more"


def test_mode_text():
    assert mode_text(Mode("warm", "none", 1)) == "cache warm, clock not locked, 1 pass"
    assert mode_text(Mode()) == ""
    assert mode_text(None) == ""


def test_coverage_lines_sum():
    view = coverage_view(graph_analysis().coverage)
    assert sum(line.activities.value for line in view.lines) == 1000
    assert sum(line.activity_share for line in view.lines) == pytest.approx(1)
    assert view.sentence.startswith("91.5 % of the device time of 1,000 activities has a stage")
    assert coverage_view(None) is None
    nothing = Split(0, 0, 0, 0, 0)
    empty = coverage_view(Coverage(nothing, nothing, {}))
    assert empty.sentence == "The inputs hold no device activity."


def test_batches_group_by_label_and_size():
    rows = [
        BatchRow("a", 10, 16, 1, 100),
        BatchRow("a", 16, 16, 1, 300),
        BatchRow("b", None, 8, 1, 7),
    ]
    view = batch_view(rows, limit=1)
    group = view.groups[0]
    assert (group.label, group.batches, group.median.value, group.slowest.value) == (
        "a",
        2,
        100,
        300,
    )
    assert group.padding == pytest.approx(1 - 26 / 32)
    assert view.left_out == 1
    assert "padding" not in view.sentence
    assert batch_view(None, limit=1) is None
    assert batch_view([], limit=1).groups == ()


def test_inputs_and_cost():
    assert input_lines(graph_analysis().inputs) == (
        "run.sqlite: nsys_sqlite, Nsight Systems 2024.6 (synthetic)",
    )
    assert [fact.name for fact in cost_facts(graph_analysis())][:2] == ["records", "records lost"]
    assert cost_facts(EMPTY) == ()
