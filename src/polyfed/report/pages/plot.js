// Draws a figure as SVG: lines, bands, points with their intervals, bars and heat maps, which is all that the pages need.
// Figures are written as plotly's are, so that others can draw them too. Colours are CSS variables: they follow the theme.
const GAP = 8, LINE = 16, NEAR = 40; // pixels
const SVG = "http://www.w3.org/2000/svg";
const DASHES = { dash: "6 4", dot: "2 3" };

function element(name, attributes = {}, style = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const [key, value] of Object.entries(style)) if (value) made.style.setProperty(key, value);
  return made;
}
const ink = (colour) => (colour && colour.startsWith("--") ? `var(${colour})` : colour);
// plotly would take tags in a text for its own, so they are escaped there.
const clear = (text) => String(text).replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

function words(text, x, y, { anchor = "middle", colour = "--soft", size = 12, whole = "" } = {}) {
  const made = element("text", { x, y, "text-anchor": anchor, "font-size": size }, { fill: ink(colour) });
  made.textContent = text;
  if (whole && whole !== text) made.append(Object.assign(element("title"), { textContent: whole }));
  return made;
}

function plot(holder, figure) {
  const hidden = (holder.hiddenSeries ??= new Set());
  const shown = figure.data.filter((trace) => !hidden.has(trace.name));
  const area = document.createElement("div");
  area.className = "area";
  holder.replaceChildren(...legend(holder, figure, hidden), area);
  const width = Math.max(240, holder.clientWidth), height = figure.layout.height;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", "aria-hidden": "true" });
  const points = [];
  const panels = panelsOf(shown, figure.layout, width, height);
  for (const panel of panels) drawAxes(svg, panel, panel === panels[panels.length - 1]);
  for (const panel of panels) drawMarks(svg, panel, figure.layout, points);
  area.append(svg);
  explain(area, svg, points, width);
  holder.shown = figure;
}

function legend(holder, figure, hidden) {
  const named = figure.data.filter((trace) => trace.name && trace.showlegend !== false);
  if (figure.layout.showlegend === false || named.length < 2) return [];
  const list = document.createElement("div");
  list.className = "legend";
  for (const trace of named) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(!hidden.has(trace.name)));
    const key = document.createElement("i");
    const colour = trace.fillcolor || trace.line?.color || trace.marker?.line?.color || trace.marker?.color;
    key.style.setProperty("--key", ink(colour));
    key.className = trace.line?.dash === "dash" ? "dashed" : "";
    button.append(key, clear(trace.name));
    button.addEventListener("click", () => {
      if (!hidden.delete(trace.name)) hidden.add(trace.name);
      plot(holder, figure);
    });
    list.append(button);
  }
  return [list];
}

// One panel for each y axis; two of them lie above each other and share the x axis.
function panelsOf(traces, layout, width, height) {
  const names = layout.yaxis2 ? ["yaxis", "yaxis2"] : ["yaxis"];
  const bottom = LINE + (layout.xaxis.title?.text ? LINE : 0) + GAP;
  const panels = names.map((name) => {
    const axis = layout[name], key = name === "yaxis" ? undefined : "y2";
    const own = traces.filter((trace) => trace.yaxis === key);
    const [from, to] = axis.domain || [0, 1], inner = height - bottom - GAP;
    const top = GAP + (1 - to) * inner, base = GAP + (1 - from) * inner;
    return { axis, own, top, base, y: scaleOf(valuesOf(own, "y", layout), axis, base - top, 34) };
  });
  const left = Math.max(...panels.map((panel) => panel.y.label)) + GAP + (panels.some((p) => p.axis.title?.text) ? LINE + 6 : 0);
  const right = width - GAP - 4;
  const x = scaleOf(valuesOf(traces, "x", layout), layout.xaxis, right - left, 56);
  for (const panel of panels) {
    Object.assign(panel, { left, right, xaxis: layout.xaxis, x });
    panel.toX = placed(x, left, right);
    panel.toY = placed(panel.y, panel.base, panel.top);
  }
  return panels;
}

// Every number that must be seen along an axis: intervals and the ends of bars too.
function valuesOf(traces, side, layout) {
  const found = [], tops = {};
  for (const trace of traces) {
    const error = trace[`error_${side}`], lies = trace.orientation === "h" ? "x" : "y";
    if (trace.type === "bar" && side === lies) found.push(0);
    (trace[side] || []).forEach((value, i) => {
      if (typeof value !== "number") return;
      found.push(value);
      if (error) found.push(value + (error.array[i] ?? 0), value - ((error.arrayminus ?? error.array)[i] ?? 0));
      const other = trace[side === "x" ? "y" : "x"]?.[i];
      if (trace.type === "bar" && side === lies && layout.barmode === "stack") found.push((tops[other] = (tops[other] || 0) + value));
      if (trace.type === "heatmap" || (trace.type === "bar" && side !== lies)) found.push(value - 0.5 * (trace.width || 1), value + 0.5 * (trace.width || 1));
    });
  }
  for (const line of layout.shapes || []) if (!layout.yaxis2) found.push(...[line[`${side}0`], line[`${side}1`]].filter(Number.isFinite));
  return found;
}

function drawAxes(svg, panel, lowest) {
  const { left, right, top, base, toX, toY } = panel;
  const grid = (x1, y1, x2, y2) => svg.append(element("line", { x1, y1, x2, y2 }, { stroke: "var(--line)" }));
  for (const { value, text } of panel.y.ticks) {
    const at = toY(value);
    if (at < top - 1 || at > base + 1) continue;
    if (panel.axis.showgrid !== false) grid(left, at, right, at);
    svg.append(words(shortened(clear(text)), left - 6, at + 4, { anchor: "end", whole: clear(text) }));
  }
  for (const { value, text } of panel.x.ticks) {
    const at = toX(value);
    if (at < left - 1 || at > right + 1) continue;
    if (panel.xaxis.showgrid !== false) grid(at, top, at, base);
    if (lowest) {
      const anchor = at > right - 12 ? "end" : "middle"; // the last must not be cut
      const name = shortened(clear(text)), room = ((right - left) / panel.x.ticks.length) / CHARACTER;
      const fits = panel.xaxis.ticktext && name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name;
      svg.append(words(fits, anchor === "end" ? right + 4 : at, base + LINE, { anchor, whole: clear(text) }));
    }
  }
  if (lowest && panel.xaxis.title?.text) svg.append(words(clear(panel.xaxis.title.text), (left + right) / 2, base + 2 * LINE + 2));
  if (panel.axis.title?.text) {
    const made = words(clear(panel.axis.title.text), 0, 0);
    made.setAttribute("transform", `translate(${LINE - 5} ${(top + base) / 2}) rotate(-90)`);
    svg.append(made);
  }
}
