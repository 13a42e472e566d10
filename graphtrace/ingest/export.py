# SPDX-License-Identifier: Apache-2.0
"""Writes an input as a recording, which is read many times faster and gives the same answer."""

import os
import shlex
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from graphtrace import __version__
from graphtrace.ingest.load import read_source
from graphtrace.ingest.source import Source
from graphtrace.model.errors import InputError, InputUnsupported, OutputError, UsageError
from graphtrace.model.recording import Manifest, Origin, read_manifest, write_recording

__all__ = ["Exported", "export"]

_SUFFIX: Final = ".gtrace"
_HIDDEN: Final = ".graphtrace-"
_COUNTED: Final = ("activities", "ncu_results", "ranges", "batches")
"""Tables of work, what tells most first."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        table: the table that its work is in.
        rows: rows of that table.
        size: bytes of all files.
    """

    table: str
    rows: int
    size: int


def export(source: Path, target: Path, *, force: bool = False) -> Exported:
    """Write an input as a finished recording.

    The recording appears under its name whole or not at all: it is written into a hidden folder
    beside it and renamed. A recording that is exported keeps its manifest, an unfinished one is
    finished with what was recorded. Of the path of anything else, only the base name is kept.

    Args:
        source: what `graphtrace.load` reads, be it without GPU work.
        target: the recording, a name that ends in `.gtrace`.
        force: replace a recording that stands there; never anything else.

    Raises:
        UsageError: the target's name is not that of a recording.
        OutputError: it exists, is or lies in the input or holds it, or cannot be written.
        InputError: the input cannot be read.
    """
    _check_name(source, target)
    _check_apart(source, target)
    _check_place(target, force=force)
    read = read_source(source)
    try:
        return _write(read, source, target, force=force)
    except OSError as error:
        raise OutputError(
            f"{target} could not be written.",
            f"{error.strerror or error}.",
            "Free some space or choose another place with -o.",
        ) from error


def _check_name(source: Path, target: Path) -> None:
    if target.suffix == _SUFFIX:
        return
    if target.is_dir():
        better = target / f"{source.resolve().stem}{_SUFFIX}"
    else:
        better = target.with_name(f"{target.name}{_SUFFIX}")
    raise UsageError(
        f"{target} is no name of a recording.",
        f"A recording is a folder whose name ends in {_SUFFIX}.",
        f"Write -o {better}",
    )


def _check_apart(source: Path, target: Path) -> None:
    read, written = os.path.realpath(source), os.path.realpath(target)
    if read == written:
        where = "is"
    elif written.startswith(read + os.sep):
        where = "lies in"
    elif read.startswith(written + os.sep):
        where = "holds"
    else:
        return
    raise OutputError(
        f"{target} {where} the input.",
        "Writing it would destroy what is being read.",
        "Choose another place with -o.",
    )


def _check_place(target: Path, *, force: bool) -> None:
    if not target.parent.is_dir():
        raise OutputError(
            f"{target} cannot be written.",
            f"The folder {target.parent} does not exist.",
            "Create the folder, or choose another with -o.",
        )
    if not os.path.lexists(target):
        return
    if not force:
        raise OutputError(
            f"{target} exists.",
            "graphtrace does not overwrite recordings unless told to.",
            "Add --force, or choose another name with -o.",
        )
    if target.is_symlink() or not _is_recording(target):
        raise OutputError(
            f"{target} is no recording.",
            "--force replaces recordings of graphtrace only; something else has this name.",
            "Move it away, or choose another name with -o.",
        )


def _is_recording(folder: Path) -> bool:
    """Whether it is a folder with a manifest of ours, be it of a newer version."""
    try:
        read_manifest(folder)
    except InputUnsupported:
        return True
    except InputError:
        return False
    return True


def _write(source: Source, path: Path, target: Path, *, force: bool) -> Exported:
    made = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=target.parent))
    try:
        write_recording(made, _manifest(source, path), source.tables)
        size = sum(file.stat().st_size for file in made.iterdir())
        mask = os.umask(0)
        os.umask(mask)
        made.chmod(0o777 & ~mask)
        _sync(made)
        _swap(made, target, force=force)
        _sync(target.parent)
    finally:
        # Nothing is there any more where it was renamed.
        shutil.rmtree(made, ignore_errors=True)
    tables = source.tables
    table = next((name for name in _COUNTED if tables.rows(name)), _COUNTED[0])
    return Exported(table, tables.rows(table), size)


def _sync(folder: Path) -> None:
    """Make the names in a folder outlast a loss of power, where the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(made: Path, target: Path, *, force: bool) -> None:
    """Give a whole folder its name; what stood there is moved aside first and removed last."""
    # Between the first check and now, something may have got this name.
    _check_place(target, force=force)
    if not os.path.lexists(target):
        made.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=target.parent))
    target.rename(aside)
    try:
        made.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _manifest(source: Source, path: Path) -> Manifest:
    given = source.manifest
    if given is not None:
        cost = given.cost if source.cost is None else source.cost
        return replace(given, missing=source.warnings, cost=cost)
    info, nothing = source.info, source.nothing
    told = None
    if nothing is not None:
        what, why, do = (
            _without_folder(path, said) for said in (nothing.what, nothing.why, nothing.do)
        )
        told = (what, why, do)
    return Manifest(
        tools={"graphtrace": __version__},
        missing=tuple(_without_folder(path, sentence) for sentence in source.warnings),
        origin=Origin(
            kind=info.kind,
            name=path.name,
            tool=info.tool,
            tool_version=info.tool_version,
            synthetic=info.synthetic,
            nothing=told,
        ),
    )


def _without_folder(path: Path, sentence: str) -> str:
    """A sentence of a reader that names the input, with its base name only."""
    quoted = sentence.replace(shlex.quote(str(path)), shlex.quote(path.name))
    return quoted.replace(str(path), path.name)
