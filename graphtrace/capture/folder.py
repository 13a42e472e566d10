# SPDX-License-Identifier: Apache-2.0
"""Makes the folder of a recording before anything is recorded. Standard library only."""

import itertools
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphtrace.model.errors import OutputError, UsageError
from graphtrace.model.records import LAYOUT_VERSION

__all__ = ["RAW", "create", "default_name"]

RAW: Final = "raw"
SUFFIX: Final = ".gtrace"

SEGMENTS: Final = 256
"""Segments of 1 MiB that one process may fill: 8 million records."""

_INTERPRETERS: Final = ("python", "pypy")


def default_name(command: Sequence[str], now: time.struct_time) -> str:
    """Name of a recording: what the program is called, and when it started.

    Args:
        command: the program and its arguments.
        now: local time.
    """
    words = list(command)
    name = Path(words[0]).name if words else ""
    if name.startswith(_INTERPRETERS):
        rest = words[1:]
        module = next((b for a, b in itertools.pairwise(rest) if a == "-m"), None)
        script = next((word for word in rest if word.endswith((".py", ".pyc"))), None)
        name = script if script is not None else module if module is not None else name
    stem = Path(name).name.removesuffix(".py").removesuffix(".pyc")
    clean = "".join(c if c.isalnum() or c in "._-" else "_" for c in stem).strip(".")[:80]
    return f"{clean or 'run'}-{time.strftime('%Y%m%d-%H%M%S', now)}{SUFFIX}"


def _check(path: Path, depth: int) -> None:
    if depth < 0:
        raise UsageError(
            f"A depth of {depth} makes no sense.",
            "Depth counts module calls below the outermost module.",
            "Give 0 (no modules), 1 (its children), 2 and so on.",
        )
    if path.suffix != SUFFIX:
        raise UsageError(
            f"{path} is no name of a recording.",
            f"A recording is a folder whose name ends in {SUFFIX}.",
            f"Write -o {path}{SUFFIX}",
        )


def _is_recording(path: Path) -> bool:
    return path.is_dir() and (not any(path.iterdir()) or (path / "manifest.json").is_file())


def _make_room(path: Path, *, force: bool) -> None:
    if not os.path.lexists(path):
        return
    if not force:
        raise OutputError(
            f"{path} exists already.",
            "A recording is never overwritten unasked.",
            "Give another name with -o, or --force to replace it.",
        )
    if path.is_symlink() or not _is_recording(path):
        raise OutputError(
            f"{path} is not a recording.",
            "Only a recording is replaced by --force; something else has this name.",
            "Move it away or give another name with -o.",
        )
    shutil.rmtree(path)


def create(output: str | Path, depth: int, stages: Sequence[str], *, force: bool) -> Path:
    """Make the folder of a new recording, as an unfinished one.

    Args:
        output: where; its name must end in `.gtrace`.
        depth: for the recorder.
        stages: for the recorder.
        force: replace a recording that exists.

    Returns:
        The absolute path.

    Raises:
        UsageError: the name or the depth makes no sense.
        OutputError: it exists, or it cannot be written.
    """
    path = Path(output)
    _check(path, depth)
    home = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the user's links
    config = {
        "layout": LAYOUT_VERSION,
        "depth": depth,
        "stages": list(stages),
        "segments": SEGMENTS,
    }
    manifest = {
        "format": "graphtrace.recording",
        "format_version": 1,
        "created_ns": time.time_ns(),
        "how": {"depth": depth, "stages": list(stages)},
    }
    made = False
    try:
        _make_room(home, force=force)
        (home / RAW).mkdir(parents=True)
        made = True
        (home / RAW / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (home / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    except OSError as error:
        if made:
            shutil.rmtree(home, ignore_errors=True)
        raise OutputError(
            f"{path} cannot be written.",
            f"{error.strerror or error}.",
            "Name a place with room where you may write: -o /tmp/run.gtrace",
        ) from error
    return home
