"use strict";
// Draws the charts of a page. `figures` is filled by the page: chart → option → figure; a colour in a figure is the
// name of a CSS variable, so that charts follow the theme.
let figures = {};
const PRINTED_WIDTH = 660; // pixels across a sheet of A4 between its margins

function themed(value, style) {
  if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
  if (Array.isArray(value)) return value.map((item) => themed(item, style));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item, style)]));
  }
  return value;
}

function dressed(layout, style) {
  const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
  const soft = style.getPropertyValue("--soft").trim();
  const made = {
    margin: { l: 10, r: 10, t: 30, b: 10 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.getPropertyValue("--font").trim(), size: 12, color: ink },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { color: soft } },
    hoverlabel: { bgcolor: style.getPropertyValue("--card").trim(), bordercolor: line, font: { color: ink } },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    ...themed(layout, style),
  };
  for (const name of Object.keys(made).filter((key) => /^[xy]axis/.test(key))) {
    made[name] = {
      automargin: true, gridcolor: line, zerolinecolor: line, linecolor: line, tickfont: { color: soft }, ...made[name],
    };
    made[name].title = { font: { color: soft }, standoff: 8, ...made[name].title };
  }
  return made;
}

function draw(card) {
  const control = card.dataset.control && document.getElementById(card.dataset.control);
  const figure = (figures[card.dataset.chart] || {})[control ? control.value : ""];
  const plot = card.querySelector(".plot");
  plot.hidden = !figure;
  card.querySelector(".nothing").hidden = Boolean(figure);
  if (!figure) return;
  const style = getComputedStyle(document.documentElement);
  const layout = dressed(figure.layout, style);
  if (document.documentElement.classList.contains("printing")) layout.width = PRINTED_WIDTH;
  plot.style.minHeight = `${layout.height}px`;
  Plotly.react(plot, themed(figure.data, style), layout, { displayModeBar: false, responsive: true });
}

function drawAll() {
  for (const card of document.querySelectorAll(".chart")) {
    if (!card.closest("[hidden]")) draw(card);
  }
}

// One listener for all selectors, also those that come later.
document.addEventListener("change", (event) => {
  for (const card of document.querySelectorAll(".chart")) {
    if (event.target.id && card.dataset.control === event.target.id) draw(card);
  }
});

function dressForPaper(now) {
  document.documentElement.classList.toggle("printing", now);
  drawAll();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
matchMedia("print").addEventListener("change", (event) => dressForPaper(event.matches));
addEventListener("beforeprint", () => dressForPaper(true));
addEventListener("afterprint", () => dressForPaper(false));
