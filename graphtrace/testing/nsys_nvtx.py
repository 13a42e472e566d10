# SPDX-License-Identifier: Apache-2.0
"""Categories and payloads of synthetic NVTX ranges, stored as nsys stores them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from graphtrace.testing.nsys_file import Cells

if TYPE_CHECKING:
    from graphtrace.testing.nsys import Process

__all__ = ["Categories", "Payload", "PayloadKind"]

PayloadKind = Literal["int64", "uint64", "double", "int32", "uint32", "float"]
_NAMED: Final = 33
"""`eventType` of a row that names a category."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload: a number, and the member of NVTX's union that holds it."""

    value: float | int
    kind: PayloadKind = "int64"

    def columns(self) -> dict[str, Cells]:
        """Cells of `NVTX_EVENTS`; a 64-bit number without sign becomes one with a sign."""
        value = self.value
        if self.kind == "uint64" and value >= 1 << 63:
            value -= 1 << 64
        return {f"{self.kind}Value": value}


@dataclass(slots=True)
class Categories:
    """Numbers of the categories of one process, by domain id and name."""

    numbers: dict[tuple[int, str], int] = field(default_factory=dict)

    def columns(
        self, process: "Process", domain: int, category: str | int | None
    ) -> dict[str, Cells]:
        """Cells of a range: a name, which is written down at its first use, or a bare number."""
        if category is None or isinstance(category, int):
            # NVTX calls no category 0, and nsys stores that as null.
            return {"category": category or None}
        key = domain, category
        if key not in self.numbers:
            self.numbers[key] = number = len(self.numbers) + 1
            named: dict[str, Cells] = {
                "start": process.now,
                "eventType": _NAMED,
                "category": number,
                "text": category,
                "globalTid": process.global_tid,
                "domainId": domain,
            }
            process.export.rows.add("NVTX_EVENTS", 1, named)
        return {"category": self.numbers[key]}
