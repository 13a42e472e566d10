# SPDX-License-Identifier: Apache-2.0
"""Reader of Nsight Systems reports (`.nsys-rep`), through an installed nsys.

Only nsys can open its reports. It is asked what it can export, exports into a private folder that
is deleted afterwards, and is stopped at a time limit: old releases hang, and die half-way over
reports of newer ones, leaving what looks like an export. An export that lies beside the report is
not touched and not trusted: it may be stale.

Environment: `GRAPHTRACE_NSYS` names the nsys to use instead of the one on the PATH;
`GRAPHTRACE_NSYS_TIMEOUT` is the time limit in seconds (default 900).
"""

import math
import os
import re
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from graphtrace.ingest.nsys_columns import Column, fetch
from graphtrace.ingest.nsys_export import Export
from graphtrace.ingest.nsys_open import open_export
from graphtrace.ingest.nsys_parquet import open_folder
from graphtrace.ingest.nsys_sqlite import Gathered, exporter, gather, source_of
from graphtrace.ingest.sanity import Quarantine
from graphtrace.ingest.source import Source
from graphtrace.ingest.tool_run import Ran, run_tool
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputTruncated,
    InputUnsupported,
    ToolMissing,
    UsageError,
)
from graphtrace.model.untrusted import visible

__all__ = ["read"]

_MAGIC: Final = b"NVIDIA Tegra Profiler Report"
_TOOL: Final = "GRAPHTRACE_NSYS"
_LIMIT: Final = "GRAPHTRACE_NSYS_TIMEOUT"
_DEFAULT_SECONDS: Final = 900.0
_VERSION_SECONDS: Final = 20.0
_SITE: Final = "https://developer.nvidia.com/nsight-systems"
_SUFFIXES: Final = (".nsys-rep", ".qdrep")
_MOST: Final = 160
_VERSION: Final = re.compile(r"version\s+(\d[\w.]*)", re.I)
_TOO_OLD: Final = re.compile(
    r"(?=.*\b(newer|unsupported|not supported|incompatible|unknown|wrong|mismatch)\b)"
    r"(?=.*\b(versions?|reports?|file formats?)\b)"
    r"(?!.*\b(is available|can be downloaded)\b)",
    re.I,
)
"""Lines in which nsys says that a report is not for it."""


def read(path: Path) -> Source:
    """Read a report, by an export that is made and deleted here.

    Args:
        path: the report.

    Returns:
        What the reader of the export returns; the input is the report.

    Raises:
        ToolMissing: there is no nsys here, or none that can be started.
        InputMissing, InputEmpty, InputTruncated, InputUnsupported: it is no whole report.
        InputError: nsys refuses it, exports only a part of it, or does not finish in time.
        UsageError: the time limit in the environment is no number of seconds.
    """
    _check(path)
    seconds = _seconds()
    nsys = _Nsys(_find(path), path, time.monotonic() + seconds)
    try:
        with tempfile.TemporaryDirectory(
            prefix="graphtrace-nsys-", ignore_cleanup_errors=True
        ) as name:
            gathered = _exported(nsys, Path(name).absolute())
    except OSError as error:
        raise InputError(
            f"{path} cannot be exported.",
            f"The system says of the temporary folder for it: {error.strerror or error}.",
            f"Make space in {tempfile.gettempdir()}, or set TMPDIR to a folder with space.",
        ) from error
    return source_of(gathered, path, "nsys_rep")


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputMissing(
            f"{path} is not a file.", "A report of nsys is one file.", "Check the path."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be opened.",
            f"The system says: {error.strerror or error}.",
            "Check its permissions and its name.",
        ) from error
    again = "Copy it again, whole, or record again."
    if not head:
        raise InputEmpty(f"{path} is empty.", "It has no bytes; recording it failed.", again)
    if head != _MAGIC:
        if _MAGIC.startswith(head):
            raise InputTruncated(
                f"{path} is cut off.", f"It is a report of nsys of {len(head)} bytes.", again
            )
        raise InputUnsupported(
            f"{path} is not a report of nsys.", "Its first bytes are not those of one.", again
        )


def _seconds() -> float:
    given = os.environ.get(_LIMIT, "")
    if not given.strip():
        return _DEFAULT_SECONDS
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(
            f"{_LIMIT} is {visible(given)[:40]}, which is no time limit.",
            "It is how many seconds nsys may take to export a report.",
            f"Set it to a number above 0, or unset it for {_DEFAULT_SECONDS:.0f}.",
        )
    return seconds


def _elsewhere(path: Path) -> str:
    report = Path(path.name)
    return f"nsys export --type sqlite {shlex.quote(str(report))}"


def _find(path: Path) -> str:
    given = os.environ.get(_TOOL, "")
    found = shutil.which(given or "nsys")
    if found is None:
        raise ToolMissing(
            f"{path} is an Nsight Systems report, and nsys is not installed."
            if not given
            else f"{path} is an Nsight Systems report, and {_TOOL} names no nsys.",
            "Only nsys can open a report; there is none on the PATH."
            if not given
            else f"There is no program {visible(given)[:_MOST]}.",
            f"Install Nsight Systems ({_SITE}), or export the report where it is installed and "
            f"give the .sqlite file: {_elsewhere(path)}",
        )
    return str(Path(found).absolute())


@dataclass(frozen=True, slots=True)
class _Nsys:
    """An installed nsys that shall export a report.

    Attributes:
        program: its path.
        report: the report, as the user named it.
        limit: when it must be done, by the monotonic clock.
    """

    program: str
    report: Path
    limit: float

    def run(self, folder: Path, *arguments: str) -> Ran:
        """Run it.

        Raises:
            ToolMissing: it cannot be started.
            InputError: it was not done in time.
        """
        began = time.monotonic()
        try:
            ran = run_tool([self.program, *arguments], folder, max(self.limit - began, 0.0))
        except OSError as error:
            raise ToolMissing(
                f"nsys cannot be started to export {self.report}.",
                f"The system says of {self.program}: {error.strerror or error}.",
                f"Install Nsight Systems ({_SITE}), or set {_TOOL} to one that runs.",
            ) from error
        if ran.code is None:
            raise InputError(
                f"nsys did not finish exporting {self.report} in {_seconds():g} seconds.",
                "It was stopped, with all that it had started; old releases hang now and then.",
                f"Try again, allow more with {_LIMIT}=3600, or export it yourself and give the "
                f".sqlite file: {_elsewhere(self.report)}",
            )
        return ran

    def version(self, folder: Path) -> str | None:
        """Its version, as far as it says one soon."""
        soon = min(self.limit, time.monotonic() + _VERSION_SECONDS)
        try:
            ran = replace(self, limit=soon).run(folder, "--version")
        except (InputError, ToolMissing):
            return None
        found = _VERSION.search(f"{ran.out}\n{ran.err}")
        return None if found is None else found[1][:40]

    def named(self, folder: Path) -> str:
        """Its name with its version."""
        version = self.version(folder)
        return "nsys" if version is None else f"nsys {version}"


def _exported(nsys: _Nsys, folder: Path) -> Gathered:
    """Export into an empty folder, and read that."""
    inside = folder / "out"
    inside.mkdir()
    asked = nsys.run(folder, "export", "--help")
    offered = f"{asked.out}\n{asked.err}"
    parquet = re.search(r"\bparquetdir\b", offered) is not None
    options = [f"--type={'parquetdir' if parquet else 'sqlite'}", "--force-overwrite=true"]
    # A table without a row tells nothing here, and takes time.
    options += [f"--{name}=true" for name in ("lazy", "quiet") if f"--{name}" in offered]
    target = inside / ("export" if parquet else "export.sqlite")
    ran = nsys.run(folder, "export", *options, "--output", str(target), str(_input(nsys, folder)))
    said = _telling(ran, folder, nsys.report)
    if ran.code or (said is not None and _TOO_OLD.search(said)):
        raise _failed(nsys, folder, ran, said)
    if not target.exists():
        written = sorted(inside.iterdir())
        if len(written) != 1:
            raise InputError(
                f"{nsys.named(folder)} exported nothing of {nsys.report}.",
                "It ended as if it were done, but wrote no export"
                + (f"; it says: {said}" if said else "."),
                _other_nsys(nsys.report),
            )
        target = written[0]
    return _read(nsys, folder, target, said)


def _input(nsys: _Nsys, folder: Path) -> Path:
    """The report under a name that nsys takes for one."""
    report = nsys.report.absolute()
    if report.suffix in _SUFFIXES:
        return report
    link = folder / "report.nsys-rep"
    try:
        link.symlink_to(report)
    except OSError:
        return report
    return link


def _read(nsys: _Nsys, folder: Path, target: Path, said: str | None) -> Gathered:
    try:
        if target.is_dir():
            gathered = _whole(nsys, folder, open_folder(target), said)
        else:
            with open_export(target) as database:
                gathered = _whole(nsys, folder, database, said)
    except (InputError, InputMissing) as error:
        if isinstance(error, _Partial):
            raise
        kind = InputCorrupt if isinstance(error, InputMissing) else type(error)
        raise kind(
            f"What {nsys.named(folder)} exported of {nsys.report} cannot be read.",
            _without(error.why, folder, nsys.report),
            _other_nsys(nsys.report),
        ) from error
    if gathered.version is None:
        return replace(gathered, version=nsys.version(folder))
    return gathered


class _Partial(InputUnsupported):
    """An export that ends where nsys gave up."""


def _whole(nsys: _Nsys, folder: Path, export: Export, said: str | None) -> Gathered:
    missing = _missing(export)
    if missing is not None:
        says = f" It says: {said}" if said else ""
        raise _Partial(
            f"{nsys.named(folder)} exported only a part of {nsys.report}.",
            f"{missing} An nsys that is older than the one that recorded a report may end "
            f"half-way without an error.{says}",
            _other_nsys(nsys.report),
        )
    return gather(export)


def _missing(export: Export) -> str | None:
    """What a whole export has and this one has not."""
    version, synthetic = exporter(export)
    if version is None and not synthetic:
        return "The export does not say which nsys wrote it, as every whole one does."
    details = fetch(
        export, "ANALYSIS_DETAILS", [Column("duration")], Quarantine(), meant_for="activities"
    )
    if details is None or ("duration" in details.values and not details.rows):
        return "The export has no ANALYSIS_DETAILS, as every whole one has."
    if export.leftovers:
        return "The export was not closed."
    return None


def _other_nsys(report: Path) -> str:
    return (
        f"Install the newest Nsight Systems ({_SITE}) and set {_TOOL} to its nsys, or export the "
        f"report where it was recorded and give the .sqlite file: {_elsewhere(report)}"
    )


def _failed(nsys: _Nsys, folder: Path, ran: Ran, said: str | None) -> GraphtraceError:
    named = nsys.named(folder)
    code = ran.code or 0
    how = f"ended by signal {-code}" if code < 0 else f"ended with {code}"
    says = "it says nothing." if said is None else f"it says: {said}"
    if said is not None and _TOO_OLD.search(said):
        return InputUnsupported(
            f"{named} cannot export {nsys.report}: it is too old for it.",
            f"It {how}, and {says}",
            _other_nsys(nsys.report),
        )
    return InputError(
        f"{named} failed to export {nsys.report}.",
        f"It {how}; {says}",
        f"Copy the report again if it may be damaged. {_other_nsys(nsys.report)}",
    )


def _telling(ran: Ran, folder: Path, report: Path) -> str | None:
    """The line that says most of what nsys printed: on its version, else its last error."""
    lines = ran.lines()
    errors = Ran(ran.code, "", ran.err).lines()
    found = next((line for line in lines if _TOO_OLD.search(line)), None)
    if found is None:
        found = errors[-1] if errors else lines[-1] if lines and ran.code else None
    return None if found is None else _without(found, folder, report)


def _without(text: str, folder: Path, report: Path) -> str:
    """A stranger's sentence on one line, cut short, without the names of our temporary files."""
    for name in (folder / "report.nsys-rep", folder / "out" / "export.sqlite"):
        text = text.replace(str(name), str(report))
    for name in (folder / "out" / "export", folder / "out", folder):
        text = text.replace(str(name), "the export")
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= _MOST else shown[: _MOST - 1] + "…"
