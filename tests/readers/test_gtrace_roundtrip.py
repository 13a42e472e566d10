# SPDX-License-Identifier: Apache-2.0
"""What is recorded is what is read: a plain simulation beside the real path, by property."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from graphtrace.capture.recorder import Recorder, ThreadState
from graphtrace.capture.writer import Writer
from graphtrace.ingest.gtrace import read
from graphtrace.model.assembly import assemble
from graphtrace.model.recording import FORMAT, Manifest, write_recording

NAMES = st.sampled_from(["a", "b", "c/d", "é\n", "x" * 40])
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["push", "pop", "batch", "cross"]), NAMES),
    max_size=60,
)


@dataclass
class Thread:
    stack: list[tuple[int, str]] = field(default_factory=list)
    batch: tuple[int, int | None] | None = None


@dataclass
class Expected:
    """What a person would write down on paper."""

    ranges: list[tuple[int, str, bool, str]] = field(default_factory=list)
    batches: list[tuple[int, int | None]] = field(default_factory=list)


class Simulation:
    """Runs steps on a real recorder, as if on several threads, and on paper."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.threads = [Thread() for _ in range(3)]
        self.states = [ThreadState(100 + n) for n in range(3)]
        self.expected = Expected()
        self.clock = 1 << 60
        self.owners = 0

    def step(self, number: int, what: str, name: str) -> None:
        self.recorder._local.state = self.states[number]
        thread = self.threads[number]
        self.clock += 1
        if what == "push":
            self.owners += 1
            self.recorder.begin(self.owners, name, "code")
            path = "/".join([*(path for _, path in thread.stack[-1:]), *name.split("/")])
            thread.stack.append((self.owners, path))
        elif what in ("pop", "cross") and thread.stack:
            at = 0 if what == "cross" else len(thread.stack) - 1
            crossed = at < len(thread.stack) - 1
            owner, path = thread.stack.pop(at)
            self.recorder.end(owner, self.clock, nested=False)
            kind = "start_end" if crossed else "push_pop"
            self.expected.ranges.append((100 + number, path, True, kind))
        elif what == "batch":
            self.batch(thread, number)

    def batch(self, thread: Thread, number: int) -> None:
        if thread.batch is None:
            facts = {"valid": number or None, "captured": None, "sizes": None, "label": None}
            ident = self.recorder.open_batch(facts)
            thread.batch = (ident, number or None)
        else:
            self.recorder.close_batch(thread.batch[0], self.clock)
            self.expected.batches.append((100 + number, thread.batch[1]))
            thread.batch = None

    def paper(self) -> Expected:
        for number, thread in enumerate(self.threads):
            for _, path in thread.stack:
                self.expected.ranges.append((100 + number, path, False, "push_pop"))
        return self.expected


@given(STEPS)
def test_what_is_recorded_is_read(steps: list[tuple[int, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "raw").mkdir()
        manifest = {"format": FORMAT, "format_version": 1}
        (home / "manifest.json").write_text(json.dumps(manifest))
        writer = Writer(str(home / "raw"), "1-1", 2)
        writer.line(type="hello", layout=1, pid=1, parent=0, python="3", begin_ns=0)
        simulation = Simulation(Recorder(writer, 2, ()))
        for step in steps:
            simulation.step(*step)
        expected = simulation.paper()
        raw = read(home).tables
        write_recording(home, Manifest(), assemble(home / "raw").tables)
        tables = read(home).tables
    for name, table in raw.tables.items():
        assert tables.get(name).to_pylist() == table.to_pylist()
    paths = dict(
        zip(
            *(tables.get("stages").column(c).to_pylist() for c in ("stage", "path")),
            strict=True,
        )
    )
    found = [
        (row["thread"], paths[row["stage"]], row["end_ns"] is not None, row["kind"])
        for row in tables.get("ranges").to_pylist()
    ]
    assert sorted(found) == sorted(expected.ranges)
    batches = [(row["thread"], row["valid_tokens"]) for row in tables.get("batches").to_pylist()]
    assert sorted(batches, key=str) == sorted(expected.batches, key=str)
    marks = tables.get("marks")
    ends = sum(end for _, _, end, _ in found)
    still_open = sum(thread.batch is not None for thread in simulation.threads)
    assert marks.num_rows == len(found) + ends + 2 * len(batches) + still_open
    refused = tables.get("quarantine").to_pylist()
    assert sum(row["count"] for row in refused) == still_open
