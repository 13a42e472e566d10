# SPDX-License-Identifier: Apache-2.0
"""What a reader returns: one input as tables whose keys are its own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphtrace.model.errors import NoGpuWork
from graphtrace.model.trace import InputInfo, RunCost, TableSet

if TYPE_CHECKING:
    from graphtrace.model.recording import Manifest

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """One input, read.

    Attributes:
        info: what it is and who wrote it.
        tables: tables with keys that count from 0 within this input (`source` is 0).
        warnings: sentences a person must read before the numbers.
        cost: what recording cost, where the input says so.
        nothing: where the input is whole but without work, the error that says so in its words.
        manifest: of a recording, what it says of itself.
    """

    info: InputInfo
    tables: TableSet
    warnings: tuple[str, ...] = ()
    cost: RunCost | None = None
    nothing: NoGpuWork | None = None
    manifest: "Manifest | None" = None
