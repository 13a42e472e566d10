# SPDX-License-Identifier: Apache-2.0
"""Runs something right after a named module was imported; patches nothing. Standard library only.

A finder in front of the others passes every name through but one. For that one it asks the others
and lends the module its own loader only until the module's code starts to run, so that the program
finds the loader, the spec and the module it would have found without us.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

__all__ = ["after_import"]


class _Loader:
    def __init__(self, inner: Any, done: Callable[[], None]) -> None:
        self._inner = inner
        self._done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._inner.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._done()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Finder:
    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in tuple(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None
            if finder is not self and find is not None:
                spec = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = cast("Loader", _Loader(spec.loader, self._imported))
                return spec
        return None

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._action()


def after_import(name: str, action: Callable[[], None]) -> None:
    """Run an action once a module has been executed, at once if it has been already.

    Args:
        name: full name of the module.
        action: must not raise.
    """
    if name in sys.modules:
        action()
        return
    sys.meta_path.insert(0, _Finder(name, action))
