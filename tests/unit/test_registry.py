# SPDX-License-Identifier: Apache-2.0
from importlib.metadata import EntryPoint

import pytest

from graphtrace.analysis.registry import analyzers, choose, collect
from graphtrace.model.errors import GraphtraceError, UsageError

GROUP = "graphtrace.analyzers"


def point(name, value):
    return EntryPoint(name, value, GROUP)


def test_installed_analyzers_are_sorted_and_named_as_their_entry_points():
    found = analyzers()
    assert [a.id for a in found] == sorted(a.id for a in found)
    assert {"cache_thrash", "occupancy_launch"} <= {a.id for a in found}


def test_every_option_says_what_it_is_and_where_its_default_comes_from():
    import dataclasses

    for analyzer in analyzers():
        for field in dataclasses.fields(analyzer.options):
            assert field.metadata["doc"], field.name
            assert field.metadata["source"], field.name
            assert isinstance(field.default, (int, float, str, bool)), field.name


def test_two_of_one_id_are_refused():
    same = "graphtrace_analyzers.cache_thrash:ANALYZER"
    with pytest.raises(GraphtraceError, match="Two analyzers are named cache_thrash"):
        collect([point("cache_thrash", same), point("other", same)])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_package_at_all:A", "ModuleNotFoundError"),
        ("graphtrace_analyzers.cache_thrash:NOPE", "AttributeError"),
        ("graphtrace_analyzers.cache_thrash:run", "not Analyzer"),
    ],
)
def test_a_broken_plugin_is_named(value, said):
    with pytest.raises(GraphtraceError) as caught:
        collect([point("theirs", value)])
    assert "theirs" in caught.value.what
    assert said in caught.value.why
    assert caught.value.do


def test_choosing():
    installed = analyzers()
    assert choose(installed, None) == installed
    assert [a.id for a in choose(installed, ["cache_thrash"])] == ["cache_thrash"]
    with pytest.raises(UsageError) as caught:
        choose(installed, ["cache_trash"])
    assert caught.value.do == "Did you mean cache_thrash?"
    with pytest.raises(UsageError, match="No analyzer was chosen"):
        choose(installed, [])
