# SPDX-License-Identifier: Apache-2.0
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from report_samples import (
    EMPTY,
    HOSTILE,
    graph_analysis,
    graph_trace,
    host_trace,
    hostile_analysis,
    ncu_analysis,
)

from graphtrace.model.trace import TableSet, Trace
from graphtrace.report.html import POLICY, SYNTHETIC_LABEL, render
from graphtrace.report.html_figures import plotly_text

NOTHING = Trace((), TableSet({}))


class _Reader(HTMLParser):
    """Elements and text of a page as a browser with scripts off sees them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.scripts = [], [], [], []
        self._open = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag in ("script", "style", "title"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif not self._open or self._open[-1] == "title":
            self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).split())


PAGES = {
    "ncu": (ncu_analysis(), NOTHING),
    "graph": (graph_analysis(), graph_trace()),
    "hostile": (hostile_analysis(), graph_trace(paths=(HOSTILE, "b"), name=HOSTILE)),
    "empty": (EMPTY, NOTHING),
}


@pytest.fixture(scope="module")
def pages():
    return {name: render(*made) for name, made in PAGES.items()}


def _figures(page):
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    return json.loads(found[1])


@pytest.mark.parametrize("name", PAGES)
def test_policy_and_no_reference_outside(pages, name):
    read = _Reader(pages[name])
    metas = [a for tag, a in read.attributes if tag == "meta" and "http-equiv" in a]
    assert metas == [{"http-equiv": "Content-Security-Policy", "content": POLICY}]
    for tag, attributes in read.attributes:
        assert "src" not in attributes, tag
        assert not any(key.startswith("on") for key in attributes), tag
        if "href" in attributes:
            assert attributes["href"].startswith("#") or attributes["href"] == "data:,"


def test_hostile_names_add_no_element(pages):
    read = _Reader(pages["hostile"])
    assert read.tags.count("script") == 3
    assert "img" not in read.tags
    assert "<img src=x onerror=" in read.words
    assert all("pwned" not in attributes for _, attributes in read.attributes)
    assert "\u202e" not in pages["hostile"]
    assert "\x1b" not in pages["hostile"]


def test_json_in_the_script_has_no_markup(pages):
    page = pages["hostile"]
    text = re.search(r'id="figures">(.*?)</script>', page, re.S)[1]
    assert text.isascii()
    assert not set("<>&") & set(text)


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def test_plotly_gets_no_tag_of_others(pages):
    ours = {"<br>", "<extra>", "</extra>"}
    for text in _strings(_figures(pages["hostile"])):
        assert set(re.findall(r"<[^>]*>", text)) <= ours
    assert plotly_text("<b>&lt;") == "&lt;b&gt;&amp;lt;"


def test_figures_of_a_graph(pages):
    figures = {figure["id"]: figure for figure in _figures(pages["graph"])}
    assert set(figures) == {"plot-budget", "plot-timeline"}
    busy, idle = figures["plot-budget"]["data"]
    assert sum(busy["x"]) + sum(idle["x"]) == pytest.approx(10.0)
    assert sum(len(trace["x"]) for trace in figures["plot-timeline"]["data"]) == 40
    assert all(trace["type"] == "bar" for f in figures.values() for trace in f["data"])


def test_figures_of_ncu_results(pages):
    figures = {figure["id"]: figure for figure in _figures(pages["ncu"])}
    assert set(figures) == {"plot-occupancy", "plot-caches", "plot-stalls"}
    theoretical, achieved = figures["plot-occupancy"]["data"]
    assert achieved["x"][0] == 77.06941464267601
    assert theoretical["x"][0] == 100.0
    hits = figures["plot-caches"]["data"][1]
    assert hits["x"] == [66.7492784288903, None]


def test_synthetic_is_said_at_the_top_and_in_the_title(pages):
    page = pages["graph"]
    assert page.index(f'role="note">{SYNTHETIC_LABEL}') < page.index("<main")
    assert re.search(r"<title>(.*?)</title>", page)[1].startswith(SYNTHETIC_LABEL)
    assert SYNTHETIC_LABEL not in pages["ncu"]


def test_verdict_budget_and_findings_come_before_figures(pages):
    order = [
        pages["graph"].index(f'id="{i}"') for i in ("verdict", "budget", "findings", "figures")
    ]
    assert order == sorted(order)
    words = _Reader(pages["graph"]).words
    assert "encoder.layers.0/attn46.0 %4.00 ms600 µs" in words
    assert "800 µs recoverable, 8.0 % of wall" in words


def test_exact_values_are_kept(pages):
    assert 'title="294,336 ns"' in pages["ncu"]
    assert "77.06941464267601 %" in pages["ncu"]
    assert "121 % hit rate: hits and lookups of two passes" in pages["ncu"]


def test_empty_panels_say_why(pages):
    words = _Reader(pages["empty"]).words
    assert "None of the inputs holds times" in words
    assert "holds no kernel" in words
    assert "script" not in _Reader(pages["empty"]).tags


@pytest.mark.parametrize("name", PAGES)
def test_a_small_page_is_small(pages, name):
    assert len(pages[name].encode()) < 5_000_000


def test_ids_are_unique_and_labels_exist(pages):
    read = _Reader(pages["graph"])
    ids = [a["id"] for _, a in read.attributes if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in read.attributes:
        for key in ("aria-labelledby",):
            assert attributes.get(key, ids[0]) in ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids


def test_kernels_of_one_template_are_told_apart_and_other_work_is_said():
    analysis = graph_analysis()
    name = "void elementwise_kernel<4, Functor{}<float>, array<char*, 3ul>, {}>(int)"
    rows = tuple(
        replace(
            analysis.kernels[0],
            name=name.format(what, "x" * 80),
            source="timeline",
            total_ns=1_000,
        )
        for what in ("Add", "Fill")
    )
    page = render(replace(analysis, kernels=rows), graph_trace())
    cells = re.findall(r'<td class="name" title="void elementwise[^>]*>(.*?)</td>', page, re.S)
    assert len(cells) == len(set(cells)) == 2
    assert "of the device work; the rest" in page


def test_host_recording(pages):
    page = render(EMPTY, host_trace())
    figures = {figure["id"]: figure for figure in _figures(page)}
    assert figures["plot-timeline"]["layout"]["yaxis"]["ticktext"] == ["depth 1", "depth 2"]


def test_rendering_does_not_import_pandas():
    code = (
        "import sys; from report_samples import *; from graphtrace.report import html, json, text;"
        "html.render(graph_analysis(), graph_trace()); json.render(ncu_analysis());"
        "text.render(ncu_analysis()); assert 'pandas' not in sys.modules"
    )
    env_path = __file__.rsplit("/", 1)[0]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=env_path)
