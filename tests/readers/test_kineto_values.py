# SPDX-License-Identifier: Apache-2.0
"""Numbers and structure out of text, against Python's own reading."""

import json
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.kineto_lex import OBJECT, Strings, paired, tokens_of
from graphtrace.ingest.kineto_values import LATE, NULL, PAD, Patterns, Spans, Text


def spans_of(texts: list[str]) -> tuple[Text, Spans]:
    """The texts, one after the other, between blanks."""
    data, begin, end = b" " * PAD, [], []
    for text in texts:
        begin.append(len(data))
        data += text.encode()
        end.append(len(data))
        data += b","
    return Text(data + b" " * PAD), Spans(np.asarray(begin), np.asarray(end))


WHOLE = st.integers(0, (LATE // 1000) - 2)
TIMES = st.one_of(
    st.builds(lambda n, f: f"{n}.{f:03}", WHOLE, st.integers(0, 999)),
    st.builds(lambda n, s: s + str(n), WHOLE, st.sampled_from(["", "-"])),
    st.builds(lambda n, f: f"{n}.{f}", WHOLE, st.integers(0, 10**18 - 1)),
    st.builds(lambda f: f"0.{'0' * 5}{f}", st.integers(0, 10**12)),
    st.floats(0, 1e14).map(repr),
    st.floats(0, 1e-3).map(repr),
    st.integers(0, 10**12).map(lambda n: f"{n // 2}.{n % 2 * 5}00{'5' * (n % 3)}"),
)


@given(st.lists(TIMES, min_size=1))
def test_times_lose_no_digit(texts: list[str]) -> None:
    text, spans = spans_of(texts)
    exact = [int((Decimal(t) * 1000).to_integral_value(ROUND_HALF_EVEN)) for t in texts]
    assert text.nanoseconds(spans).tolist() == exact


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1661938466265032.123", 1_661_938_466_265_032_123),
        ("919730532259.023", 919_730_532_259_023),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.00150000000000000001", 2),
        ("1e3", 1_000_000),
        ("1.5E-3", 2),
        ("2.5e-3", 2),
        ("4611686018427386.903", 4_611_686_018_427_386_903),
        ("-1.5", -1_500),
    ],
)
def test_times_by_hand(text: str, ns: int) -> None:
    assert Text.nanoseconds(*spans_of([text])).tolist() == [ns]


NO_TIMES = ["NaN", "Infinity", "-Infinity", "null", "true", "", "-", ".", "1.", ".5", "1.2.3", "1e"]
NO_TIMES += ["e5", "0x10", "1_000", "\uff11", "9" * 19, "9" * 40, "1e400", "1e30", "--1", "+1"]
NO_TIMES += ["1-2", "4611686018427387.904", "1" * 5000, "1.5e", "inf", "1e-", '"', "{", "1 2"]


@pytest.mark.parametrize("bad", NO_TIMES)
def test_what_is_no_time(bad: str) -> None:
    text, spans = spans_of(["1.5", bad, "2"])
    assert text.nanoseconds(spans).tolist() == [1_500, NULL, 2_000]


INTEGERS = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.integers(-(10**20), 10**20),
    st.integers(2**63 - 5, 2**63 + 5),
    st.integers(10**17, 10**19),
)


@given(st.lists(INTEGERS, min_size=1))
def test_integers(values: list[int]) -> None:
    text, spans = spans_of([str(value) for value in values])
    expected = [value if abs(value) < 2**63 else NULL for value in values]
    assert text.integers(spans).tolist() == expected


NO_INTEGERS = ["", "-", "1.0", "1e3", "null", "\uff17", "1 2", "a", "0x1", "9" * 30]


@pytest.mark.parametrize("bad", NO_INTEGERS)
def test_what_is_no_integer(bad: str) -> None:
    text, spans = spans_of(["7", bad, "-8"])
    assert text.integers(spans).tolist() == [7, NULL, -8]


@given(st.lists(st.binary(max_size=30).filter(lambda word: b'"' not in word), max_size=40))
def test_words(words: list[bytes]) -> None:
    data, begin, end = b" " * PAD, [], []
    for word in words:
        begin.append(len(data) + 1)
        data += b'"' + word + b'"'
        end.append(len(data) - 1)
    codes, found = Text(data + b" " * PAD).words(Spans(np.asarray(begin), np.asarray(end)))
    assert [found[code] for code in codes.tolist()] == words
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("fold", [False, True])
@given(word=st.text("abcdefgXYZ _", max_size=26))
def test_patterns(word: str, fold: bool) -> None:
    patterns = ("a", "cat", "abcdefgh", "abcdefgha", "abcdefgh_abcdefgh", "registers per thread")
    text, spans = spans_of([word, *patterns])
    codes = text.codes(spans, Patterns.of(patterns, fold=fold)).tolist()
    folded = [ord(c) | 32 if fold else ord(c) for c in word]
    same = [
        i
        for i, p in enumerate(patterns, 1)
        if folded == [ord(c) | 32 if fold else ord(c) for c in p]
    ]
    assert codes == [same[0] if same else 0, *range(1, len(patterns) + 1)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\{}[]:,é\n', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('k"\\{:', max_size=3), inner)
    ),
)


@given(VALUES, st.integers(0, 200), st.sampled_from([None, 1]))
def test_strings_are_where_json_says(value: object, lead: int, indent: int | None) -> None:
    text = (" " * lead + json.dumps(value, indent=indent, ensure_ascii=False)).encode()
    strings = Strings(text)
    inside, flags, escaped = False, [], False
    for byte in text:
        quote = byte == ord('"') and not escaped
        escaped = byte == ord("\\") and not escaped
        inside = inside ^ quote
        flags.append(inside)
    bits = np.unpackbits(strings.inside, count=len(text), bitorder="little")
    assert bits.astype(bool).tolist() == flags
    assert not strings.ends_inside
    tokens = tokens_of(strings, np.ones(len(text), dtype=np.bool_))
    assert paired(tokens.kind, tokens.depth)
    outside = [b for b, flag in zip(text, flags, strict=True) if not flag]
    assert np.count_nonzero(tokens.kind == OBJECT) == outside.count(ord("{"))


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_text_may_be_cut_anywhere(text: bytes, cut: int) -> None:
    head, tail = text[:cut].rstrip(b"\\"), text[len(text[:cut].rstrip(b"\\")) :]
    whole, first = Strings(text), Strings(head)
    second = Strings(tail, inside=first.ends_inside)
    brackets = [
        part.outside(part.bytes == ord("{")) + shift
        for part, shift in ((first, 0), (second, len(head)))
    ]
    assert np.concatenate(brackets).tolist() == whole.outside(whole.bytes == ord("{")).tolist()
    assert second.ends_inside == whole.ends_inside


@pytest.mark.parametrize("text", ["{]", "[}", "{[}]", '{"a":[{"b":1]}'])
def test_brackets_of_different_kinds_do_not_match(text: str) -> None:
    tokens = tokens_of(Strings(text.encode()), np.ones(len(text), dtype=np.bool_))
    assert not paired(tokens.kind, tokens.depth)
