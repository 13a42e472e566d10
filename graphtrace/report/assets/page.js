(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var buttons = [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]];
  var config = { responsive: true, displaylogo: false, modeBarButtons: buttons };

  function colors(print) {
    if (print) {
      return { ink: "#000000", soft: "#444444", line: "#cccccc", panel: "#ffffff" };
    }
    var css = getComputedStyle(document.documentElement);
    function read(name) { return css.getPropertyValue("--" + name).trim(); }
    return { ink: read("ink"), soft: read("soft"), line: read("line"), panel: read("panel") };
  }

  function themed(c) {
    return {
      "font.color": c.ink,
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": c.soft, "modebar.activecolor": c.ink,
      "xaxis.gridcolor": c.line, "xaxis.zerolinecolor": c.line, "xaxis.tickfont.color": c.soft,
      "yaxis.gridcolor": c.line, "yaxis.zerolinecolor": c.line, "yaxis.tickfont.color": c.ink,
      "hoverlabel.bgcolor": c.panel, "hoverlabel.bordercolor": c.line, "hoverlabel.font.color": c.ink
    };
  }

  function each(act) {
    figures.forEach(function (figure) {
      var place = document.getElementById(figure.id);
      if (place) { act(place, figure); }
    });
  }

  function repaint(print) {
    var update = themed(colors(print));
    each(function (place) { Plotly.relayout(place, update); });
  }

  each(function (place, figure) {
    Plotly.newPlot(place, figure.data, figure.layout, config);
  });
  repaint(false);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", function () { repaint(false); });
  window.addEventListener("beforeprint", function () { repaint(true); });
  window.addEventListener("afterprint", function () { repaint(false); });
})();
