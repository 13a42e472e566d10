# SPDX-License-Identifier: Apache-2.0
"""Keeps commands from a person whose device they do not run on.

Analyzers name NVIDIA's tools for what a trace does not decide. A trace of a ROCm device can be
analyzed as any other, but neither tool can be run there.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from graphtrace.model.analysis import Abstention, Finding
from graphtrace.model.arrays import codes_of
from graphtrace.model.trace import TableSet

__all__ = ["nvidia", "runnable", "runnable_proofs"]

_TOOLS: Final = re.compile(r"^(?:ncu|nsys) ")
_WHY_NOT: Final = " Nsight Compute and Nsight Systems do not run on this device."


def nvidia(tables: TableSet) -> bool:
    """Whether NVIDIA's tools can profile the devices, as far as is known."""
    if tables.rows("ncu_results"):
        return True
    _, calls = codes_of(tables.get("api_calls").column("name"))
    return not any(name.startswith("hip") for name in calls)


def runnable(abstentions: Iterable[Abstention]) -> tuple[Abstention, ...]:
    """The same without commands of NVIDIA's tools, and with the reason for it."""
    return tuple(
        replace(row, reason=row.reason + _WHY_NOT, rerun="") if _TOOLS.match(row.rerun) else row
        for row in abstentions
    )


def runnable_proofs(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same without commands of NVIDIA's tools."""
    return tuple(replace(row, prove="") if _TOOLS.match(row.prove) else row for row in findings)
