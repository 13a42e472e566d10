# SPDX-License-Identifier: Apache-2.0
"""Outputs are refused before work is done, and written whole or not at all."""

import resource
import signal
import stat
from pathlib import Path

import pytest

from graphtrace.cli.output import check_outputs, write_output
from graphtrace.model.errors import OutputError


def test_an_output_that_exists_needs_force(tmp_path):
    out = tmp_path / "a.html"
    out.write_text("old")
    with pytest.raises(OutputError, match="exists"):
        check_outputs([out], [], force=False)
    check_outputs([out], [], force=True)


def test_a_dangling_link_counts_as_existing(tmp_path):
    out = tmp_path / "a.html"
    out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="exists"):
        check_outputs([out], [], force=False)


@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_an_output(tmp_path, force):
    source = tmp_path / "in.ncu-rep"
    source.write_text("x")
    (tmp_path / "alias.html").symlink_to(source)
    for output in (source, tmp_path / "alias.html"):
        with pytest.raises(OutputError, match="is an input"):
            check_outputs([output], [source], force=force)
    folder = tmp_path / "run.gtrace"
    folder.mkdir()
    with pytest.raises(OutputError, match="is an input"):
        check_outputs([folder / "manifest.json"], [folder], force=force)


def test_the_other_places_that_cannot_be_written(tmp_path):
    with pytest.raises(OutputError, match="named twice"):
        check_outputs([tmp_path / "a.html", tmp_path / "." / "a.html"], [], force=False)
    with pytest.raises(OutputError, match="is a directory"):
        check_outputs([tmp_path], [], force=True)
    with pytest.raises(OutputError, match="cannot be written"):
        check_outputs([tmp_path / "no" / "a.html"], [], force=False)


def test_a_file_is_replaced_whole_and_keeps_usual_permissions(tmp_path):
    out = tmp_path / "a.html"
    out.write_text("old")
    write_output(out, "new\n")
    assert out.read_text() == "new\n"
    assert stat.S_IMODE(out.stat().st_mode) & 0o400
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path):
    out = tmp_path / "a.html"
    out.write_text("old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OutputError, match="could not be written"):
            write_output(out, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, usual)
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_a_device_is_written_in_place():
    device = Path("/dev/null")
    before = device.stat().st_rdev
    write_output(device, "x")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert device.stat().st_rdev == before
