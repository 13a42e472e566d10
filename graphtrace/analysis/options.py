# SPDX-License-Identifier: Apache-2.0
"""Thresholds of the analyzers: settings given by a person, against what each analyzer declares."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphtrace.analysis.registry import suggestion
from graphtrace.model.errors import UsageError
from graphtrace.model.plugin import Analyzer

__all__ = ["Value", "parse_settings", "resolve", "used"]

Value = float | int | str | bool

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings of the form `ANALYZER.OPTION=VALUE`, by analyzer and option.

    Raises:
        UsageError: one has another form, or one option is set twice.
    """
    parsed: dict[str, dict[str, str]] = {}
    for setting in settings:
        left, equals, value = setting.partition("=")
        analyzer, dot, option = left.strip().partition(".")
        if not (equals and dot and analyzer and option):
            raise UsageError(
                f"The setting {setting!r} cannot be read.",
                "A setting has the form ANALYZER.OPTION=VALUE.",
                "Write, for example, --set cache_thrash.excess=0.3.",
            )
        options = parsed.setdefault(analyzer, {})
        if option in options:
            raise UsageError(
                f"The option {analyzer}.{option} is set twice.",
                f"It is {options[option]!r} and {value.strip()!r}.",
                "Keep one of the two.",
            )
        options[option] = value.strip()
    return parsed


def resolve(
    chosen: Sequence[Analyzer],
    installed: Sequence[Analyzer],
    given: Mapping[str, Mapping[str, Value]] | None,
) -> dict[str, Any]:
    """Options of each chosen analyzer: its defaults, and what was given instead.

    Returns:
        By analyzer id, an instance of its options dataclass.

    Raises:
        UsageError: an analyzer or option is unknown or not chosen, or a value is of another type
            or not finite.
    """
    settings = dict(given or {})
    known = {a.id for a in installed}
    running = {a.id for a in chosen}
    for name in settings:
        if name not in known:
            raise UsageError(
                f"There is no analyzer named {name!r} to set an option of.",
                f"Installed are: {', '.join(sorted(known)) or 'none'}.",
                suggestion(name, known),
            )
        if name not in running:
            raise UsageError(
                f"An option of {name} is set, but {name} does not run.",
                f"Only these were chosen: {', '.join(sorted(running))}.",
                f"Add {name} to the analyzers chosen, or leave its option out.",
            )
    return {a.id: _instance(a, settings.get(a.id, {})) for a in chosen}


def used(resolved: Mapping[str, Any]) -> dict[str, dict[str, Value]]:
    """The values in use, by analyzer and option."""
    return {
        name: {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
        for name, options in resolved.items()
    }


def _instance(analyzer: Analyzer, settings: Mapping[str, Value]) -> Any:
    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(analyzer.options)}
    values: dict[str, Value] = {}
    for name, value in settings.items():
        if name not in defaults:
            raise UsageError(
                f"{analyzer.id} has no option named {name!r}.",
                f"Its options are: {', '.join(sorted(defaults)) or 'none'}.",
                suggestion(name, defaults),
            )
        values[name] = _typed(f"{analyzer.id}.{name}", value, defaults[name])
    return analyzer.options(**values)


def _typed(name: str, value: Value, default: Value) -> Value:
    """The value in the type of the option's default."""
    converted: Value | None = None
    if isinstance(default, bool):
        converted = _flag(value)
    elif isinstance(default, int):
        converted = _integer(value)
    elif isinstance(default, float):
        converted = _real(value)
    elif isinstance(value, str):
        converted = value
    if converted is None:
        wanted = {bool: "true or false", int: "a whole number", float: "a finite number"}
        raise UsageError(
            f"The value {value!r} does not fit the option {name}.",
            f"The option takes {wanted.get(type(default), 'a text')}.",
            f"Its default is {default!r}; write for example --set {name}={default}.",
        )
    return converted


def _flag(value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    return None


def _integer(value: Value) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return int(value) if value.is_integer() else None


def _real(value: Value) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
