# SPDX-License-Identifier: Apache-2.0
"""Write docs/tables.md and docs/analyzers.md from what the code declares.

python tools/make_docs.py          write them
python tools/make_docs.py --check  exit with 1 where they are not what the code declares
"""

import dataclasses
import sys
from pathlib import Path

from graphtrace.analysis.registry import analyzers
from graphtrace.model.plugin import Analyzer
from graphtrace.model.schema import TABLES, Column, Table

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _column(column: Column) -> str:
    null = "null: not measured" if column.nullable else ""
    kind = (
        "text" if "string" in str(column.type) and "list" not in str(column.type) else column.type
    )
    key = f"key of `{column.key}`; " if column.key else ""
    return f"| `{column.name}` | {kind} | {column.unit} | {_cell(key + column.doc)} | {null} |"


def _table(table: Table) -> str:
    head = f"## {table.name}\n\nA row is {table.doc}.\n\n"
    rows = "\n".join(_column(column) for column in table.columns)
    return f"{head}| column | type | unit | meaning | |\n| --- | --- | --- | --- | --- |\n{rows}\n"


def tables() -> str:
    """The text of docs/tables.md."""
    head = (
        "# Tables\n\nThe tables of a trace and of a recording (`NAME.gtrace/`), from "
        "`graphtrace/model/schema.py`. Times are integer nanoseconds; null is never zero.\n\n"
    )
    return head + "\n".join(_table(table) for table in TABLES.values())


def _option(analyzer: Analyzer, field: "dataclasses.Field[object]") -> str:
    doc, source = field.metadata["doc"], field.metadata["source"]
    name = f"{analyzer.id}.{field.name}"
    return f"| `{name}` | {field.default} | {_cell(doc)} | {_cell(source)} |"


def _analyzer(analyzer: Analyzer) -> str:
    rows = "\n".join(_option(analyzer, field) for field in dataclasses.fields(analyzer.options))
    kinds = ", ".join(f"`{kind}`" for kind in analyzer.kinds)
    needs = "\n".join(
        f"- needs one of {', '.join(f'`{name}`' for name in need.any_of)}; else it abstains: "
        f"{need.reason}"
        for need in analyzer.needs
    )
    return (
        f"## {analyzer.id}\n\n{analyzer.summary}\n\nFindings: {kinds}.\n\n{needs}\n\n"
        f"| option (`--set`) | default | meaning | where the default comes from |\n"
        f"| --- | --- | --- | --- |\n{rows}\n"
    )


def analyzer_docs() -> str:
    """The text of docs/analyzers.md."""
    head = (
        "# Analyzers\n\nEvery threshold is an option with a source. An analyzer says nothing "
        "where the data cannot decide: it abstains and prints what to run.\n\n"
    )
    return head + "\n".join(_analyzer(analyzer) for analyzer in analyzers())


def main() -> int:
    """Write the pages, or compare them."""
    pages = {DOCS / "tables.md": tables(), DOCS / "analyzers.md": analyzer_docs()}
    if "--check" in sys.argv:
        stale = [p for p, text in pages.items() if not p.exists() or p.read_text() != text]
        for page in stale:
            sys.stderr.write(f"{page} is stale: run python tools/make_docs.py\n")
        return 1 if stale else 0
    DOCS.mkdir(exist_ok=True)
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
