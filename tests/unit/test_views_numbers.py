# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.model.analysis import MetricValue
from graphtrace.views import numbers

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (0, "0 ns"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1000, "1.00 µs"),
        (999_500, "1.00 ms"),
        (999_400, "999 µs"),
        (1_234_567, "1.23 ms"),
        (12_345_678, "12.3 ms"),
        (999_999_999, "1.00 s"),
        (75_000_000_000, "75.0 s"),
        (1_266_778_400_000, "1,267 s"),
        (12.5, "12.5 ns"),
        (-1_500_000, "-1.50 ms"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_duration(ns, shown):
    assert numbers.duration(ns) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (77.06941464267601, "77.1 %"),
        (0.0, "0.0 %"),
        (0.01, "<0.1 %"),
        (99.97, ">99.9 %"),
        (100, "100.0 %"),
        (121.3, "121.3 %"),
        (None, "-"),
    ],
)
def test_percent_hides_neither_a_little_nor_a_rest(value, shown):
    assert numbers.percent(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (25_196_544.0, "byte", "25.2 MB"),
        (85_604_696_673.2, "byte/s", "85.6 GB/s"),
        (294_336.0, "ns", "294 µs"),
        (24.0, "sector/request", "24 sector/request"),
        (1_110_000_000.0, "hz", "1.11 GHz"),
        (26.256, "", "26.3"),
        (1234567, "sector", "1,234,567 sector"),
        (0.00012, "", "1.2e-04"),
        (0, "byte", "0 B"),
    ],
)
def test_quantity_scales_base_units(value, unit, shown):
    assert numbers.quantity(value, unit) == shown


def test_exact_keeps_every_digit():
    assert numbers.exact(77.06941464267601, "%") == "77.06941464267601 %"
    assert numbers.exact(2**63 + 1, "") == "9,223,372,036,854,775,809"
    assert numbers.exact(None, "ns") == "not measured"
    assert numbers.exact(math.nan, "ns") == "not a number"


@given(st.floats(min_value=1e-3, max_value=1e15))
def test_significant_is_within_half_a_percent(value):
    read = float(numbers.significant(value).replace(",", ""))
    assert read == pytest.approx(value, rel=5.1e-3)


@given(st.integers(min_value=1, max_value=10**18))
def test_a_time_never_reads_as_zero(ns):
    assert not numbers.duration(ns).startswith("0 ")


@given(FINITE)
def test_no_number_breaks_a_formatter(value):
    for unit in ("%", "ns", "byte", "byte/s", "hz", "", "warp"):
        assert numbers.quantity(value, unit)
        assert numbers.exact(value, unit)


def test_cell_tells_absent_from_zero_from_invalid():
    assert numbers.cell(None).text == "-"
    assert numbers.cell(MetricValue(None, "%")).text == "-"
    assert numbers.cell(MetricValue(0, "%")).text == "0.0 %"
    bad = numbers.cell(MetricValue(121.0, "%", invalid="above 100 %"), "hit")
    assert (bad.text, bad.value, bad.invalid) == ("invalid", None, "above 100 %")
    assert bad.hover == "hit: invalid, read 121 %: above 100 %"
    good = numbers.cell(MetricValue(66.7492, "%"), "hit", bare=True)
    assert (good.text, good.hover, good.value) == ("66.7", "hit: 66.7492 %", 66.7492)


def test_time_scale_names_the_largest_unit_that_fits():
    assert numbers.time_scale(999) == ("ns", 1.0)
    assert numbers.time_scale(1_000_000) == ("ms", 1e6)
    assert numbers.time_scale(0) == ("ns", 1.0)
