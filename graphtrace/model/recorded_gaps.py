# SPDX-License-Identifier: Apache-2.0
"""What a recording does not hold, in sentences."""

from collections.abc import Mapping

from graphtrace.model.definitions import word
from graphtrace.model.raw import RawProcess

__all__ = ["many", "missing"]


def many(count: int, one: str, more: str) -> str:
    """A count with the word for it."""
    return f"{count:,} {one if count == 1 else more}"


def missing(processes: list[RawProcess], nameless: int, counts: Mapping[str, int]) -> list[str]:
    """Sentences on what the tables do not hold.

    Args:
        processes: as they were read.
        nameless: files that name no process.
        counts: refused records by reason.
    """

    def total(name: str) -> int:
        return sum(int(getattr(process, name)) for process in processes)

    def noted(topic: str) -> bool:
        lines = (line for process in processes for line in process.lines.get("note", ()))
        return any(line.get("topic") == topic for line in lines)

    said = []
    whys = sorted({str(word(p.last("full").get("why"))) for p in processes if p.last("full")})
    if total("lost"):
        why = f": {', '.join(whys)}" if whys else ""
        said.append(f"{many(total('lost'), 'record was', 'records were')} lost{why}.")
    elif whys:
        said.append(f"Recording stopped early: {', '.join(whys)}.")
    if total("torn"):
        said.append(f"{many(total('torn'), 'record was', 'records were')} never completed.")
    if counts["undefined"]:
        said.append(
            f"{many(counts['undefined'], 'record names a stage', 'records name stages')}"
            " whose definition was not written."
        )
    if counts["impossible"]:
        said.append(f"{many(counts['impossible'], 'record was', 'records were')} damaged.")
    if total("bad_lines"):
        said.append(f"{many(total('bad_lines'), 'definition was', 'definitions were')} damaged.")
    if total("bad_segments") or nameless:
        files = total("bad_segments") + nameless
        said.append(f"{many(files, 'raw file', 'raw files')} could not be read.")
    said.extend(
        sentence
        for topic, sentence in (
            ("too-many-stages", "Stages beyond the first 10,000 of a process were left out."),
            ("too-many-layouts", "Access patterns beyond the first 4,096 were not described."),
            ("nested-batch", "Batches marked inside another batch belong to the outer one."),
            ("batch-facts", "Token counts that are no plain integers were left out."),
            ("interleaved", "Some stages took turns on one thread and do not nest."),
        )
        if noted(topic)
    )
    said.extend(_switched_off(processes))
    return said


def _switched_off(processes: list[RawProcess]) -> list[str]:
    first: dict[str, str] = {}
    for process in processes:
        for line in process.lines.get("off", ()):
            family, why = word(line.get("family")), word(line.get("why"))
            first.setdefault(family or "unknown", why or "unknown reason")
    return [
        f"Recording of {family} failed and was switched off ({why}); the program was not affected."
        for family, why in sorted(first.items())
    ]
