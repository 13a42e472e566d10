# SPDX-License-Identifier: Apache-2.0
"""Outputs: refused where they exist, written whole or not at all."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphtrace.model.errors import OutputError

__all__ = ["check_outputs", "write_output"]


def check_outputs(outputs: Sequence[Path], inputs: Sequence[Path], *, force: bool) -> None:
    """Refuse outputs before any work is done.

    Raises:
        OutputError: an output exists (without `force`), is an input, is named twice, is a
            directory, or lies in a folder that does not exist.
    """
    sources = {os.path.realpath(path) for path in inputs}
    seen: set[str] = set()
    for output in outputs:
        real = os.path.realpath(output)
        if real in sources or any(real.startswith(source + os.sep) for source in sources):
            raise OutputError(
                f"{output} is an input.",
                "Writing it would destroy what is being read.",
                "Choose another name with -o.",
            )
        if real in seen:
            raise OutputError(
                f"{output} was named twice.", "One would overwrite the other.", "Name it once."
            )
        seen.add(real)
        _check_place(output, force=force)


def _check_place(output: Path, *, force: bool) -> None:
    if output.is_dir():
        raise OutputError(
            f"{output} is a directory.", "A report is a file.", "Name a file in it with -o."
        )
    if not output.parent.is_dir():
        raise OutputError(
            f"{output} cannot be written.",
            f"The folder {output.parent} does not exist.",
            "Create the folder, or choose another with -o.",
        )
    if os.path.lexists(output) and not force:
        raise OutputError(
            f"{output} exists.",
            "graphtrace does not overwrite files unless told to.",
            "Add --force, or choose another name with -o.",
        )


def write_output(output: Path, text: str) -> None:
    """Write a file whole: beside its place, then renamed into it.

    A target that is no regular file (a pipe, a device) is written in place.

    Raises:
        OutputError: the folder is read-only, the disk is full.
    """
    content = text.encode("utf-8", "backslashreplace")
    try:
        if os.path.lexists(output) and not output.is_file():
            output.write_bytes(content)
            return
        _replace(output.resolve() if output.is_symlink() else output, content)
    except OSError as error:
        raise OutputError(
            f"{output} could not be written.",
            f"{error.strerror or error}.",
            "Free some space or choose another place with -o.",
        ) from error


def _replace(output: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".graphtrace-", dir=output.parent)
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        beside.chmod(0o666 & ~mask)
        beside.replace(output)
    except OSError:
        beside.unlink()
        raise
