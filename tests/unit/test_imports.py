# SPDX-License-Identifier: Apache-2.0
"""What importing loads, seen from a new interpreter."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import graphtrace

CORE: Final = Path(graphtrace.__file__).parent
HEAVY: Final = {"numpy", "torch", "pandas", "plotly", "pyarrow", "click", "rich", "nvtx"}


def loaded_by(code: str, cwd: Path) -> set[str]:
    """Top-level packages that are loaded after this code and were not at start."""
    script = (
        "import sys; before = set(sys.modules)\n"
        f"{code}\n"
        "import json; new = {n.split('.')[0] for n in set(sys.modules) - before}\n"
        "sys.stderr.write('\\n' + json.dumps(sorted(new)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def foreign(names: set[str]) -> set[str]:
    return names - set(sys.stdlib_module_names) - {"graphtrace"}


def test_importing_the_package_loads_the_standard_library_only(tmp_path: Path) -> None:
    assert foreign(loaded_by("import graphtrace", tmp_path)) == set()


@pytest.mark.parametrize("name", ["stage", "batch", "record"])
def test_what_runs_in_a_program_needs_the_standard_library_only(name: str, tmp_path: Path) -> None:
    assert foreign(loaded_by(f"from graphtrace import {name}", tmp_path)) == set()


@pytest.mark.parametrize(
    "code",
    [
        "from graphtrace import stage\nwith stage('a'):\n    pass",
        "from graphtrace import batch\n"
        "with batch(valid_tokens=1, captured_tokens=2, sizes=(1,)):\n    pass",
    ],
)
def test_stages_and_batches_outside_of_a_recording_load_nothing(code: str, tmp_path: Path) -> None:
    assert loaded_by(code, tmp_path).isdisjoint(HEAVY)


def test_the_child_side_loads_the_standard_library_only(tmp_path: Path) -> None:
    code = "import graphtrace.capture.child, graphtrace.capture.api"
    assert foreign(loaded_by(code, tmp_path)) == set()


def test_the_boot_module_can_be_read_by_an_old_python_and_imports_little() -> None:
    boot = CORE / "capture" / "boot"
    assert [path.name for path in boot.glob("*.py")] == ["sitecustomize.py"]
    text = (boot / "sitecustomize.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 6))
    top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert top <= {"os", *sys.builtin_module_names}
    assert not any(isinstance(node, ast.ImportFrom) for node in tree.body)


def test_help_and_version_load_no_reader_and_no_report(tmp_path: Path) -> None:
    for option in ("--help", "--version"):
        code = (
            "from graphtrace.cli.main import main\n"
            f"sys.argv = ['graphtrace', {option!r}]\n"
            "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
        )
        assert loaded_by(code, tmp_path).isdisjoint(HEAVY - {"click"})


def test_everything_public_is_there() -> None:
    assert {name: getattr(graphtrace, name) for name in graphtrace.__all__}
    assert set(graphtrace.__all__) <= set(dir(graphtrace))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = graphtrace.nothing


def analyze(arguments: list[str]) -> str:
    return (
        "from graphtrace.cli.main import main\n"
        f"sys.argv = ['graphtrace', 'analyze', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code in (0, None), end.code"
    )


def synthetic(folder: Path) -> Path:
    path = folder / "graph.sqlite"
    subprocess.run(
        [sys.executable, "-m", "graphtrace.testing.nsys", "planted_vit", str(path)],
        check=True,
        timeout=120,
        cwd=folder,
    )
    return path


@pytest.mark.parametrize("form", ["text", "json"])
def test_analyzing_a_timeline_never_loads_pandas(form: str, tmp_path: Path) -> None:
    """It would cost half a second, and corrupts nullable 64-bit ids."""
    pytest.importorskip("pandas")
    arguments = [str(synthetic(tmp_path)), "--format", form]
    loaded = loaded_by(analyze(arguments), tmp_path)
    assert loaded.isdisjoint({"pandas", "torch", "graphtrace.testing"})
    assert "pyarrow" in loaded


def test_writing_a_page_never_loads_pandas(tmp_path: Path) -> None:
    arguments = [str(synthetic(tmp_path)), "-o", str(tmp_path / "page.html")]
    assert "pandas" not in loaded_by(analyze(arguments), tmp_path)


def test_analyzing_ncu_reports_never_loads_pandas(data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    arguments = [str(data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep")]
    assert "pandas" not in loaded_by(analyze(arguments), tmp_path)
