# SPDX-License-Identifier: Apache-2.0
"""The architecture holds: who may import whom, and what no source file may contain."""

import ast
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import graphtrace
import graphtrace_analyzers

CORE: Final = Path(graphtrace.__file__).parent
ANALYZERS: Final = Path(graphtrace_analyzers.__file__).parent
TREE: Final = Path(__file__).resolve().parents[2]
LINES: Final = 450

# What each package may import; a package may always import from itself.
_BELOW_CLI: Final = ("report", "views", "analysis", "attribute", "ingest", "model")
ALLOWED: Final = {
    "model": (),
    "ingest": ("model",),
    "attribute": ("ingest", "model"),
    "analysis": ("attribute", "ingest", "model"),
    "views": ("analysis", "attribute", "ingest", "model"),
    "report": _BELOW_CLI[1:],
    "cli": (*_BELOW_CLI, "capture"),
    "capture": ("model",),
    # The fake driver answers to the recorder's port.
    "testing": ("capture", "model"),
}

# Modules that may swallow whatever goes wrong: the border of the user's program, nothing else.
GUARDS: Final = {"capture/guard.py", "capture/boot/sitecustomize.py"}


def sources(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of what a module imports, at any depth: `a.b.c` for `from a.b import c`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name != "graphtrace")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "graphtrace":
            # After `import graphtrace`, what counts is what is taken from it.
            yield f"graphtrace.{node.attr}"


def package_of(path: Path) -> str:
    """Name of the package of the core that a module is in; empty for those at the top."""
    parts = path.relative_to(CORE).parts
    return parts[0] if len(parts) > 1 else ""


def forbidden(package: str, name: str) -> bool:
    """Whether a module of this package of the core may not import this name."""
    parts = name.split(".")
    if parts[0] == "graphtrace_analyzers":
        return True
    if parts[0] != "graphtrace" or name == "graphtrace.__version__":
        return False
    target = parts[1] if len(parts) > 1 else ""
    return target != package and target not in ALLOWED[package]


def violations(root: Path) -> list[str]:
    found = []
    for path in sources(root):
        package = package_of(path)
        if package:
            bad = (name for name in imported(tree_of(path)) if forbidden(package, name))
            found.extend(f"{path.relative_to(root)} imports {name}" for name in bad)
    return found


def test_imports_of_the_core_go_one_way() -> None:
    assert violations(CORE) == []


def test_every_package_of_the_core_has_its_place() -> None:
    packages = {package_of(path) for path in sources(CORE)} - {""}
    assert packages == set(ALLOWED)


@pytest.mark.parametrize(
    ("package", "name", "bad"),
    [
        ("model", "graphtrace.ingest.source.Source", True),
        ("ingest", "graphtrace.model.trace.Trace", False),
        ("views", "graphtrace.report.text.render", True),
        ("capture", "graphtrace.ingest.load.load", True),
        ("cli", "graphtrace.capture.launcher.launch", False),
        ("cli", "graphtrace.testing.nsys", True),
        ("report", "graphtrace.load", True),
        ("report", "graphtrace.__version__", False),
        ("analysis", "graphtrace_analyzers.cache_thrash", True),
        ("analysis", "numpy", False),
    ],
)
def test_the_rule_itself(package: str, name: str, bad: bool) -> None:
    assert forbidden(package, name) is bad


def test_what_is_taken_from_the_whole_package_counts() -> None:
    tree = ast.parse("import graphtrace\ngraphtrace.load(graphtrace.__version__)")
    assert set(imported(tree)) == {"graphtrace.load", "graphtrace.__version__"}


def test_analyzers_import_the_model_only() -> None:
    bad = [
        f"{path.name} imports {name}"
        for path in sources(ANALYZERS)
        for name in imported(tree_of(path))
        if name.split(".")[0] == "graphtrace" and not name.startswith("graphtrace.model.")
    ]
    assert bad == []


def test_the_core_names_no_analyzer_package() -> None:
    """Not by import, nor by a string that importlib could take."""
    named = [
        f"{path.relative_to(CORE)}:{node.lineno}"
        for path in sources(CORE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("graphtrace_analyzers")
    ]
    assert named == []


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes everything and does not raise again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {kind.id for kind in kinds if isinstance(kind, ast.Name)}
    blind = handler.type is None or names & {"Exception", "BaseException"}
    return bool(blind) and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def test_only_the_guard_swallows_everything() -> None:
    blind = {
        path.relative_to(root).as_posix()
        for root in (CORE, ANALYZERS)
        for path in sources(root)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and swallows(node)
    }
    assert blind <= GUARDS


@pytest.mark.parametrize(
    ("handler", "is_blind"),
    [
        ("except: pass", True),
        ("except Exception: x = 1", True),
        ("except (OSError, BaseException): pass", True),
        ("except OSError: pass", False),
        ("except Exception as error: raise ValueError from error", False),
    ],
)
def test_a_blind_handler_is_recognised(handler: str, is_blind: bool) -> None:
    tree = ast.parse(f"try:\n    pass\n{handler}\n")
    [found] = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    assert swallows(found) is is_blind


def test_nothing_prints() -> None:
    printing = [
        f"{path.name}:{node.lineno}"
        for root in (CORE, ANALYZERS)
        for path in sources(root)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "pprint"}
    ]
    assert printing == []


def test_files_stay_short() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for root in (CORE, ANALYZERS)
        for path in sources(root)
    }
    assert {name: length for name, length in lengths.items() if length > LINES} == {}


def test_every_source_names_its_licence() -> None:
    places = [TREE / name for name in ("tests", "benchmarks", "examples", "tools")]
    paths = [path for root in (CORE, ANALYZERS, *places) for path in sources(root)]
    bare = [
        str(path)
        for path in paths
        if not path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: Apache-2.0")
    ]
    assert bare == []


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """Files of this checkout that git knows."""
    if not (TREE / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=TREE, capture_output=True, text=True, check=True
    ).stdout
    paths = [TREE / name for name in names.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_real_profiler_file_is_committed(tracked: list[Path], data_dir: Path) -> None:
    real = [path for path in data_dir.rglob("*") if path.is_file()]
    sizes = {path.stat().st_size for path in real}
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in real}
    copied = [
        str(path)
        for path in tracked
        if path.stat().st_size in sizes and hashlib.sha256(path.read_bytes()).hexdigest() in digests
    ]
    assert copied == []


def test_no_fixture_carries_the_environment_of_a_real_file(tracked: list[Path]) -> None:
    """Real files have this in place of their environment; tests may search output for it."""
    canary = b"GT_CANARY=" + b"must-not-appear"
    carrying = [
        str(path) for path in tracked if path.suffix != ".py" and canary in path.read_bytes()
    ]
    assert carrying == []
