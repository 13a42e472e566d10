# SPDX-License-Identifier: Apache-2.0
"""Conditions that a build may fail on."""

import math
from collections.abc import Mapping, Sequence

from graphtrace.analysis.registry import suggestion
from graphtrace.model.analysis import Finding, Gate
from graphtrace.model.errors import UsageError

__all__ = ["GATES", "check_limits", "gates"]

GATES = ("recoverable",)


def check_limits(fail_over: Mapping[str, float] | None) -> None:
    """Refuse gates that do not exist and limits that are no share.

    Raises:
        UsageError: the gate or limit is named.
    """
    for name, limit in (fail_over or {}).items():
        if name not in GATES:
            raise UsageError(
                f"There is no gate named {name!r}.",
                f"A build can fail on: {', '.join(GATES)}.",
                suggestion(name, GATES),
            )
        if isinstance(limit, bool) or not math.isfinite(limit) or not 0.0 <= limit <= 1.0:
            raise UsageError(
                f"The limit {limit} of the gate {name} makes no sense.",
                "A limit is a share of the wall time, from 0 to 1 or from 0 % to 100 %.",
                f"Write for example --fail-over '{name}=5%'.",
            )


def gates(
    fail_over: Mapping[str, float] | None, found: Sequence[Finding], wall_ns: int | None
) -> tuple[Gate, ...]:
    """Decide each gate; without a wall time none can be decided, and `passed` is None.

    `recoverable` is the recoverable time of all findings over the wall time. It passes at its
    limit and fails over it.
    """
    made = []
    for name, limit in (fail_over or {}).items():
        value = None
        if wall_ns:
            value = sum(f.recoverable_ns or 0 for f in found) / wall_ns
        passed = None if value is None else value <= limit
        made.append(Gate(name=name, value=value, limit=float(limit), passed=passed))
    return tuple(made)
