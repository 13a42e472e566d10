# SPDX-License-Identifier: Apache-2.0
"""cache_thrash: planted cases, decoys that a naive rule flags, and data that decides nothing."""

import dataclasses
import math

import numpy as np
import pytest
from analysis_builders import devices, ncu_tables
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.model.errors import UsageError
from graphtrace.model.trace import TableSet
from graphtrace_analyzers.cache_thrash import ANALYZER, Options

ACTUAL = "memory_l2_theoretical_sectors_global"
IDEAL = "memory_l2_theoretical_sectors_global_ideal"
LD = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
ST = "l1tex__t_{}_pipe_lsu_mem_global_op_st.sum"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
QUIET = {ACTUAL: 1000.0, IDEAL: 1000.0, DRAM: 5.0}


def run(*results, options=None, **fields):
    return ANALYZER.run(ncu_tables(*results, **fields), options or Options())


def kinds(outcome):
    return [claim.kind for claim in outcome.claims]


def test_needs_metrics():
    assert ANALYZER.needs[0].any_of == ("metrics",)
    assert run() == ANALYZER.run(TableSet({}), Options())


def test_planted_uncoalesced_access():
    """Records of three doubles: 24 sectors a request, of which 8 are needed."""
    outcome = run(
        {
            "name": "addConstDouble3(int, double3 *)",
            ACTUAL: 4_718_592.0,
            IDEAL: 1_572_864.0,
            LD.format("sectors"): 2_359_296.0,
            LD.format("requests"): 98_304.0,
            ST.format("sectors"): 2_359_296.0,
            ST.format("requests"): 98_304.0,
            READ: 25_196_544.0,
            WRITE: 23_792_768.0,
            DRAM: 72.6,
            L1: 95.5,
        }
    )
    assert kinds(outcome) == ["uncoalesced"]
    found = outcome.claims[0]
    assert "24 sectors per request where 8 would do" in found.why
    assert found.share_of_kernel == pytest.approx(0.274)
    assert "--kernel-name addConstDouble3 " in found.prove
    assert found.claimed_ns is None
    evidence = {e.name: e.value for e in found.evidence}
    assert evidence["graphtrace__sectors_per_request_ld"] == 24.0
    assert evidence["graphtrace__excess_sectors_share"] == pytest.approx(2 / 3)


def test_excess_costs_no_more_than_the_units_that_serve_it_work():
    excess = {ACTUAL: 1000.0, IDEAL: 500.0, DRAM: 5.0}
    active = {"lts__cycles_active.sum": 20.0, "lts__cycles_elapsed.sum": 100.0}
    share = run({**excess, **active, L1: 10.0}).claims[0].share_of_kernel
    assert share == pytest.approx(0.5 * 0.2)
    assert run({**excess, **active, L1: 80.0}).claims[0].share_of_kernel == pytest.approx(0.4)
    assert run(excess).claims[0].share_of_kernel == pytest.approx(0.5)
    assert (
        kinds(
            run({**excess, "lts__cycles_active.sum": 1.0, "lts__cycles_elapsed.sum": 1e3, L1: 0.1})
        )
        == []
    )


def test_decoy_many_sectors_per_request_that_are_all_needed():
    """128-bit loads move 16 sectors a request and waste none; 4 is no limit."""
    outcome = run(
        {
            ACTUAL: 16_000.0,
            IDEAL: 16_000.0,
            LD.format("sectors"): 16_000.0,
            LD.format("requests"): 1000.0,
            DRAM: 5.0,
        }
    )
    assert outcome.claims == outcome.abstentions == ()


def test_decoy_a_low_hit_rate_of_a_kernel_that_leaves_dram_idle():
    outcome = run({**QUIET, "lts__t_sector_hit_rate.pct": 3.0, READ: 1e9})
    assert outcome.claims == outcome.abstentions == ()


def test_sectors_not_collected():
    outcome = run({DRAM: 5.0, "name": "a"}, {**QUIET, "name": "b"})
    assert outcome.claims == ()
    said = outcome.abstentions[0]
    assert "1 of 2 results" in said.reason
    assert said.rerun == "ncu --kernel-name a --section SourceCounters -o profile PROGRAM"


def test_the_spelling_of_2020():
    outcome = run(
        {"memory_l2_sectors_global": 10.0, "memory_l2_sectors_global_ideal": 5.0, DRAM: 5.0}
    )
    assert kinds(outcome) == ["uncoalesced"]


def test_more_ideal_than_actual_sectors_decide_nothing():
    assert run({ACTUAL: 10.0, IDEAL: 20.0, DRAM: 5.0}).claims == ()


def test_launches_of_one_kernel_and_shape_are_one_claim():
    bad = {ACTUAL: 1000.0, IDEAL: 500.0, DRAM: 5.0}
    outcome = run(bad, {**bad, "ns": 50}, {**bad, "grid": (2, 1, 1)}, QUIET)
    assert [claim.results for claim in outcome.claims] == [(0, 1), (2,)]


def slices(most, mean, total, busy):
    return {
        **QUIET,
        "lts__t_sectors.max": most,
        "lts__t_sectors.avg": mean,
        "lts__t_sectors.sum": total,
        "lts__t_sectors.avg.pct_of_peak_sustained_elapsed": busy,
    }


def test_planted_slice_imbalance():
    found = run(slices(2000.0, 1000.0, 2e6, 60.0)).claims
    assert [claim.kind for claim in found] == ["slice_imbalance"]
    assert found[0].share_of_kernel == pytest.approx(0.5 * 0.6)


@pytest.mark.parametrize(
    "decoy",
    [
        (4015.0, 2690.0, 215_189.0, 60.0),
        (4015.0, 2690.0, 2e6, 0.3),
        (1100.0, 1000.0, 2e6, 60.0),
        (2000.0, 1000.0, 2e6, 140.0),
    ],
)
def test_decoy_slices_that_differ_by_chance_or_do_not_matter(decoy):
    assert run(slices(*decoy)).claims == ()


MIB = 2**20
TOLD = Options(compulsory_bytes=10 * MIB)


def reading(times, **fields):
    return {**QUIET, DRAM: 60.0, READ: times * 10.0 * MIB, **fields}


def judged(*results, l2=40 * MIB, options=TOLD, cache="warm", passes=1):
    return run(
        *results, options=options, cache=cache, passes=passes, devices=devices(80, l2_bytes=l2)
    )


def test_planted_thrash_and_capacity():
    outcome = judged(reading(4.0))
    assert kinds(outcome) == ["thrash"]
    assert outcome.claims[0].share_of_kernel == pytest.approx(0.75)
    assert outcome.abstentions == ()
    assert kinds(judged(reading(4.0), l2=8 * MIB)) == ["capacity"]


def test_between_half_and_all_of_l2_nobody_can_tell():
    outcome = judged(reading(4.0), l2=15 * MIB)
    assert outcome.claims == ()
    assert "between half and all of L2" in outcome.abstentions[0].reason


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cache": "flushed"}, "flushed before each pass"),
        ({"cache": "unknown"}, "not known whether"),
        ({"passes": 3}, "come from 3 passes"),
        ({"passes": None}, "number of passes is not known"),
        ({"options": Options()}, "bytes that the kernel must read are not known"),
        ({"options": dataclasses.replace(TOLD, compulsory_kernel="other")}, "are not known"),
        ({"l2": None}, "missing"),
    ],
)
def test_what_cannot_decide_between_thrash_and_use_abstains(fields, said):
    outcome = judged(reading(4.0), **fields)
    assert outcome.claims == ()
    assert said in outcome.abstentions[0].reason
    assert "--cache-control none --clock-control none" in outcome.abstentions[0].rerun
    assert "--set cache_thrash.compulsory_kernel=kernel" in outcome.abstentions[0].rerun


def test_decoys_reads_that_must_be_and_dram_that_is_idle():
    assert judged(reading(1.2)) == judged(reading(4.0, **{DRAM: 20.0}))
    assert judged(reading(1.2)).claims == judged(reading(1.2)).abstentions == ()


def test_a_negative_size_is_refused():
    with pytest.raises(UsageError, match="compulsory_bytes"):
        run(QUIET, options=Options(compulsory_bytes=-1))


def test_gb20x_counts_reads_by_operation():
    table = devices(80)
    at = table.schema.get_field_index("cc_major")
    from graphtrace.model.arrays import numbers
    from graphtrace.model.schema_columns import I16

    table = table.set_column(at, table.schema.field(at), numbers([12], I16))
    outcome = run(reading(4.0), devices=table)
    assert "dram__bytes_op_read.sum" in outcome.abstentions[0].rerun


numbers_of = st.one_of(st.none(), st.floats(0, 1e12), st.floats(allow_nan=False, width=32))
METRICS = (
    ACTUAL,
    IDEAL,
    DRAM,
    READ,
    WRITE,
    L1,
    "lts__t_sectors.max",
    "lts__t_sectors.avg",
    "lts__t_sectors.sum",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "lts__cycles_active.sum",
    "lts__cycles_elapsed.sum",
    "device__attribute_l2_cache_size",
)


@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys(METRICS, numbers_of)), max_size=4),
    st.sampled_from(["warm", "flushed"]),
    st.sampled_from([1, 35]),
)
def test_whatever_the_numbers_are_shares_are_shares(results, cache, passes):
    known = [{k: v for k, v in r.items() if v is not None and np.isfinite(v)} for r in results]
    outcome = run(*known, options=TOLD, cache=cache, passes=passes)
    for claim in outcome.claims:
        assert 0.0 <= claim.share_of_kernel <= 1.0
        assert all(math.isfinite(e.value) for e in claim.evidence)
        assert all(0 <= e.value <= 100 for e in claim.evidence if e.unit == "%")
        assert claim.why
        assert claim.do
        assert claim.prove.startswith("ncu ")
