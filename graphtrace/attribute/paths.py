# SPDX-License-Identifier: Apache-2.0
"""Stages by path: names of nested ranges joined by `/`, one key a path."""

from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Ints, pack, where_valid
from graphtrace.model.arrays import (
    as_numpy,
    codes_of,
    encode,
    make_table,
    numbers,
    strings,
    valid_of,
)

__all__ = ["StagePaths"]

UNNAMED: Final = "(unnamed)"
"""Path element of a range without text."""


class StagePaths:
    """The stages of a trace, and those that its ranges add.

    Keys of stages that the trace has stay as they are. New ones are numbered by path when the table
    is made, so that the order of rows does not show.
    """

    def __init__(self, stages: pa.Table) -> None:
        self._given = stages
        self._words: list[str] = []
        self._codes: dict[str, int] = {}
        paths = stages.column("path").to_pylist()
        keys = as_numpy(stages.column("stage")).tolist()
        self._key: dict[str, int] = dict(zip(paths, keys, strict=True))
        self._path: dict[int, str] = dict(zip(keys, paths, strict=True))
        self._next = max(keys, default=-1) + 1
        self._parent: dict[int, int] = {}
        self._name: dict[int, str] = {}

    def depth(self, stage: Ints) -> Ints:
        """How many stages enclose each stage that the trace has; 0 for -1."""
        size = self._next + 1  # the last one, which -1 means too, stands for "no stage"
        above = np.full(size, -1, dtype=np.int64)
        parent = self._given.column("parent")
        above[as_numpy(self._given.column("stage"))] = where_valid(
            as_numpy(parent), valid_of(parent)
        )
        depth = np.zeros(len(stage), dtype=np.int64)
        current = above[stage]
        # A path has fewer elements than there are stages, whatever `parent` says.
        for _ in range(size):
            if not (current >= 0).any():
                break
            depth += current >= 0
            current = above[current]
        return depth

    def codes(self, words: list[str]) -> Ints:
        """Codes of path elements, for `extend`."""
        codes = [self._codes.setdefault(word or UNNAMED, len(self._codes)) for word in words]
        self._words = list(self._codes)
        return np.asarray(codes, dtype=np.int64)

    def extend(self, prefix: Ints, code: Ints) -> Ints:
        """Stage of each pair of an enclosing stage (-1 for none) and a path element."""
        if not len(prefix):
            return np.zeros(0, dtype=np.int64)
        _, first, inverse = np.unique(pack(prefix, code), return_index=True, return_inverse=True)
        keys = [
            self._intern(above, self._words[word])
            for above, word in zip(prefix[first].tolist(), code[first].tolist(), strict=True)
        ]
        return np.asarray(keys, dtype=np.int64)[inverse]

    def _intern(self, prefix: int, word: str) -> int:
        path = word if prefix < 0 else f"{self._path[prefix]}/{word}"
        key = self._key.get(path)
        if key is None:
            key = self._key[path] = self._next
            self._path[key] = path
            self._parent[key] = prefix
            self._name[key] = word
            self._next += 1
        return key

    def finish(self) -> tuple[pa.Table, Ints]:
        """The table of stages, and the final key by the key that `extend` gave."""
        old = len(self._path) - len(self._name)
        first_new = self._next - len(self._name)
        fresh = sorted(self._name, key=lambda key: self._path[key])
        final = np.arange(self._next, dtype=np.int64)
        final[fresh] = first_new + np.arange(len(fresh))
        if not fresh:
            return self._given, final
        given = self._given
        codes, words = codes_of(given.column("origin"))
        origins = [words[code] for code in codes.tolist()]
        above = np.asarray([self._parent[key] for key in fresh], dtype=np.int64)
        above = np.where(above >= 0, final[np.maximum(above, 0)], -1)
        kept = given.column("parent")
        parents = np.r_[where_valid(as_numpy(kept), valid_of(kept)), above]
        table = make_table(
            "stages",
            old + len(fresh),
            {
                "stage": np.r_[as_numpy(given.column("stage")), final[fresh]],
                "parent": numbers(parents, pa.int32(), parents >= 0),
                "path": strings(given.column("path").to_pylist() + [self._path[k] for k in fresh]),
                "name": strings(given.column("name").to_pylist() + [self._name[k] for k in fresh]),
                "origin": encode(origins + ["nvtx"] * len(fresh)),
            },
        )
        return table, final

    @property
    def path_by_key(self) -> dict[int, str]:
        """Path of every key, as `extend` gave them."""
        return self._path
