# SPDX-License-Identifier: Apache-2.0
import json
import re
from html import unescape

import pytest
from report_samples import (
    EMPTY,
    HOSTILE,
    graph_analysis,
    graph_trace,
    hostile_analysis,
    ncu_analysis,
)

from graphtrace.model.trace import TableSet, Trace
from graphtrace.report.html import render

NOTHING = Trace((), TableSet({}))
# Runs before everything else in the page and leaves what happened on the root element.
PROBE = """<script>
(function () {
  var root = document.documentElement;
  window.addEventListener("error", function (e) { root.dataset.error = e.message; }, true);
  document.addEventListener("securitypolicyviolation", function (e) {
    root.dataset.blocked = e.violatedDirective + " " + e.blockedURI;
  });
  window.addEventListener("load", function () {
    setTimeout(function () {
      root.dataset.requests = performance.getEntriesByType("resource").map(
        function (r) { return r.name; }).filter(
        function (n) { return !/^(data|blob):/.test(n); }).join(" ");
      root.dataset.plots = document.querySelectorAll(".plot .main-svg").length;
      root.dataset.wide = root.scrollWidth > root.clientWidth ? "overflows" : "fits";
      root.dataset.texts = Array.prototype.map.call(
        document.querySelectorAll(".plot text"), function (t) { return t.textContent; }).join("|");
      root.dataset.links = document.querySelectorAll(".plot a:not(.modebar-btn)").length;
    }, 500);
  });
})();
</script>"""


def _probed(page):
    return page.replace("<style>", PROBE + "<style>", 1)


def _data(dom):
    root = re.search(r"<html[^>]*>", dom)[0]
    return {k: unescape(v) for k, v in re.findall(r'data-([a-z]+)="([^"]*)"', root)}


PAGES = {
    "ncu": (ncu_analysis(), NOTHING, 3),
    "graph": (graph_analysis(), graph_trace(), 2),
    "binned": (graph_analysis(), graph_trace(kernels=9000), 2),
    "hostile": (hostile_analysis(), graph_trace(paths=(HOSTILE, "b"), name=HOSTILE), 5),
    "empty": (EMPTY, NOTHING, 0),
}


@pytest.mark.parametrize("name", PAGES)
def test_page_loads_without_error_or_request(browse, name):
    analysis, trace, figures = PAGES[name]
    dom, console = browse(_probed(render(analysis, trace)))
    data = _data(dom)
    assert console == ""
    assert "error" not in data
    assert "blocked" not in data
    assert data["requests"] == ""
    # A figure of plotly is two or three SVG layers.
    assert int(data["plots"]) >= 2 * figures
    assert (int(data["plots"]) > 0) == (figures > 0)
    assert "pwned" not in data


def test_hostile_names_are_shown_and_do_nothing(browse):
    analysis, trace, _ = PAGES["hostile"]
    dom, _ = browse(_probed(render(analysis, trace)))
    data = _data(dom)
    assert "pwned" not in data
    assert data["links"] == "0"
    assert "</script><script>" in data["texts"]
    assert "&lt;" not in data["texts"]


@pytest.mark.parametrize("size", ["1280,900", "500,900"])
@pytest.mark.parametrize("name", ["ncu", "graph", "hostile"])
def test_page_is_never_wider_than_the_window(browse, name, size):
    analysis, trace, _ = PAGES[name]
    dom, _ = browse(_probed(render(analysis, trace)), f"--window-size={size}")
    assert _data(dom)["wide"] == "fits"


def test_readable_with_scripts_off(browse):
    analysis, trace, _ = PAGES["graph"]
    page = json.dumps(render(analysis, trace)).replace("<", "\\u003c")
    # A sandbox without allow-scripts is a browser with scripts off; the frame around it looks in.
    outer = f"""<!doctype html><iframe id="f" sandbox="allow-same-origin" width="1200"></iframe>
<pre id="seen"></pre><script>
var frame = document.getElementById("f");
frame.onload = function () {{
  document.getElementById("seen").textContent = frame.contentDocument.body.innerText;
}};
frame.srcdoc = {page};
</script>"""
    dom, _ = browse(outer)
    seen = unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)[1])
    for text in (
        "Verdict: Findings",
        "encoder.layers.0/attn",
        "800 µs recoverable",
        "flash_fwd_kernel<0>",
        "scripts are off",
    ):
        assert text in seen


def test_prints(browse, tmp_path):
    analysis, trace, _ = PAGES["graph"]
    target = tmp_path / "page.pdf"
    browse(render(analysis, trace), f"--print-to-pdf={target}")
    assert target.read_bytes().startswith(b"%PDF")
    assert target.stat().st_size > 20_000
