# SPDX-License-Identifier: Apache-2.0
"""`graphtrace export INPUT -o NAME.gtrace`: the fast form of a foreign file."""

from pathlib import Path
from typing import Final

import click

from graphtrace.model.untrusted import visible

__all__ = ["command"]

_NOUNS: Final = {
    "activities": ("activity", "activities"),
    "ncu_results": ("ncu result", "ncu results"),
    "ranges": ("range", "ranges"),
    "batches": ("batch", "batches"),
}


@click.command("export", short_help="Write a file as a recording, which is faster to read.")
@click.argument("source", type=click.Path(path_type=Path), metavar="INPUT")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="NAME.gtrace",
    help="Recording to write.",
)
@click.option("--force", is_flag=True, help="Replace a recording that exists, never anything else.")
def command(source: Path, output: Path, force: bool) -> None:
    """Write a file as a recording: graphtrace reads it faster, and gives the same answer.

    INPUT is anything that graphtrace analyze reads. A recording that was cut short becomes a
    finished one. The recording is written whole or not at all; of the input's path it holds the
    base name only, and of its host and environment nothing.
    """
    from graphtrace.ingest.export import export
    from graphtrace.views.numbers import plural

    done = export(source, output, force=force)
    work = plural(done.rows, *_NOUNS[done.table])
    size = plural(done.size, "byte")
    click.echo(f"wrote {visible(str(output))} ({work}, {size})", err=True)
