# SPDX-License-Identifier: Apache-2.0
"""Gates: conditions that a build may fail on, as in `--fail-over recoverable=5%`."""

import math
from collections.abc import Sequence

from graphtrace.analysis.gates import GATES
from graphtrace.model.errors import UsageError

__all__ = ["parse_gates"]


def parse_gates(texts: Sequence[str]) -> dict[str, float]:
    """Limits by gate name, as ratios.

    Raises:
        UsageError: an unknown gate, or a limit that is no share between 0 and 100 %.
    """
    limits: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        limit = _ratio(number.strip())
        if name.strip() not in GATES or limit is None:
            raise UsageError(
                f"--fail-over {text} is no gate.",
                f"A gate is one of {', '.join(GATES)} with a limit between 0 and 100 %.",
                "Write it as in --fail-over recoverable=5%.",
            )
        limits[name.strip()] = limit
    return limits


def _ratio(text: str) -> float | None:
    scale = 100.0 if text.endswith("%") else 1.0
    try:
        value = float(text.removesuffix("%")) / scale
    except ValueError:
        return None
    return value if math.isfinite(value) and 0.0 <= value <= 1.0 else None
