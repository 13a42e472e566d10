# SPDX-License-Identifier: Apache-2.0
"""Public builder of synthetic profiler files with planted stalls.

Importing this package loads nothing; a name is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphtrace.testing.nsys import Copy, Kernel, NsysExport, Set, Stage
    from graphtrace.testing.nsys_presets import Planted, planted_vit

__all__ = ["Copy", "Kernel", "NsysExport", "Planted", "Set", "Stage", "planted_vit"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        presets = ("Planted", "planted_vit")
        home = "nsys_presets" if name in presets else "nsys"
        return getattr(import_module(f"graphtrace.testing.{home}"), name)
    raise AttributeError(f"module 'graphtrace.testing' has no attribute {name!r}")
