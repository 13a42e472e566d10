# SPDX-License-Identifier: Apache-2.0
"""Which stage inside the replayed CUDA graph loses time, why, and how much would come back.

In a program: `stage`, `batch`, `record`. On files: `load`, `analyze`. Importing this package loads
the standard library only; everything else is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphtrace.analysis.engine import analyze
    from graphtrace.capture.api import batch, record, stage
    from graphtrace.ingest.load import load
    from graphtrace.model.analysis import Analysis
    from graphtrace.model.errors import GraphtraceError
    from graphtrace.model.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "GraphtraceError",
    "Trace",
    "__version__",
    "analyze",
    "batch",
    "load",
    "record",
    "stage",
]

_HOMES = {
    "Analysis": "graphtrace.model.analysis",
    "GraphtraceError": "graphtrace.model.errors",
    "Trace": "graphtrace.model.trace",
    "analyze": "graphtrace.analysis.engine",
    "batch": "graphtrace.capture.api",
    "load": "graphtrace.ingest.load",
    "record": "graphtrace.capture.api",
    "stage": "graphtrace.capture.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'graphtrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
