# SPDX-License-Identifier: Apache-2.0
"""Printed numbers and units, against a slow reading of them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.ncu_csv_values import base_unit, number, style_of, unlike


def shown(value: Decimal, decimal: str, grouping: str) -> str:
    """As a locale prints it, digit by digit."""
    sign, digits, fraction = value < 0, *(str(abs(value)) + ".").split(".")[:2]
    groups = []
    while digits:
        groups.insert(0, digits[-3:])
        digits = digits[:-3]
    text = grouping.join(groups) + (decimal + fraction if fraction else "")
    return "-" + text if sign else text


VALUES = st.decimals(-(10**12), 10**12, places=2) | st.integers(-(10**15), 10**15).map(Decimal)


@given(VALUES, st.sampled_from([(".", ","), (",", "."), (".", ""), (",", ""), (",", "\u202f")]))
def test_a_number_survives_being_printed(value, style):
    decimal, grouping = style
    text = shown(value, decimal, grouping)
    assert number(text, decimal) == value
    assert style_of([text]) <= {decimal}
    other = "," if decimal == "." else "."
    assert unlike(text) or number(text, other) in {None, value}


@given(st.text(alphabet="0123456789.,eE+- ;naif%", max_size=12))
def test_any_text_is_a_number_or_none(text):
    for style in ".,":
        value = number(text, style)
        assert value is None or value.is_finite()


@pytest.mark.parametrize(
    ("unit", "base", "power"),
    [
        ("Gbyte/second", "byte/s", 9),
        ("Mbyte/s", "byte/s", 6),
        ("usecond", "ns", 3),
        ("us", "ns", 3),
        ("second", "ns", 9),
        ("ns", "ns", 0),
        ("cycle/nsecond", "hz", 9),
        ("cycle/usecond", "hz", 6),
        ("Ghz", "hz", 9),
        ("Mhz", "hz", 6),
        ("hz", "hz", 0),
        ("sector/usecond", "sector/s", 6),
        ("Kbyte/block", "byte/block", 3),
        ("register/thread", "register/thread", 0),
        ("inst/cycle", "inst/cycle", 0),
        ("%", "%", 0),
        ("", "", 0),
    ],
)
def test_units(unit, base, power):
    assert base_unit(unit) == (base, power)
