# SPDX-License-Identifier: Apache-2.0
"""How much of the device work has a stage: by count, by time, and why not the rest."""

import numpy as np
import pyarrow as pa

from graphtrace.attribute import reasons
from graphtrace.attribute.activity_stages import METHODS, Owned
from graphtrace.attribute.keys import Bools
from graphtrace.attribute.work import Work
from graphtrace.model.analysis import Coverage, Split
from graphtrace.model.arrays import codes_of
from graphtrace.model.vocabulary import INFERRED_METHODS

__all__ = ["coverage_of", "uncovered_warning"]


def coverage_of(activities: pa.Table, work: Work, owned: Owned) -> Coverage:
    """Count the activities of an attributed table; our own marks are left out.

    Time is the sum of the durations, so work that overlaps counts for each.
    """
    counted = ~work.mark
    inferred_codes = [i for i, word in enumerate(METHODS) if word in INFERRED_METHODS]
    has = counted & (owned.stage >= 0)
    inferred = has & np.isin(owned.method, inferred_codes)
    parts = (counted, counted & work.in_graph, has & ~inferred, inferred, counted & ~has)
    codes, words = codes_of(activities.column("reason"))
    why = np.bincount(codes[parts[4] & (codes >= 0)], minlength=len(words))
    found = {word: int(n) for word, n in zip(words, why.tolist(), strict=True) if n}
    return Coverage(
        activities=Split(*(int(np.count_nonzero(part)) for part in parts)),
        time_ns=Split(*(_time(work, part) for part in parts)),
        reasons=dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))),
    )


def _time(work: Work, part: Bools) -> int:
    return int(work.end.sum(where=part)) - int(work.begin.sum(where=part))


def uncovered_warning(work: Work, owned: Owned) -> str | None:
    """A sentence where there is work in graphs and none of it has a stage, else None."""
    inside = np.flatnonzero(work.in_graph & ~work.mark)
    if not len(inside) or (owned.stage[inside] >= 0).any():
        return None
    why = owned.reason[inside]
    counts = np.bincount(why[why >= 0], minlength=len(reasons.REASONS))
    worst = int(counts.argmax())
    sentence = (
        f"None of the {len(inside):,} activities inside CUDA graphs has a stage: "
        f"{reasons.REASONS[worst]} for {int(counts[worst]):,} of them."
    )
    advice = reasons.ADVICE.get(worst)
    return f"{sentence} {advice}" if advice else sentence
