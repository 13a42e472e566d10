# SPDX-License-Identifier: Apache-2.0
"""What sqlite says of a damaged export stays one short line."""

import pytest

from graphtrace.ingest.nsys_sqlite import read
from graphtrace.model.errors import InputCorrupt
from graphtrace.testing import planted_vit


def test_a_damaged_schema_is_told_on_one_line(tmp_path):
    export = tmp_path / "run.sqlite"
    planted_vit(export, replays=2)
    content = export.read_bytes()
    at = content.index(b'CREATE TABLE "CUPTI_ACTIVITY_KIND_KERNEL"')
    cut = content.index(b'"start"', at)
    export.write_bytes(content[:cut] + b"'\nstart" + content[cut + 7 :])
    with pytest.raises(InputCorrupt) as caught:
        read(export)
    for sentence in (caught.value.what, caught.value.why, caught.value.do):
        assert "\n" not in sentence
        assert len(sentence) < 400
