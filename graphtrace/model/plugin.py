# SPDX-License-Identifier: Apache-2.0
"""What an analyzer is: the interface that plugins of the group `graphtrace.analyzers` implement.

An analyzer is pure: tables and options in, claims and abstentions out. It never clips, ranks or
totals; the engine does, over the claims of all analyzers.

    @dataclass(frozen=True)
    class Options:
        limit: float = option(0.3, "what it limits", source="where the figure comes from")

    ANALYZER = Analyzer(
        id="my_analyzer",
        summary="one line",
        needs=(Need(("metrics",), "no ncu metrics", "ncu --section GraphTraceCore ..."),),
        options=Options,
        run=my_function,      # (TableSet, Options) -> Outcome
    )
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from graphtrace.model.analysis import Abstention, Evidence
from graphtrace.model.trace import TableSet
from graphtrace.model.vocabulary import Confidence, Severity

__all__ = ["ENTRY_POINT_GROUP", "Analyzer", "Claim", "Need", "Outcome", "option"]

ENTRY_POINT_GROUP: Final = "graphtrace.analyzers"


@dataclass(frozen=True, slots=True)
class Need:
    """Tables of which at least one must have rows; else the engine abstains with these words."""

    any_of: tuple[str, ...]
    reason: str
    rerun: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Lost time in named stages, before the engine clips and ranks it.

    Attributes:
        kind: one of the kinds that the analyzer documents.
        fingerprint: what makes this finding the same one in another run, beside the stage: the
            kernel's name and launch shape, or a graph fingerprint. Never an address or a time.
        stage: key of the stage, None where the kernel has none.
        pool: whether the lost time sits in busy or in idle time.
        claimed_ns: lost time summed over all units; None where there is no timeline.
        share_of_kernel: ratio 0 to 1 of the kernel's own duration, for claims without a timeline.
        results: keys of the ncu results it holds for.
        kernel: the kernel's name, where the claim is about one.
    """

    kind: str
    severity: Severity
    confidence: Confidence
    fingerprint: str
    evidence: tuple[Evidence, ...]
    why: str
    do: str
    prove: str
    stage: int | None = None
    pool: Literal["busy", "idle"] = "busy"
    claimed_ns: int | None = None
    share_of_kernel: float | None = None
    results: tuple[int, ...] = ()
    kernel: str | None = None
    device: int | None = None
    replays: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an analyzer says: claims, and questions it cannot decide."""

    claims: tuple[Claim, ...] = ()
    abstentions: tuple[Abstention, ...] = ()


@dataclass(frozen=True, slots=True)
class Analyzer:
    """An analyzer and what it needs. `options` is a frozen dataclass type with defaults."""

    id: str
    summary: str
    needs: tuple[Need, ...]
    options: type[Any]
    run: Callable[[TableSet, Any], Outcome]
    kinds: tuple[str, ...] = ()


def option(default: float | str | bool, doc: str, *, source: str) -> Any:
    """A field of an options dataclass: its default, meaning, and where the default comes from."""
    return field(default=default, metadata={"doc": doc, "source": source})
