# SPDX-License-Identifier: Apache-2.0
"""The one guard at the border of the user's program.

Whatever of ours runs inside the user's process runs behind it: what fails is noted once and
switched off for the rest of the recording, and the program goes on as if we were not there.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

__all__ = ["FAILED", "ON_FAILURE", "guarded", "reset"]

FAILED: Final[dict[str, str]] = {}
"""Families of hooks that are switched off in this process, and why."""

ON_FAILURE: Final[list[Callable[[str, str], None]]] = []
"""Told once about each family that is switched off."""


def guarded(family: str) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Run a hook so that it can neither fail nor answer anything.

    Args:
        family: hooks that work only together share a family and are switched off together.
    """

    def wrap(hook: Callable[..., object]) -> Callable[..., None]:
        @functools.wraps(hook)
        def safe(*args: Any, **kwargs: Any) -> None:
            if family in FAILED:
                return
            try:
                hook(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - border of the user's program: never fail it
                _switch_off(family, error)

        return safe

    return wrap


def _switch_off(family: str, error: Exception) -> None:
    why = f"{type(error).__name__}: {error}"[:300]
    FAILED[family] = why
    _tell(family, why)


@guarded("report")
def _tell(family: str, why: str) -> None:
    for listener in tuple(ON_FAILURE):
        listener(family, why)


def reset() -> None:
    """Switch everything on again, for a new recording."""
    FAILED.clear()
