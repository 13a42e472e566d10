# SPDX-License-Identifier: Apache-2.0
"""How a result was measured, from the command line of the profiler that its report keeps."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from graphtrace.model.vocabulary import CacheMode, ClockMode

__all__ = ["UNKNOWN", "Measured", "measured", "options"]

# Options of ncu without an argument (ncu --help of 2022.3, CLI guide of 2025.4); every other
# option takes the word that follows it.
_FLAGS: Final = frozenset(
    {
        "--call-stack",
        "--csv",
        "--details-all",
        "--disable-profiler-start-stop",
        "--disable-extra-suffixes",
        "--force-overwrite",
        "--list-chips",
        "--list-metrics",
        "--list-rules",
        "--list-sections",
        "--list-sets",
        "--lockstep-kernel-launch",
        "--lockstep-nccl-launch",
        "--null-stdin",
        "--nvtx",
        "--open-in-ui",
        "--print-fp",
        "--print-rule-details",
        "--quiet",
        "--section-folder-restore",
        "--support-32bit",
        "--verbose",
        "-f",
    }
)
_CACHE: Final[dict[str, CacheMode]] = {"all": "flushed", "none": "warm"}
_CLOCK: Final[dict[str, ClockMode]] = {
    "base": "base",
    "boost": "boost",
    "force-boost": "force-boost",
    "none": "none",
}
_REPLAY: Final = {
    "kernel": "kernel",
    "application": "application",
    "range": "range",
    "app-range": "range",
}
# Locking to boost came with 2025.4; up to then base is the only lock and the default (ncu --help
# of 2022.3 and 2024.1). What newer versions do by default is not certain.
_BOOST_SINCE: Final = (2025, 4)
_OUR_OPTIONS: Final = ("--cache-control", "--clock-control", "--replay-mode")


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurement mode in the words of the table `ncu_results`."""

    cache: CacheMode = "unknown"
    clock: ClockMode = "unknown"
    replay_mode: str = "unknown"


UNKNOWN: Final = Measured()


def measured(command_lines: Sequence[str], version: str | None) -> Measured:
    """How the results of a report were measured.

    Args:
        command_lines: those that the report keeps; none gives unknown, and so does what several
            of them contradict each other in.
        version: version of the profiler, as in "2024.1.1.0 (build 33998838)".
    """
    modes = [_measured(line, version) for line in command_lines]
    if not modes:
        return UNKNOWN
    first = modes[0]
    return Measured(
        cache=first.cache if all(m.cache == first.cache for m in modes) else "unknown",
        clock=first.clock if all(m.clock == first.clock for m in modes) else "unknown",
        replay_mode=(
            first.replay_mode
            if all(m.replay_mode == first.replay_mode for m in modes)
            else "unknown"
        ),
    )


def _measured(line: str, version: str | None) -> Measured:
    given: dict[str, str] = {"--cache-control": "all", "--replay-mode": "kernel"}
    if (number := _version(version)) is not None and number < _BOOST_SINCE:
        given["--clock-control"] = "base"
    for name, value in options(line):
        if name in _OUR_OPTIONS:
            given[name] = value
        elif len(name) > len("--c"):
            # ncu takes an unambiguous beginning of a name too.
            given.update(dict.fromkeys((o for o in _OUR_OPTIONS if o.startswith(name)), "?"))
    return Measured(
        cache=_CACHE.get(given["--cache-control"], "unknown"),
        clock=_CLOCK.get(given.get("--clock-control", "?"), "unknown"),
        replay_mode=_REPLAY.get(given["--replay-mode"], "unknown"),
    )


def options(line: str) -> Iterator[tuple[str, str]]:
    """Options of the profiler on a command line, up to the program that it ran.

    Args:
        line: words joined by blanks, as the report keeps them; the first is the profiler itself.

    Yields:
        Name and value of each; the value of a flag is empty.
    """
    words = line.split()[1:]
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if not equals and name not in _FLAGS and at < len(words):
            value = words[at]
            at += 1
        yield name, value


def _version(version: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d{4})\.(\d+)", version or "")
    return None if match is None else (int(match.group(1)), int(match.group(2)))
