# SPDX-License-Identifier: Apache-2.0
"""Which analyzers are installed: whatever registers in the entry point group."""

import difflib
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

from graphtrace.model.errors import GraphtraceError, UsageError
from graphtrace.model.plugin import ENTRY_POINT_GROUP, Analyzer

__all__ = ["analyzers", "choose", "suggestion"]


def analyzers() -> tuple[Analyzer, ...]:
    """Every installed analyzer, sorted by id.

    Raises:
        GraphtraceError: one cannot be imported, is no analyzer, or shares its id with another.
    """
    return collect(entry_points(group=ENTRY_POINT_GROUP))


def collect(points: Iterable[EntryPoint]) -> tuple[Analyzer, ...]:
    """The analyzers behind these entry points, sorted by id."""
    owners: dict[str, EntryPoint] = {}
    found: list[Analyzer] = []
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        analyzer = _load(point)
        if analyzer.id in owners:
            raise GraphtraceError(
                f"Two analyzers are named {analyzer.id}.",
                f"{_owner(owners[analyzer.id])} and {_owner(point)} both register it.",
                "Uninstall one of the two packages, or rename its analyzer.",
            )
        owners[analyzer.id] = point
        found.append(analyzer)
    return tuple(sorted(found, key=lambda a: a.id))


def _load(point: EntryPoint) -> Analyzer:
    try:
        analyzer = point.load()
    except Exception as error:
        raise GraphtraceError(
            f"The analyzer {point.name} of {_owner(point)} cannot be loaded.",
            f"Importing {point.value} raised {type(error).__name__}: {error}.",
            "Repair or uninstall that package.",
        ) from error
    if not isinstance(analyzer, Analyzer):
        raise GraphtraceError(
            f"The analyzer {point.name} of {_owner(point)} is none.",
            f"{point.value} is of type {type(analyzer).__name__}, not Analyzer.",
            "Repair or uninstall that package.",
        )
    return analyzer


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def suggestion(word: str, known: Iterable[str]) -> str:
    """What to do about an unknown word: the closest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]}?"
    return f"Choose from: {', '.join(names)}." if names else "There is none to choose from."


def choose(installed: Sequence[Analyzer], only: Sequence[str] | None) -> tuple[Analyzer, ...]:
    """The analyzers that were asked for; all of them where `only` is None.

    Raises:
        UsageError: a name is unknown, or `only` names nothing.
    """
    if only is None:
        return tuple(installed)
    known = {a.id for a in installed}
    for name in only:
        if name not in known:
            raise UsageError(
                f"There is no analyzer named {name!r}.",
                f"Installed are: {', '.join(sorted(known)) or 'none'}.",
                suggestion(name, known),
            )
    if not only:
        raise UsageError(
            "No analyzer was chosen.",
            "The list of analyzers to run is empty.",
            f"Leave it out to run all, or choose from: {', '.join(sorted(known))}.",
        )
    return tuple(a for a in installed if a.id in only)
