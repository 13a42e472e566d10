# SPDX-License-Identifier: Apache-2.0
"""What NVTX rows of an nsys export say beside their times: texts, domains, categories, payloads."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphtrace.ingest.nsys_cells import Column
from graphtrace.ingest.nsys_frame import Frame
from graphtrace.ingest.sanity import Quarantine

__all__ = [
    "CATEGORY",
    "DOMAIN",
    "PAYLOADS",
    "category_names",
    "domain_names",
    "payload_columns",
    "payloads",
    "texts_of",
]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CATEGORY: Final = 33
"""`eventType` of a row that names a category."""
DOMAIN: Final = 75
"""`eventType` of a row that names a domain."""
_INTEGERS: Final = ("int64Value", "uint64Value", "int32Value", "uint32Value")
_REALS: Final = ("doubleValue", "floatValue")
PAYLOADS: Final = (
    *(Column(name) for name in _INTEGERS),
    *(Column(name, real=True) for name in _REALS),
)
"""Members of the payload's union; a row has at most one."""
_WHOLE, _REAL = "payload_int", "payload_real"
_PROCESS_NUMBER: Final = 0x0000_FFFF_FF00_0000
"""Bits of a global thread id that a domain belongs to: the process, without the machine."""


def payloads(frame: Frame, quarantine: Quarantine) -> Frame:
    """The rows with their payload as one integer and one real column, where there is any.

    SQLite has no unsigned integers: nsys stores those above 2**63 - 1 as negative ones. They fit no
    column of the model; such a payload is counted as refused and left out, its range stays.
    """
    whole, whole_known = _united(frame, _INTEGERS, frame.get)
    for name in ("uint64Value", "uint32Value"):
        odd = frame.known(name) & (frame.get(name) < 0)
        if odd.any():
            least = int(frame.get(name)[odd].astype(np.uint64).min())
            reason = f"{name} is above the largest integer: the range is kept without it"
            quarantine.add("ranges", reason, int(np.count_nonzero(odd)), str(least))
            whole_known = whole_known & ~odd
    real, real_known = _united(frame, _REALS, frame.reals.__getitem__)
    for name in (*_INTEGERS, *_REALS):
        for part in (frame.values, frame.reals, frame.valid):
            part.pop(name, None)
    if whole_known.any():
        frame.values[_WHOLE], frame.valid[_WHOLE] = whole, whole_known
    if real_known.any():
        frame.reals[_REAL], frame.valid[_REAL] = real, real_known
    return frame


def _united(frame: Frame, names: Sequence[str], values: Any) -> tuple[npt.NDArray[Any], Flags]:
    """Values of the columns that have one, and which rows have one."""
    have = [name for name in names if frame.known(name).any()]
    none = np.broadcast_to(np.bool_(False), frame.rows)  # noqa: FBT003 - a value
    if not have:
        return np.broadcast_to(np.int64(0), frame.rows), none
    picked, known = values(have[0]), frame.known(have[0])
    for name in have[1:]:
        picked = np.where(known, picked, values(name))
        known = known | frame.known(name)
    return picked, known


def payload_columns(
    frame: Frame,
) -> tuple[dict[str, tuple[npt.NDArray[Any], pa.DataType, Flags]], tuple[npt.NDArray[Any], ...]]:
    """Payloads by column of the model, and what orders rows that are equal otherwise."""
    found: dict[str, tuple[npt.NDArray[Any], pa.DataType, Flags]] = {}
    if _WHOLE in frame.values:
        found[_WHOLE] = frame.get(_WHOLE), pa.int64(), frame.known(_WHOLE)
    if _REAL in frame.reals:
        found[_REAL] = frame.reals[_REAL], pa.float64(), frame.known(_REAL)
    ties = [(np.where(known, values, 0), known) for values, _, known in found.values()]
    return found, tuple(key for pair in ties for key in pair)


def texts_of(frame: Frame, strings: dict[int, str]) -> tuple[Ints, list[str]]:
    """Message of each row: its own text, else the registered string, else empty."""
    own = frame.words.get("text", [])
    words = sorted({"", *own, *strings.values()})
    place = {word: position for position, word in enumerate(words)}
    ids, inverse = np.unique(frame.get("textId"), return_inverse=True)
    by_id = np.asarray([place[strings.get(n, "")] for n in ids.tolist()] or [0], dtype=np.int64)
    by_text = np.asarray([place[word] for word in own] or [0], dtype=np.int64)
    registered = by_id[inverse] if frame.rows else frame.get("textId")
    codes = np.where(frame.known("textId"), registered, place[""])
    plain = by_text[frame.get("text")] if own else codes
    return np.where(frame.known("text"), plain, codes), words


def domain_names(
    frame: Frame, definitions: Frame | None, strings: dict[int, str]
) -> tuple[Ints, list[str]]:
    """Domain of each row by (domain id, process); 0 is the default one, whose name is empty.

    A domain whose creation was not recorded is called by its number, as in `#3`.
    """
    known: dict[tuple[int, ...], str] = {}
    for key, word in _defined(definitions, strings, DOMAIN, ("domainId",)):
        known.setdefault(key, word)
    number = np.where(frame.known("domainId"), frame.get("domainId"), 0)
    codes, keys = _coded((frame.get("globalTid") & _PROCESS_NUMBER, number))
    return _worded(
        codes, [known.get(key, f"#{key[1]}") if key[1] else "" for key in keys], frame.rows
    )


def category_names(
    frame: Frame, definitions: Frame | None, strings: dict[int, str]
) -> tuple[Ints, list[str]]:
    """Category of each row by (process, domain, number), -1 where it has none.

    A category that was named twice has its last name; one that was not is called by its number.
    """
    have = frame.known("category") & (frame.get("category") != 0)
    if not have.any():
        return np.broadcast_to(np.int64(-1), frame.rows), []
    known = dict(_defined(definitions, strings, CATEGORY, ("domainId", "category")))
    number = np.where(have, frame.get("category"), 0)
    domain = np.where(frame.known("domainId"), frame.get("domainId"), 0)
    codes, keys = _coded((frame.get("globalTid") & _PROCESS_NUMBER, domain, number))
    worded, words = _worded(codes, [known.get(key, f"#{key[2]}") for key in keys], frame.rows)
    return np.where(have, worded, -1), words


def _defined(
    definitions: Frame | None, strings: dict[int, str], kind: int, columns: Sequence[str]
) -> list[tuple[tuple[int, ...], str]]:
    """Names that were given, in order of time, by process and the columns."""
    if definitions is None:
        return []
    frame = definitions.take(definitions.get("eventType") == kind)
    codes, words = texts_of(frame, strings)
    owner = frame.get("globalTid") & _PROCESS_NUMBER
    parts = [np.where(frame.known(name), frame.get(name), 0).tolist() for name in columns]
    rows = zip(frame.get("start").tolist(), codes.tolist(), owner.tolist(), *parts, strict=True)
    return [(tuple(key), words[code]) for _, code, *key in sorted(rows)]


def _coded(columns: Sequence[Ints]) -> tuple[Ints, list[tuple[int, ...]]]:
    """Each row's place among the different rows, and those."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    keys: list[tuple[int, ...]] = [()]
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        both, codes = np.unique(codes * max(len(values), 1) + inverse, return_inverse=True)
        listed = values.tolist()
        keys = [(*keys[n // len(listed)], listed[n % len(listed)]) for n in both.tolist()]
    return codes, keys


def _worded(codes: Ints, names: Sequence[str], rows: int) -> tuple[Ints, list[str]]:
    """Codes into the different names, in order."""
    words = sorted(set(names))
    place = {word: position for position, word in enumerate(words)}
    table = np.asarray([place[name] for name in names] or [0], dtype=np.int64)
    return (table[codes] if rows else codes), words
