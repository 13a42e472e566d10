# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import pytest

from graphtrace.analysis.options import parse_settings, resolve, used
from graphtrace.model.errors import UsageError
from graphtrace.model.plugin import Analyzer, Outcome, option


@dataclass(frozen=True)
class Options:
    real: float = option(0.5, "a", source="b")
    whole: int = option(3, "a", source="b")
    text: str = option("x", "a", source="b")
    flag: bool = option(False, "a", source="b")


ONE = Analyzer("one", "s", (), Options, lambda _tables, _options: Outcome())
TWO = Analyzer("two", "s", (), Options, lambda _tables, _options: Outcome())


def values(**given):
    return used(resolve([ONE], [ONE, TWO], {"one": given}))["one"]


def test_defaults_and_what_is_given_instead():
    assert values() == {"real": 0.5, "whole": 3, "text": "x", "flag": False}
    assert values(real="1.5", whole="7", text="y", flag="true") == {
        "real": 1.5,
        "whole": 7,
        "text": "y",
        "flag": True,
    }
    assert values(real=2, whole=7.0, flag=False)["real"] == 2.0
    assert isinstance(values(real=2)["real"], float)
    assert isinstance(values(whole=7.0)["whole"], int)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("real", "nan"),
        ("real", float("inf")),
        ("real", "many"),
        ("real", True),
        ("real", 10**400),
        ("whole", 1.5),
        ("whole", "1.5"),
        ("whole", True),
        ("whole", float("nan")),
        ("whole", float("inf")),
        ("flag", "maybe"),
        ("flag", 1),
        ("text", 3),
    ],
)
def test_values_that_do_not_fit(name, value):
    with pytest.raises(UsageError) as caught:
        values(**{name: value})
    assert f"one.{name}" in caught.value.what


def test_unknown_names_have_a_suggestion():
    with pytest.raises(UsageError) as caught:
        values(reel=1.0)
    assert caught.value.do == "Did you mean real?"
    with pytest.raises(UsageError) as caught:
        resolve([ONE], [ONE, TWO], {"tow": {}})
    assert caught.value.do == "Did you mean two?"
    with pytest.raises(UsageError, match="does not run"):
        resolve([ONE], [ONE, TWO], {"two": {"real": 1.0}})


def test_settings_of_the_command_line():
    parsed = parse_settings(["one.real=1.5", "one.text=a=b", " two.flag = on "])
    assert parsed == {"one": {"real": "1.5", "text": "a=b"}, "two": {"flag": "on"}}
    for wrong in ("one", "one=3", "one.=3", ".real=3", "one.real"):
        with pytest.raises(UsageError, match="cannot be read"):
            parse_settings([wrong])
    with pytest.raises(UsageError, match="set twice"):
        parse_settings(["one.real=1", "one.real=2"])
