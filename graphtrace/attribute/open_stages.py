# SPDX-License-Identifier: Apache-2.0
"""The stage that is open on a thread at an instant: the path of all its open ranges.

A process that has push/pop ranges in domain `graphtrace` is read through these alone; in any other
the ranges of all domains count, the outermost being the one that began first.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.attribute.keys import Bools, Ints, Lookup, join_keys, pack, where_valid
from graphtrace.attribute.nvtx_stack import Nest
from graphtrace.attribute.paths import StagePaths
from graphtrace.model.arrays import as_numpy, codes_of, valid_of
from graphtrace.model.vocabulary import STAGE_DOMAIN

__all__ = ["Open", "OpenStages"]

FOREVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Open:
    """Answers, one a query.

    Attributes:
        stage: key of the stage, -1 where no range is open.
        root: row (of table `ranges`) of the outermost open range, -1 for none.
        refused: whether ranges that cross each other are open, so that the stage is not known.
    """

    stage: Ints
    root: Ints
    refused: Bools


class OpenStages:
    """Looks up open stages.

    Attributes:
        stage_of_range: for each row of `ranges`, the stage that it is, -1 for none.
        crossing: how many ranges cross another one of their thread and domain.
        lane: thread of each eligible range, dense; `lanes` is how many there are.
    """

    def __init__(self, ranges: pa.Table, paths: StagePaths) -> None:
        self._paths = paths
        given = ranges.column("stage")
        all_given = where_valid(as_numpy(given), valid_of(given)).astype(np.int64)
        rows = _eligible(ranges)
        self.rows = rows
        self.process = as_numpy(ranges.column("process"))[rows].astype(np.int64)
        self.thread = as_numpy(ranges.column("thread"))[rows]
        self.begin = as_numpy(ranges.column("begin_ns"))[rows]
        end = ranges.column("end_ns")
        self.end = np.where(valid_of(end)[rows], as_numpy(end)[rows], FOREVER)
        self._given = all_given[rows]
        domains, domain_words = codes_of(ranges.column("domain"))
        texts, text_words = codes_of(ranges.column("text"))
        self._text = paths.codes(text_words)[texts[rows]] if len(rows) else rows
        # Ties are settled by what the ranges say, never by the order of their rows.
        order = np.lexsort(
            (
                self._given,
                _rank(text_words)[texts[rows]],
                _rank(domain_words)[domains[rows]],
                paths.depth(self._given),  # a stage before those that it encloses
                -self.end,
                self.begin,
            )
        )
        self._order = np.empty(len(rows), dtype=np.int64)
        self._order[order] = np.arange(len(rows))
        lane_key = pack(self.process, self.thread)
        lane_keys, self.lane = np.unique(lane_key, return_inverse=True)
        self.lanes = len(lane_keys)
        self._lane_process, self._lane_thread = self._one_a_lane()
        groups, group = np.unique(pack(self.lane, domains[rows]), return_inverse=True)
        self._nest = Nest.of(group, self.begin, self.end, self._order, len(groups))
        self._groups = _slots(self.lane, group, self.lanes, len(groups))
        self._alone = np.count_nonzero(self._groups >= 0, axis=1) == 1
        self.crossing = int(np.count_nonzero(self._nest.crosses))
        self._stage = np.full(len(rows), -1, dtype=np.int64)
        self._root = np.full(len(rows), -1, dtype=np.int64)
        self._name_simple()
        self._name_joined()
        all_given[rows] = np.where(self._stage >= 0, self._stage, all_given[rows])
        self.stage_of_range = all_given

    def _one_a_lane(self) -> tuple[Ints, Ints]:
        process = np.zeros(self.lanes, dtype=np.int64)
        thread = np.zeros(self.lanes, dtype=np.int64)
        process[self.lane] = self.process
        thread[self.lane] = self.thread
        return process, thread

    def _name_simple(self) -> None:
        """Stages of ranges on threads with one domain: down the tree, one depth at a time."""
        nest = self._nest
        usable = self._alone[self.lane] & ~nest.refused & (nest.depth > 0)
        for depth in range(1, int(nest.depth[usable].max(initial=0)) + 1):
            now = np.flatnonzero(usable & (nest.depth == depth))
            above = nest.parent[now]
            prefix = np.where(above >= 0, self._stage[np.maximum(above, 0)], -1)
            self._stage[now] = self._extended(prefix, now)
            self._root[now] = np.where(above >= 0, self._root[np.maximum(above, 0)], now)

    def _extended(self, prefix: Ints, row: Ints) -> Ints:
        stage = self._given[row].copy()
        named = stage < 0
        stage[named] = self._paths.extend(prefix[named], self._text[row[named]])
        return stage

    def _name_joined(self) -> None:
        """Stages of ranges on threads with several domains, and of ranges that are never open."""
        never = self._nest.depth == 0
        rest = np.flatnonzero(never | ~self._alone[self.lane])
        if not len(rest):
            return
        inner, refused = self._innermost(self.lane[rest], self.begin[rest])
        state, member, stage, root = self._walk(inner)
        # What is open when a range is pushed, up to the range itself, is its path.
        itself = (rest[state] == member) & ~refused[state]
        self._stage[member[itself]] = stage[itself]
        self._root[member[itself]] = root[itself]
        empty = np.flatnonzero(never[rest] & ~refused)
        last = _last(state, stage, len(rest))
        self._stage[rest[empty]] = self._extended(last[empty], rest[empty])

    def _innermost(self, lane: Ints, time: Ints) -> tuple[Ints, Bools]:
        """Innermost open range in every domain of the lane: an array (queries, domains)."""
        slots = self._groups.shape[1]
        inner = np.full((len(lane), slots), -1, dtype=np.int64)
        refused = np.zeros(len(lane), dtype=np.bool_)
        for slot in range(slots):
            group = np.where(lane >= 0, self._groups[np.maximum(lane, 0), slot], -1)
            inner[:, slot], bad = self._nest.query(group, time)
            refused |= bad
        return inner, refused

    def _walk(self, inner: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """All ranges that are open in each state, outermost first, with stage and root of each."""
        states: list[Ints] = []
        members: list[Ints] = []
        state, current = np.nonzero(inner >= 0)[0], inner[inner >= 0]
        while len(state):
            states.append(state)
            members.append(current)
            current = self._nest.parent[current]
            state, current = state[current >= 0], current[current >= 0]
        if not states:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing, nothing, nothing
        state, member = np.concatenate(states), np.concatenate(members)
        order = np.lexsort((self._order[member], state))
        state, member = state[order], member[order]
        heads = np.flatnonzero(np.r_[True, state[1:] != state[:-1]])
        sizes = np.diff(np.r_[heads, len(state)])
        position = np.arange(len(state)) - np.repeat(heads, sizes)
        root = member[np.repeat(heads, sizes)]
        stage = np.full(len(state), -1, dtype=np.int64)
        for depth in range(int(position.max()) + 1):
            now = np.flatnonzero(position == depth)
            prefix = stage[now - 1] if depth else np.full(len(now), -1, dtype=np.int64)
            stage[now] = self._extended(prefix, member[now])
        return state, member, stage, root

    def lane_of(self, process: Ints, thread: Ints) -> Ints:
        """Lane of each (process, thread), -1 where it has no range."""
        known, wanted = join_keys([self._lane_process, self._lane_thread], [process, thread])
        return Lookup.of(known).first(wanted)

    def ordinals(self, root: Ints) -> Ints:
        """Ordinal of each outermost range (as `Open.root`) by process, begin and thread; -1 stays.

        Ranges that nothing asks for are not numbered.
        """
        used = np.unique(root[root >= 0])
        rows = np.searchsorted(self.rows, used)
        ordinal = np.empty(len(used), dtype=np.int64)
        order = np.lexsort(
            (self._order[rows], self.thread[rows], self.begin[rows], self.process[rows])
        )
        ordinal[order] = np.arange(len(used))
        if not len(used):
            return root
        at = np.minimum(np.searchsorted(used, root), len(used) - 1)
        return np.where(root >= 0, ordinal[at], -1)

    def at(self, process: Ints, thread: Ints, time: Ints) -> Open:
        """The stage open on each thread at each time."""
        return self.at_lane(self.lane_of(process, thread), time)

    def at_lane(self, lane: Ints, time: Ints) -> Open:
        """The stage open in each lane at each time."""
        inner, refused = self._innermost(lane, time)
        stage = np.full(len(lane), -1, dtype=np.int64)
        root = np.full(len(lane), -1, dtype=np.int64)
        some = (inner >= 0).any(axis=1) & ~refused if inner.size else np.zeros_like(refused)
        lone = some & (lane >= 0) & self._alone[np.maximum(lane, 0)]
        row = inner[lone, 0]
        stage[lone], root[lone] = self._stage[row], self._root[row]
        many = np.flatnonzero(some & ~lone)
        if len(many):
            key = pack(*inner[many].T)
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            state, _, stages, roots = self._walk(inner[many[first]])
            stage[many] = _last(state, stages, len(first))[inverse]
            root[many] = _last(state, roots, len(first))[inverse]
        root = np.where(root >= 0, self.rows[np.maximum(root, 0)], -1) if len(self.rows) else root
        return Open(stage, root, refused)


def _last(state: Ints, value: Ints, states: int) -> Ints:
    """Value of the last row of each state, -1 for a state without rows."""
    result = np.full(states, -1, dtype=np.int64)
    tails = np.flatnonzero(np.r_[state[1:] != state[:-1], True]) if len(state) else state
    result[state[tails]] = value[tails]
    return result


def _slots(lane: Ints, group: Ints, lanes: int, groups: int) -> Ints:
    """Groups of each lane, as an array (lanes, most groups of a lane) padded with -1."""
    owner = np.zeros(groups, dtype=np.int64)
    owner[group] = lane
    # Groups are numbered by lane first.
    heads = np.searchsorted(owner, np.arange(lanes))
    slot = np.arange(groups) - heads[owner] if groups else owner
    table = np.full((max(lanes, 1), int(slot.max(initial=0)) + 1), -1, dtype=np.int64)
    table[owner, slot] = np.arange(groups)
    return table


def _rank(words: list[str]) -> Ints:
    """Place of each word in sorted order."""
    rank = np.zeros(len(words), dtype=np.int64)
    rank[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    return rank


def _eligible(ranges: pa.Table) -> Ints:
    """Rows of push/pop ranges that count, by the rule on domains."""
    kinds, kind_words = codes_of(ranges.column("kind"))
    stacked = np.isin(kinds, [i for i, word in enumerate(kind_words) if word == "push_pop"])
    domains, domain_words = codes_of(ranges.column("domain"))
    ours = np.isin(domains, [i for i, word in enumerate(domain_words) if word == STAGE_DOMAIN])
    process = as_numpy(ranges.column("process"))
    named = np.unique(process[stacked & ours])
    return np.flatnonzero(stacked & (ours | ~np.isin(process, named)))
