# SPDX-License-Identifier: Apache-2.0
"""Public builder of synthetic profiler files with planted stalls.

Importing this package loads nothing; a name is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphtrace.testing.kineto import KinetoTrace
    from graphtrace.testing.ncu_csv import NcuCsv
    from graphtrace.testing.nsys import Copy, Kernel, NsysExport, Set, Stage
    from graphtrace.testing.nsys_presets import Planted, planted_vit

__all__ = [
    "Copy",
    "Kernel",
    "KinetoTrace",
    "NcuCsv",
    "NsysExport",
    "Planted",
    "Set",
    "Stage",
    "planted_vit",
]

_HOMES = {
    "KinetoTrace": "kineto",
    "NcuCsv": "ncu_csv",
    "Planted": "nsys_presets",
    "planted_vit": "nsys_presets",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"graphtrace.testing.{_HOMES.get(name, 'nsys')}"), name)
    raise AttributeError(f"module 'graphtrace.testing' has no attribute {name!r}")
