# SPDX-License-Identifier: Apache-2.0
"""The protocol buffer wire format, as far as a report's framing needs it.

NVIDIA publishes the messages of a report as `.proto` files in the folder `extras/FileFormat` of
Nsight Compute. Field numbers named in `ncu_frames` are those; unknown fields are stepped over, as
the wire format asks of every reader.
"""

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["BYTES", "FIXED32", "FIXED64", "VARINT", "Damage", "check_metric", "fields", "varint"]

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_VALUE_WIRE: Final[Mapping[int, int]] = {1: BYTES, 2: FIXED32, 3: FIXED64, 4: VARINT, 5: VARINT}
"""Fields of a metric value: string, float, double, uint32, uint64."""


class Damage(Exception):
    """Bytes that contradict the format.

    Args:
        why: half a sentence that can follow "its block 3".
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer and where it ends.

    Raises:
        Damage: it runs over `end` or is longer than 64 bits.
    """
    result = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > 63:
            break
    raise Damage("holds a number that does not end")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of one message, in the order of the file.

    Args:
        data: bytes that hold the message.
        at: where the message begins.
        end: where it ends.

    Yields:
        Field number, wire type, and for an integer its value and 0, for anything else where its
        bytes begin and end.

    Raises:
        Damage: a field number is 0, a wire type is not one, or a field reaches over the end.
    """
    while at < end:
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Damage("holds a field without a number")
        if wire == VARINT:
            value, at = varint(data, at, end)
            yield number, wire, value, 0
            continue
        if wire == BYTES:
            length, at = varint(data, at, end)
        elif wire == FIXED64:
            length = 8
        elif wire == FIXED32:
            length = 4
        else:
            raise Damage(f"holds a field of no known type ({wire})")
        if length > end - at:
            raise Damage("holds a field that is longer than what holds it")
        yield number, wire, at, at + length
        at += length


def check_metric(data: bytes, at: int, end: int) -> int:
    """Check one metric of a result, and return the number of its name in the string table.

    Raises:
        Damage: it has no name, or its value is of no known kind.
    """
    name = -1
    for number, wire, first, last in fields(data, at, end):
        if number == 1:
            if wire != VARINT:
                raise Damage("holds a metric whose name is no number")
            name = first
        elif number == 2:
            if wire != BYTES:
                raise Damage("holds a metric whose value is no value")
            _check_value(data, first, last)
        elif number == 3 and wire != BYTES:
            raise Damage("holds a metric whose instance is no instance")
    if name < 0:
        raise Damage("holds a metric without a name")
    return name


def _check_value(data: bytes, at: int, end: int) -> None:
    known = at == end
    for number, wire, _, _ in fields(data, at, end):
        if number in _VALUE_WIRE:
            known = True
            if wire != _VALUE_WIRE[number]:
                raise Damage("holds a metric value of the wrong type")
    if not known:
        raise Damage("holds a metric value of no known kind")
