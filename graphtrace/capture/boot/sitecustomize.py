# SPDX-License-Identifier: Apache-2.0
"""First module that a Python started under `graphtrace capture` runs; Python 3.6 syntax.

Takes its folder off the path again, starts the recorder, and runs the `sitecustomize` that it
stood in front of. What fails of ours is swallowed; what that other module does is its own.
"""

# pathlib would be one more import in every process:
# ruff: noqa: PTH100, PTH118, PTH120, PTH123

import os
import sys


def _off_the_path() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path_importer_cache.pop(here, None)
    return here


def _start(here: str) -> None:
    folder = os.environ["GRAPHTRACE_BOOT"]
    if sys.version_info < (3, 11):  # noqa: UP036 - this file runs under the user's Python
        name = os.path.join(folder, "refused-%d" % os.getpid())  # noqa: UP031 - this file runs under the user's Python
        with open(name, "w") as note:
            note.write(".".join(str(part) for part in sys.version_info[:3]))
        return
    import importlib.util

    if "graphtrace" not in sys.modules:
        home = os.path.dirname(os.path.dirname(here))
        spec = importlib.util.spec_from_file_location(
            "graphtrace", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
        )
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["graphtrace"] = module
        spec.loader.exec_module(module)
    from graphtrace.capture import child

    child.start(folder)


def _chain() -> None:
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", None)
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_HERE = _off_the_path()
if os.environ.get("GRAPHTRACE_BOOT"):
    try:  # noqa: SIM105 - contextlib would be one more import in every process
        _start(_HERE)
    except Exception:  # noqa: BLE001, S110 - border of the user's program: never fail it
        pass
_chain()
