# SPDX-License-Identifier: Apache-2.0
"""The one error hierarchy: what happened, why, and what to do about it.

Exit codes are part of the contract: 1 a gate failed, 2 wrong usage, 3 input unreadable, 4 no GPU
work, 5 a needed tool is missing, 70 a bug of ours, 130 interrupted.
"""

from typing import ClassVar

__all__ = [
    "GraphtraceError",
    "InputCorrupt",
    "InputEmpty",
    "InputError",
    "InputMissing",
    "InputTruncated",
    "InputUnsupported",
    "InternalError",
    "NoGpuWork",
    "OutputError",
    "ToolMissing",
    "UsageError",
    "said_by",
]


class GraphtraceError(Exception):
    """Base of every error that graphtrace reports to a person.

    Args:
        what: one sentence, what happened, naming the file or option.
        why: one sentence, the cause as far as it is known.
        do: one sentence, what to do now; a command where there is one.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, why: str, do: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.do = do

    def __str__(self) -> str:
        return f"{self.what}\n{self.why}\n{self.do}"


class UsageError(GraphtraceError):
    """Options or arguments that make no sense."""

    exit_code = 2


class InputMissing(UsageError):
    """A path that does not exist, or a directory where a file is needed."""


class OutputError(UsageError):
    """An output that exists already or cannot be written."""


class InputError(GraphtraceError):
    """An input that cannot be read."""

    exit_code = 3


class InputEmpty(InputError):
    """A file of zero bytes."""


class InputTruncated(InputError):
    """A file of a known kind that ends too early."""


class InputCorrupt(InputError):
    """A file of a known kind whose content contradicts itself."""


class InputUnsupported(InputError):
    """A file of no known kind, or of a version that is too new."""


class NoGpuWork(GraphtraceError):
    """A readable input without GPU work and without a recorded stage or batch."""

    exit_code = 4


class ToolMissing(GraphtraceError):
    """A tool or package that is needed is not installed."""

    exit_code = 5


class InternalError(GraphtraceError):
    """A bug of ours."""

    exit_code = 70


def said_by(error: Exception, limit: int = 160) -> str:
    """What another library's error says, on one line and cut short, for a `why`."""
    words = " ".join(str(error).split())
    return words if len(words) <= limit else words[: limit - 1] + "…"
