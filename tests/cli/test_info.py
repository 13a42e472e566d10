# SPDX-License-Identifier: Apache-2.0
"""`graphtrace info` by the real command: what files hold, what they lack, what cannot be read."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from graphtrace.ingest.ncu_rep import command_lines
from graphtrace.testing import Copy, Kernel, NsysExport, Stage, planted_vit

CANARY = b"GT_CANARY"
RECORD = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run PROGRAM"


def graphtrace(*args, **more):
    return subprocess.run(
        [sys.executable, "-m", "graphtrace", *map(str, args)],
        capture_output=True,
        timeout=300,
        check=False,
        **more,
    )


def closed(schema):
    """The schema with every object closed: a key that it does not describe is an error."""
    if isinstance(schema, dict):
        made = {key: closed(value) for key, value in schema.items()}
        if "properties" in made:
            made["additionalProperties"] = False
        return made
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="session")
def schema():
    text = (resources.files("graphtrace.report") / "schema" / "info-1.json").read_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    return jsonschema.Draft202012Validator(closed(json.loads(text)))


@pytest.fixture
def info(schema):
    """Describe files as JSON, checked against the schema."""

    def run(*paths, code=0):
        done = graphtrace("info", *paths, "--format", "json")
        assert done.returncode == code, done.stderr.decode()
        assert CANARY not in done.stdout + done.stderr
        document = json.loads(done.stdout, parse_constant=pytest.fail)
        schema.validate(document)
        return document

    return run


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    path = tmp_path_factory.mktemp("vit") / "run.sqlite"
    planted_vit(path, replays=30)
    return path


def gaps(told):
    return {gap["what"]: gap for gap in told["missing"]}


def without(vit, tmp_path, *tables):
    """A copy of an export without these tables."""
    path = tmp_path / "less.sqlite"
    shutil.copy(vit, path)
    with closing(sqlite3.connect(path)) as connection:
        for table in tables:
            connection.execute(f"DROP TABLE {table}")
        connection.commit()
    return path


def readable(data_dir):
    kinds = ("ncu", "ncu_csv", "nsys", "kineto")
    found = sorted(path for kind in kinds for path in (data_dir / kind).iterdir())
    return [path for path in found if path.name != "lfs_pointer.ncu-rep"]


def test_every_real_file_is_described(data_dir, info):
    paths = readable(data_dir)
    told = info(*paths)
    assert [entry["path"] for entry in told["files"]] == [str(path) for path in paths]
    assert told["errors"] == []
    for entry in told["files"]:
        assert entry["size_bytes"] > 0
        assert entry["missing"]
        assert entry["span"] is None or entry["span"]["length_ns"] >= 0
        assert entry["tables"]["processes"] == len(entry["processes"])
        # Nothing is said twice: neither a reason nor a command beside its sentence.
        said = [gap["why"] for gap in entry["missing"]] + entry["warnings"]
        assert len(set(said)) == len(said)
        for sentence in said:
            assert "nsys profile" not in sentence
            assert "There is no" not in sentence or sentence not in entry["warnings"]
        assert not [w for w in entry["warnings"] if "recorded as a whole" in w or "ids of the" in w]


def test_the_text_of_every_real_file_fits_and_hides_its_host(data_dir):
    done = graphtrace("info", *readable(data_dir), env={"COLUMNS": "80", "PATH": "/usr/bin"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert CANARY not in done.stdout
    for line in done.stdout.decode().splitlines():
        command = line.startswith(("    $ ", "    torch.", str(data_dir)))
        assert len(line) <= 80 or command, line


# Figures of data/INDEX.md.
FIGURES = {
    "nsys/graph_granularity_rtx3060_2025.5.sqlite": {"replays": 2, "opaque_replays": 2},
    "nsys/jacobi.sqlite": {"replays": 0, "kernels": 1001},
    "nsys/power_iteration_2025.3.sqlite": {"replays": 0, "kernels": 3689},
    "nsys/h100_2gpu_2026.2.sqlite": {"kernels": 3442, "processes": 2},
    "kineto/v100_12_replays_x_429_kernels.json.gz": {"replays": 12, "per": (315, 429)},
    "kineto/rtx5080_7_replays_x_34_kernels.json": {"replays": 7, "per": (34, 34)},
    "kineto/vllm_piecewise_25_x_15_mi300x.json.gz": {"replays": 25, "per": (4, 15)},
    "ncu/ncar_v100_2022.2.ncu-rep": {"results": 5, "metrics": 676},
    "ncu/cutlass_nvtx_a100_2024.1.ncu-rep": {"results": 2, "metrics": 1220},
}


@pytest.mark.parametrize("name", FIGURES)
def test_known_figures(data_dir, info, name):
    (told,) = info(data_dir / name)["files"]
    for key, value in FIGURES[name].items():
        if key in ("results", "metrics"):
            assert told["ncu"][key] == value
        elif key == "processes":
            assert len(told["processes"]) == value
        elif key == "kernels":
            assert told["activities"]["kernel"] == value
        elif key == "per":
            assert tuple(told["graphs"]["kernels_per_replay"].values()) == value
        else:
            assert told["graphs"][key] == value


def test_replays_are_those_of_the_analysis(data_dir, info, vit):
    paths = [vit, *(path for path in readable(data_dir) if path.parent.name in ("nsys", "kineto"))]
    for path, told in zip(paths, info(*paths)["files"], strict=True):
        done = graphtrace("analyze", path, "--format", "json")
        if done.returncode == 0:
            replays = json.loads(done.stdout)["replays"]
            assert told["graphs"]["replays"] == (0 if replays is None else replays["count"]), path


def test_launches_that_are_missing_are_those_of_the_analysis(data_dir, info):
    paths = [path for path in readable(data_dir) if path.parent.name in ("nsys", "kineto")]
    seen = 0
    for told, path in zip(info(*paths)["files"], paths, strict=True):
        done = graphtrace("analyze", path, "--format", "json")
        if done.returncode:
            continue
        lost = json.loads(done.stdout)["coverage"]["reasons"].get("launch not recorded", 0)
        gap = gaps(told).get("launches of all work")
        assert (gap is None) == (lost == 0), path
        seen += lost > 0
        assert gap is None or f" launched {lost:,} of " in gap["why"], path
    assert seen >= 2


def test_files_without_gpu_work_are_described(data_dir, info):
    names = ("nsys/dynamicvit.sqlite", "nsys/weatherbench2.sqlite", "kineto/cpu_only.json.gz")
    for told in info(*(data_dir / name for name in names))["files"]:
        (gap,) = told["missing"]
        assert gap["what"] == "work of the GPU"
        assert gap["command"].startswith(("nsys profile", "torch.profiler.profile"))
        assert told["activities"] is None
        assert told["graphs"] is None


def test_a_synthetic_export(vit, info):
    (told,) = info(vit)["files"]
    assert told["synthetic"]
    assert told["kind"] == "nsys_sqlite"
    assert told["origin"] is None
    assert told["size_bytes"] == vit.stat().st_size
    assert told["graphs"]["replays"] == 30
    assert told["graphs"]["kernels_per_replay"]["min"] > 10
    assert told["tables"]["ncu_results"] is None
    assert told["stages"] is None
    assert {domain["domain"] for domain in told["nvtx"]} >= {"graphtrace"}
    assert list(gaps(told)) == ["metrics of the kernels"]
    assert "Synthetic" in graphtrace("info", vit).stdout.decode()


@pytest.mark.parametrize(
    ("table", "what", "command"),
    [
        ("NVTX_EVENTS", "ranges", RECORD),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "API calls", RECORD),
        ("TARGET_INFO_GPU", "size of the device", None),
        ("CUDA_GRAPH_NODE_EVENTS", "creation of the graph nodes", RECORD),
    ],
)
def test_an_absent_table_is_missing_once(vit, tmp_path, info, table, what, command):
    path = without(vit, tmp_path, table)
    (told,) = info(path)["files"]
    assert gaps(told)[what]["command"] == command
    assert told["warnings"] == []
    text = graphtrace("info", path).stdout.decode()
    assert text.count(gaps(told)[what]["why"][:25]) == 1
    assert command is None or text.count(f"$ {command}") == 1


def test_launches_without_work_and_opaque_replays(tmp_path, info):
    for form, what in (("opaque", "kernels inside the replays"), ("bare", "work of launched")):
        path = tmp_path / f"{form}.sqlite"
        export = NsysExport("2025")
        process = export.process(7)
        process.eager([Kernel("void f()", 2000), Copy(64, 900, kind=1)])
        graph = process.graph([Stage("a", [Kernel("void g()", 3000)])])
        graph.replays(4, 9000)
        export.write(path)
        with closing(sqlite3.connect(path)) as connection:
            rows = "FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL"
            if form == "opaque":
                connection.execute(
                    "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT start, end, deviceId, "
                    "contextId, streamId, correlationId, globalPid, 1 AS graphId, "
                    f"2 AS graphExecId {rows}"
                )
            connection.execute(f"DELETE {rows}")
            connection.commit()
        (told,) = info(path)["files"]
        (found,) = [gap for gap in told["missing"] if gap["what"].startswith(what)]
        assert found["command"] == RECORD
        assert told["warnings"] == []
        if form == "opaque":
            assert told["graphs"]["opaque_replays"] == told["graphs"]["replays"] == 4
            assert told["graphs"]["kernels_per_replay"] is None


def test_how_ncu_measured_is_said(data_dir, info):
    (flushed,) = info(data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep")["files"]
    (mode,) = flushed["ncu"]["modes"]
    assert mode == {
        "cache": "flushed",
        "clock": "base",
        "replay_mode": "kernel",
        "results": 5,
        "passes": {"min": 73, "max": 74},
    }
    gap = gaps(flushed)["caches and clocks as the program has them"]
    assert "--cache-control none" in gap["command"]
    assert "flushed before all 5 results" in gap["why"]
    (printed,) = info(data_dir / "ncu_csv" / "gemm_tiled.csv")["files"]
    assert printed["ncu"]["modes"][0]["passes"] is None
    assert gaps(printed)["how it was measured"]["command"] == "graphtrace info REPORT.ncu-rep"


def test_work_is_said_kernels_first_in_words_of_one_kind(vit):
    done = graphtrace("info", vit).stdout.decode()
    work = next(line for line in done.splitlines() if line.startswith("  work "))
    kinds = [part.split()[-1] for part in work.split(", ")]
    assert kinds == ["kernels", "copies", "memsets"]


def test_an_exported_recording_says_what_it_was(vit, data_dir, tmp_path, info):
    report = data_dir / "ncu" / "ncar_v100_2022.2.ncu-rep"
    for source in (vit, report):
        target = tmp_path / f"{source.name}.gtrace"
        assert graphtrace("export", source, "-o", target).returncode == 0
        before, after = info(source, target)["files"]
        assert after["kind"] == "gtrace"
        assert after["origin"] == {"kind": before["kind"], "name": source.name}
        assert after["size_bytes"] == sum(path.stat().st_size for path in target.iterdir())
        for key in before.keys() - {"path", "kind", "origin", "size_bytes"}:
            assert after[key] == before[key], key


def test_a_recording(tmp_path, info):
    program = tmp_path / "program.py"
    program.write_text("import graphtrace\nwith graphtrace.batch(), graphtrace.stage('a'): pass\n")
    run = tmp_path / "run.gtrace"
    done = graphtrace("capture", "-o", run, "--", sys.executable, program)
    assert done.returncode == 0, done.stderr
    (told,) = info(run)["files"]
    assert told["tool"] == "graphtrace capture"
    assert told["stages"] == [{"stage": "a", "origin": "code"}]
    assert told["tables"]["batches"] == 1
    assert told["tables"]["activities"] is None
    found = gaps(told)
    assert "graphtrace capture -- PROGRAM" in found["work of the GPU"]["command"]
    assert "graphtrace.batch(valid_tokens" in found["tokens of the batches"]["why"]
    assert not [w for w in told["warnings"] if w in found["work of the GPU"]["why"]]


def test_others_are_described_where_one_cannot_be_read(vit, tmp_path, info):
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"")
    told = info(vit, broken, vit, tmp_path / "nowhere", code=3)
    assert [entry["path"] for entry in told["files"]] == [str(vit), str(vit)]
    assert [(entry["path"], entry["exit"]) for entry in told["errors"]] == [
        (str(broken), 3),
        (str(tmp_path / "nowhere"), 2),
    ]
    text = graphtrace("info", broken, vit)
    assert text.returncode == 3
    assert text.stdout.decode().startswith(str(vit))
    assert text.stderr.decode().startswith(f"error: {broken} is empty.")
    assert len(text.stderr.splitlines()) == 3


def test_where_nothing_can_be_read_there_is_an_error_and_no_result(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"")
    for paths in ([first], [first, second]):
        done = graphtrace("info", *paths, "--format", "json")
        assert done.returncode == 3
        assert json.loads(done.stdout)["schema"] == "graphtrace.error/1"
        assert len(done.stderr.splitlines()) == 3 * len(paths)
        assert graphtrace("info", *paths).stdout == b""
    assert graphtrace("info").returncode == 2


def test_hostile_names_stay_text(tmp_path, info):
    evil = "\x1b[31m\u202eevil\n[bold]" + "x" * 500
    path = tmp_path / "a\x1b[31m.sqlite"
    export = NsysExport("2025")
    process = export.process(7)
    with process.range("r", domain=evil):
        process.eager([Kernel("void f()", 2000)])
    export.write(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE TARGET_INFO_GPU SET name = ?", (evil,))
        connection.commit()
    done = graphtrace("info", path)
    assert done.returncode == 0, done.stderr
    for bad in (b"\x1b", "\u202e".encode()):
        assert bad not in done.stdout + done.stderr
    assert b"[bold]" in done.stdout
    assert max(len(line) for line in done.stdout.decode().splitlines()[1:]) <= 100
    (told,) = info(path)["files"]
    assert evil in {domain["domain"] for domain in told["nvtx"]}


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_closed_pipe_ends_quietly(vit, kind):
    code = f"{sys.executable} -m graphtrace info {vit} {vit} --format {kind} | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("asked", [False, True])
def test_the_profilers_command_line_is_shown_on_request_alone(data_dir: Path, asked: bool) -> None:
    report = data_dir / "ncu" / "cutlass_nvtx_a100_2024.1.ncu-rep"
    (line,) = command_lines(report)
    assert line.split()[0].endswith("ncu")
    flag = ["--command-line"] if asked else []
    command = [sys.executable, "-m", "graphtrace", "info", str(report), *flag]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    document = subprocess.run(
        [*command, "--format", "json"], capture_output=True, check=True, text=True
    ).stdout
    assert (f"$ {line.rstrip()}\n" in text) is asked
    said = json.loads(document)["files"][0]["command_lines"]
    assert said == ([line] if asked else None)


def test_an_export_has_no_command_line_to_show(data_dir: Path) -> None:
    export = data_dir / "nsys" / "two_kernels_2025.sqlite"
    command = [sys.executable, "-m", "graphtrace", "info", str(export), "--command-line"]
    ran = subprocess.run([*command, "--format", "json"], capture_output=True, check=True, text=True)
    assert json.loads(ran.stdout)["files"][0]["command_lines"] is None
