# SPDX-License-Identifier: Apache-2.0
"""What an input is, by its content: names and suffixes decide nothing."""

import errno
import os
import re
import shlex
import stat
import zlib
from pathlib import Path
from typing import Final

from graphtrace.model.errors import (
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputUnsupported,
)
from graphtrace.model.vocabulary import InputKind

__all__ = ["sniff"]

_HEAD: Final = 1 << 16
_MANIFEST: Final = "manifest.json"
_MARKER: Final = re.compile(rb'"format"\s*:\s*"graphtrace\.recording"')
_MANIFEST_LIMIT: Final = 1 << 24

_BINARY: Final[tuple[tuple[bytes, InputKind], ...]] = (
    (b"NVR\0", "ncu_rep"),
    (b"SQLite format 3\0", "nsys_sqlite"),
    (b"NVIDIA Tegra Profiler Report", "nsys_rep"),
)
"""First bytes of reports and exports; all reports of nsys carry the name of its ancestor."""
_NAMED: Final[dict[InputKind, str]] = {
    "ncu_rep": "an Nsight Compute report",
    "nsys_sqlite": "an SQLite file",
    "nsys_rep": "an Nsight Systems report",
    "nsys_parquetdir": "an Nsight Systems export in Parquet",
    "ncu_csv": "the printed output of ncu",
    "kineto": "a trace of the PyTorch profiler",
    "gtrace": "a recording",
}
_GZIP: Final = b"\x1f\x8b"
_PACKED: Final = (
    (b"PK\x03\x04", "zip", "unzip"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
    (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
)
_LFS: Final = "version https://git-lfs.github.com/spec/"
_HTML: Final = re.compile(r"<(!doctype\s+html|html)\b", re.I)
_NCU_TEXT: Final = re.compile(
    r'^\ufeff?("ID","Process ID"|"Process ID","Process Name"|==(PROF|ERROR|WARNING)== )', re.M
)
_TRACE_JSON: Final = re.compile(r'"(traceEvents|ph|deviceProperties|schemaVersion)"\s*:')
_CONTROL: Final = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_NSYS_TABLE: Final = re.compile(
    r"(StringIds|NVTX_EVENTS\w*|CUPTI_ACTIVITY_KIND_\w+|TARGET_INFO_\w+|META_DATA_\w+"
    r"|ANALYSIS_DETAILS|CUDA_GRAPH_\w+)\.(parquet|arrow)",
    re.I,
)
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_OURS: Final = (".ncu-rep", ".nsys-rep", ".sqlite", ".gtrace")
_GIVE: Final = (
    "Give an Nsight Compute report (.ncu-rep), an Nsight Systems report (.nsys-rep) or export "
    "(sqlite, parquetdir), a trace of the PyTorch profiler (.json, "
    ".json.gz) or a recording (.gtrace)."
)


def sniff(path: Path) -> InputKind:
    """Say what an input is.

    Nothing but the first 64 KiB of a file, or a folder's list and manifest, is read, and nothing
    but regular files and folders is opened.

    Args:
        path: a file or folder that the user named.

    Returns:
        A kind. That the content is whole is for its reader to say.

    Raises:
        InputMissing: nothing is there, or a folder that is no recording and no export.
        InputEmpty: a file of no bytes, or a folder of no files.
        InputUnsupported: something else; the error names it where it is known.
        InputCorrupt: a compressed file that cannot be unpacked.
        InputError: the system refuses to open it.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _folder(path)
        if not stat.S_ISREG(mode):
            raise InputUnsupported(
                f"{path} is not a regular file.",
                "It is a pipe, a socket or a device, which cannot be read twice.",
                "Write it to a file first, then give that file.",
            )
        head = _head(path)
    except ValueError as error:
        raise _missing(path) from error
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise _missing(path) from error
        raise InputError(
            f"{path} cannot be opened.",
            f"The system says: {error.strerror or error}.",
            "Check its permissions and its name.",
        ) from error
    if not head:
        raise InputEmpty(
            f"{path} is empty.",
            "It has no bytes: its profiler or its download did not finish.",
            "Copy or download it again, or profile again.",
        )
    return _file(path, head)


def _missing(path: Path) -> InputMissing:
    return InputMissing(
        f"{path} does not exist.",
        "There is no file or folder of this name.",
        "Check the name and the working directory.",
    )


def _head(path: Path) -> bytes:
    # Should a pipe have taken the file's place since it was looked at, opening it must not wait.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_HEAD)


def _folder(path: Path) -> InputKind:
    names = os.listdir(path)  # noqa: PTH208 - names, as texts, are what is looked at
    if _MANIFEST in names and _is_ours(path / _MANIFEST):
        return "gtrace"
    if path.name.endswith(".gtrace"):
        # Its manifest is missing or damaged: the reader says which.
        return "gtrace"
    if any(_NSYS_TABLE.fullmatch(name) for name in names):
        return "nsys_parquetdir"
    if not names:
        raise InputEmpty(
            f"{path} is an empty folder.",
            "It holds no file: the export or the recording that should be in it did not finish.",
            "Copy it again, whole, or export or record again.",
        )
    inside = sorted(
        name for name in names if name.endswith((".ncu-rep", ".nsys-rep", ".sqlite", ".gtrace"))
    )
    raise InputMissing(
        f"{path} is a folder.",
        "It is no recording, which would have a manifest in it, and no Parquet export of nsys.",
        f"Give one of the files in it, such as {path / inside[0]}." if inside else _GIVE,
    )


def _is_ours(manifest: Path) -> bool:
    if not manifest.is_file():
        return False
    with manifest.open("rb") as file:
        return _MARKER.search(file.read(_MANIFEST_LIMIT)) is not None


def _file(path: Path, head: bytes) -> InputKind:
    kind = _binary(head)
    if kind is not None:
        return kind
    if head.startswith(_GZIP):
        return _packed_json(path, head)
    for magic, name, command in _PACKED:
        if head.startswith(magic):
            raise InputUnsupported(
                f"{path} is compressed ({name}).",
                "What it holds cannot be read in place.",
                f"Unpack it ({command} {shlex.quote(str(path))}) and give what was in it.",
            )
    text = _text(head)
    if text is None:
        raise InputUnsupported(
            f"{path} is a binary file of no known kind.",
            "Its first bytes are those of no report, export or recording; it may be damaged.",
            _GIVE,
        )
    return _written(path, text)


def _binary(head: bytes) -> InputKind | None:
    for magic, kind in _BINARY:
        # Three bytes of a magic number are a file that was cut, which the reader says.
        if head.startswith(magic) or (3 <= len(head) < len(magic) and magic.startswith(head)):
            return kind
    return None


def _packed_json(path: Path, head: bytes) -> InputKind:
    try:
        inner = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error as error:
        raise InputCorrupt(
            f"{path} is a damaged gzip file.",
            f"It cannot be unpacked: {error}.",
            "Copy or download it again, whole.",
        ) from error
    text = _text(inner)
    if text is not None and _is_trace(text):
        return "kineto"
    kind = _binary(inner)
    what = "nothing that is known" if kind is None else _NAMED[kind]
    raise InputUnsupported(
        f"{path} is compressed (gzip) and holds {what}.",
        "Of compressed files, only traces of the PyTorch profiler are recognised.",
        _GIVE
        if kind is None
        else f"Unpack it (gunzip {shlex.quote(str(path))}) and give what was in it.",
    )


def _text(head: bytes) -> str | None:
    """The bytes as text, None where they are none."""
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    for cut in range(4):
        # A character may have been cut at the end of what was read.
        try:
            text = head[: len(head) - cut].decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if _CONTROL.search(text) else text
    return None


def _is_trace(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[") and _TRACE_JSON.search(text) is not None


def _written(path: Path, text: str) -> InputKind:
    """The kind of a file that holds text."""
    if text.startswith(_LFS):
        raise InputUnsupported(
            f"{path} is a Git LFS pointer, not the file itself.",
            "The repository was cloned without Git LFS, so the content stayed on the server.",
            "Fetch it with git lfs pull, then give it again.",
        )
    if text.lstrip().startswith("<") and _HTML.search(text[:4096]):
        raise InputUnsupported(
            f"{path} is a saved web page (HTML).",
            "The page around the file was downloaded instead of the file.",
            "Download the file itself: on GitHub that is the button Download raw file.",
        )
    if _is_trace(text):
        return "kineto"
    if _NCU_TEXT.search(text):
        return "ncu_csv"
    if text.lstrip()[:1] in ("{", "["):
        raise InputUnsupported(
            f"{path} is JSON, but no profiler's trace.",
            "It has no trace events.",
            _GIVE,
        )
    raise InputUnsupported(
        f"{path} is a text file.",
        "No profiler's report or export is plain text.",
        _GIVE,
    )
