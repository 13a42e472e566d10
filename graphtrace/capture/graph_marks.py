# SPDX-License-Identifier: Apache-2.0
"""Adds the marks of stage borders to a captured graph, just before its capture ends.

Nothing is launched while the program captures: a border only notes on which nodes the next one
would depend. A kernel launched there instead would break captures that are legal without it (a mark
after the event that joins its stream is work that nobody joins, error 904) and shift the program's
own nodes. Nodes added by hand are exempt from that rule (cuda_runtime_api.h, on
cudaStreamGetCaptureInfo), and every edge goes from an older to a newer node, so no cycle can arise.
Standard library only.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from graphtrace.capture.cuda_port import CudaPort, Edges

__all__ = ["MARK_KERNEL", "Border", "Inserted", "Mode", "Place", "insert_marks", "marks_of"]

MARK_KERNEL: Final = "gt_mark"
_ROOT: Final = 1

Mode = Literal["chain", "leaf"]
"""A chained mark holds back what was captured after it; a leaf holds back nothing."""


@dataclass(frozen=True, slots=True)
class Border:
    """A stage border as the capture crossed it.

    Attributes:
        stage: id of the stage.
        begins: whether the stage begins here.
        deps: nodes that the next node of the stream would depend on.
        count: nodes that the graph had.
        edge_data: whether a dependency carries data, as behind a programmatic launch.
    """

    stage: int
    begins: bool
    deps: tuple[int, ...]
    count: int
    edge_data: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where the marks of a graph write: one column of a block each.

    Attributes:
        counter: device address of the counter of replays.
        base: device address of the block.
        rows: rows of the block, a power of two.
        row_bytes: bytes of one row.
        mark_bytes: bytes of a record.
    """

    counter: int
    base: int
    rows: int
    row_bytes: int
    mark_bytes: int = 32

    def params(self, mark: int) -> tuple[tuple[str, int], ...]:
        """Parameters of the kernel for a mark."""
        return (
            ("Q", self.counter),
            ("Q", self.base + mark * self.mark_bytes),
            ("I", self.row_bytes),
            ("I", self.rows - 1),
            ("I", mark),
            ("I", _ROOT if mark == 0 else 0),
        )


@dataclass(frozen=True, slots=True)
class Inserted:
    """The marks that a graph has now.

    Attributes:
        nodes: handle of each mark's node: the root first, one a group of borders, the end last.
        mark_of_border: mark of each border.
        leaves: marks at which a stage begins and that could hold nothing back: their time is that
            of the border, but what follows may have started before.
        programmatic: borders beside a programmatic launch, whose marks are leaves for that reason.
    """

    nodes: tuple[int, ...]
    mark_of_border: tuple[int, ...]
    leaves: frozenset[int]
    programmatic: frozenset[int]


def marks_of(borders: Sequence[Border]) -> tuple[tuple[int, ...], int]:
    """Mark of each border, and how many marks there are in all.

    Borders at one place (the end of a stage and the begin of the next one) share a mark. Mark 0 is
    the root, which counts replays; the last one waits for the whole graph.
    """
    number: dict[tuple[int, tuple[int, ...]], int] = {}
    of_border = []
    for border in borders:
        key = (border.count, tuple(sorted(border.deps)))
        of_border.append(number.setdefault(key, len(number) + 1))
    return tuple(of_border), len(number) + 2


def insert_marks(
    port: CudaPort,
    graph: int,
    borders: Sequence[Border],
    function: int,
    place: Place,
    *,
    mode: Mode = "chain",
    priority: int | None = None,
) -> Inserted:
    """Add one node for each mark of a graph that is being captured.

    Whatever fails half way leaves a graph that is valid: every node that was added can run.

    Args:
        port: the driver.
        graph: handle of the graph; only the thread that captures it may call.
        borders: those crossed, in order.
        function: handle of the kernel.
        place: where the marks write.
        mode: whether marks at which a stage begins hold back what follows.
        priority: of the nodes; None where this driver takes none.

    Raises:
        CudaError: the driver refused; what was added so far stays.
    """
    users = port.nodes(graph)
    edges = port.edges(graph)
    of_border, total = marks_of(borders)
    after = _Successors.of(users, edges)
    root = port.add_kernel(graph, (), function, place.params(0), priority)
    heads = [node for node in users if node not in after.has_before]
    port.add_edges(graph, [root] * len(heads), heads)
    nodes = [root]
    leaves: set[int] = set()
    programmatic: set[int] = set()
    for mark, group in enumerate(_groups(of_border, borders), start=1):
        first = group[0]
        deps = tuple(dict.fromkeys(first.deps)) or (root,)
        node = port.add_kernel(graph, deps, function, place.params(mark), priority)
        nodes.append(node)
        if not any(border.begins for border in group):
            continue
        held, clean = after.born_after(first.count, first.deps)
        if first.edge_data or not clean:
            programmatic.add(mark)
        elif mode == "chain" and held:
            port.add_edges(graph, [node] * len(held), held)
            continue
        leaves.add(mark)
    tails = [node for node in users if node not in after.has_after] or [root]
    nodes.append(port.add_kernel(graph, tails, function, place.params(total - 1), priority))
    return Inserted(tuple(nodes), of_border, frozenset(leaves), frozenset(programmatic))


def _groups(of_border: Sequence[int], borders: Sequence[Border]) -> Iterable[list[Border]]:
    """Borders of each mark, in order of the marks."""
    groups: dict[int, list[Border]] = {}
    for mark, border in zip(of_border, borders, strict=True):
        groups.setdefault(mark, []).append(border)
    return [groups[mark] for mark in sorted(groups)]


@dataclass(frozen=True, slots=True)
class _Successors:
    """Edges by the node that they start from; nodes by their place in the order of creation."""

    place: Mapping[int, int]
    users: "array[int]"
    after: Mapping[int, tuple[tuple[int, int], ...]]
    has_before: frozenset[int]
    has_after: frozenset[int]

    @classmethod
    def of(cls, users: "array[int]", edges: Edges) -> "_Successors":
        after: dict[int, list[tuple[int, int]]] = {}
        for first, second, kind in zip(edges.before, edges.after, edges.kind, strict=True):
            after.setdefault(first, []).append((second, kind))
        return cls(
            {node: place for place, node in enumerate(users)},
            users,
            {node: tuple(targets) for node, targets in after.items()},
            frozenset(edges.after),
            frozenset(edges.before),
        )

    def born_after(self, count: int, deps: tuple[int, ...]) -> tuple[list[int], bool]:
        """Nodes created after a border that wait for what it waits for.

        Returns:
            The nodes, and whether none of the edges to them is programmatic.
        """
        if not deps:
            # Nothing was captured on this stream: what comes next has nothing before it.
            return [n for n in self.users[count:] if n not in self.has_before], True
        found: dict[int, int] = {}
        for dep in deps:
            for node, kind in self.after.get(dep, ()):
                if self.place.get(node, -1) >= count:
                    found[node] = found.get(node, 0) | kind
        return list(found), not any(found.values())
