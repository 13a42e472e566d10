# SPDX-License-Identifier: Apache-2.0
"""What is installed is what the sources say: entry points, types, version, requirements."""

import pkgutil
import re
import tomllib
from importlib.metadata import entry_points, metadata, requires, version
from pathlib import Path
from typing import Any, Final

import pytest

import graphtrace
import graphtrace_analyzers
from graphtrace.analysis.registry import analyzers
from graphtrace.model.plugin import ENTRY_POINT_GROUP, Analyzer

TREE: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def public_modules() -> set[str]:
    found = pkgutil.iter_modules(graphtrace_analyzers.__path__)
    return {module.name for module in found if not module.name.startswith("_")}


def test_analyzer_modules_equal_the_entry_points(project: dict[str, Any]) -> None:
    declared = project["entry-points"][ENTRY_POINT_GROUP]
    assert declared == {name: f"graphtrace_analyzers.{name}:ANALYZER" for name in public_modules()}


def test_installed_entry_points_are_the_declared_ones(project: dict[str, Any]) -> None:
    installed = {
        point.name: point.value
        for point in entry_points(group=ENTRY_POINT_GROUP)
        if point.dist is not None and point.dist.name == "graphtrace"
    }
    assert installed == project["entry-points"][ENTRY_POINT_GROUP]


def test_each_analyzer_is_whole() -> None:
    own = {analyzer.id: analyzer for analyzer in analyzers()}
    assert public_modules() <= set(own)
    for name in public_modules():
        analyzer = own[name]
        assert isinstance(analyzer, Analyzer)
        assert analyzer.summary
        assert analyzer.needs
        assert analyzer.kinds
        assert all(need.reason and need.rerun for need in analyzer.needs)


def test_each_option_has_a_default_a_meaning_and_a_source() -> None:
    for analyzer in analyzers():
        analyzer.options()
        for field in analyzer.options.__dataclass_fields__.values():
            assert field.metadata["doc"], f"{analyzer.id}.{field.name}"
            assert field.metadata["source"], f"{analyzer.id}.{field.name}"


def test_the_command_and_the_version(project: dict[str, Any]) -> None:
    assert version("graphtrace") == graphtrace.__version__ == project["version"]
    [script] = [
        point for point in entry_points(group="console_scripts") if point.name == "graphtrace"
    ]
    assert callable(script.load())


def test_types_and_licence_ship() -> None:
    for package in (graphtrace, graphtrace_analyzers):
        assert (Path(package.__path__[0]) / "py.typed").is_file()
    assert metadata("graphtrace")["License-Expression"] == "Apache-2.0"


def test_torch_is_optional_and_a_lower_bound() -> None:
    """A pinned torch would replace the build that a program was installed with."""
    wanted = [line for line in requires("graphtrace") or [] if line.startswith("torch")]
    assert len(wanted) == 1
    assert re.fullmatch(r"torch>=[\d.]+ ?; extra == ['\"]torch['\"]", wanted[0])


def test_every_import_of_the_package_is_a_requirement(project: dict[str, Any]) -> None:
    needed = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert {"numpy", "pyarrow", "plotly", "click", "rich", "nvtx", "pandas"} <= needed
