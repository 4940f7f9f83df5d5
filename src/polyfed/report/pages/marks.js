// The marks of a figure, and what is told where one points at.
let panelCount = 0;

function drawMarks(svg, panel, layout, points) {
  const { left, right, top, base, toX, toY } = panel, id = `panel${panelCount++}`;
  const clip = element("clipPath", { id });
  clip.append(element("rect", { x: left - 4, y: top - 4, width: right - left + 8, height: base - top + 8 }));
  const group = element("g", { "clip-path": `url(#${id})` });
  svg.append(clip, group);
  if (panel.axis.domain === undefined || panel.axis.domain[1] === 1) {
    for (const line of layout.shapes || []) {
      const at = { x1: toX(line.x0), y1: toY(line.y0), x2: toX(line.x1), y2: toY(line.y1) };
      group.append(element("line", at, stroke(line.line)));
    }
  }
  const heights = {};
  let before = null;
  for (const trace of panel.own) {
    if (trace.type === "bar") drawBars(group, svg, panel, trace, layout, heights, points);
    else if (trace.type === "heatmap") drawHeat(group, panel, trace, points);
    else drawScatter(group, panel, trace, before, points);
    before = trace;
  }
}

const stroke = (line = {}) => ({
  stroke: ink(line.color), "stroke-width": String(line.width ?? 2), "stroke-dasharray": DASHES[line.dash], fill: "none",
});

// A line is broken where a value is missing.
function pathOf(panel, trace) {
  let pen = "M", path = "";
  trace.x.forEach((x, i) => {
    if (x === null || trace.y[i] === null) return (pen = "M");
    path += `${pen}${panel.toX(x).toFixed(1)} ${panel.toY(trace.y[i]).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

function drawScatter(group, panel, trace, before, points) {
  if (trace.fill === "tonexty" && before) {
    const back = { x: [...before.x].reverse(), y: [...before.y].reverse() };
    const path = `${pathOf(panel, trace)}${pathOf(panel, back).replace("M", "L")}Z`;
    group.append(element("path", { d: path }, { fill: ink(trace.fillcolor) }));
  }
  if (trace.mode.includes("lines") && trace.line?.width !== 0) {
    group.append(element("path", { d: pathOf(panel, trace), "data-series": clear(trace.name || "") }, stroke(trace.line)));
  }
  trace.x.forEach((x, i) => {
    const y = trace.y[i];
    if (x === null || y === null) return;
    const at = [panel.toX(x), panel.toY(y)];
    if (trace.mode.includes("markers")) {
      for (const side of ["x", "y"]) if (trace[`error_${side}`]) group.append(whisker(panel, trace, side, i, at));
      group.append(marker(trace.marker, ...at));
    }
    if (trace.hoverinfo !== "skip") points.push({ at, told: told(trace, i) });
  });
}

function whisker(panel, trace, side, i, [x, y]) {
  const error = trace[`error_${side}`], value = trace[side][i], to = side === "x" ? panel.toX : panel.toY;
  const low = to(value - (error.arrayminus ?? error.array)[i]), high = to(value + error.array[i]);
  const at = side === "x" ? { x1: low, x2: high, y1: y, y2: y } : { x1: x, x2: x, y1: low, y2: high };
  return element("line", at, { stroke: ink(error.color), "stroke-width": String(error.thickness ?? 1.5) });
}

function marker({ symbol = "circle", size = 6, color, line = {}, opacity } = {}, x, y) {
  const half = size / 2, style = { opacity: opacity && String(opacity) };
  if (symbol.startsWith("line-")) {
    const at = symbol === "line-ns" ? { x1: x, x2: x, y1: y - half, y2: y + half } : { x1: x - half, x2: x + half, y1: y, y2: y };
    return element("line", at, { ...style, stroke: ink(line.color ?? color), "stroke-width": String(line.width ?? 2) });
  }
  const open = symbol.endsWith("-open");
  return element("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: half }, {
    ...style, fill: open ? "var(--card)" : ink(color), stroke: open ? ink(color) : "", "stroke-width": "1.5",
  });
}

function drawBars(group, svg, panel, trace, layout, heights, points) {
  const lies = trace.orientation === "h", along = lies ? panel.toY : panel.toX, up = lies ? panel.toX : panel.toY;
  const [where, values] = lies ? [trace.y, trace.x] : [trace.x, trace.y];
  const breadth = trace.width ?? 1 - (layout.bargap ?? 0.2);
  values.forEach((value, i) => {
    if (value === null || where[i] === null) return;
    const from = layout.barmode === "stack" ? heights[where[i]] || 0 : 0;
    heights[where[i]] = from + value;
    const [a, b] = [along(where[i] - breadth / 2), along(where[i] + breadth / 2)].sort((p, q) => p - q);
    const [c, d] = [up(from), up(from + value)].sort((p, q) => p - q);
    const box = lies ? { x: c, y: a, width: d - c, height: b - a } : { x: a, y: c, width: b - a, height: d - c };
    group.append(element("rect", { ...box, rx: Math.min(2, (b - a) / 4) }, { fill: ink(trace.marker.color) }));
    const at = lies ? [up(from + value), (a + b) / 2] : [(a + b) / 2, up(from + value)];
    if (trace.text && trace.textposition === "outside") svg.append(words(clear(trace.text[i]), at[0], at[1] - 4, { size: 11 }));
    if (trace.hoverinfo !== "skip") points.push({ at, box, told: told(trace, i) });
  });
}

function drawHeat(group, panel, trace, points) {
  trace.z.forEach((row, r) => row.forEach((value, c) => {
    const [x1, x2] = [trace.x[c] - 0.5, trace.x[c] + 0.5].map(panel.toX), [y1, y2] = [trace.y[r] - 0.5, trace.y[r] + 0.5].map(panel.toY);
    const box = { x: Math.min(x1, x2) + 1, y: Math.min(y1, y2) + 1, width: Math.abs(x2 - x1) - 2, height: Math.abs(y2 - y1) - 2, rx: 3 };
    if (value === null) return;
    const share = (value - trace.zmin) / (trace.zmax - trace.zmin), [low, middle, high] = trace.colorscale.map(([, colour]) => ink(colour));
    const [end, amount] = share < 0.5 ? [low, 1 - 2 * share] : [high, 2 * share - 1];
    group.append(element("rect", box, { fill: `color-mix(in srgb, ${end} ${Math.round(100 * amount)}%, ${middle})` }));
    const at = [(x1 + x2) / 2, (y1 + y2) / 2];
    if (box.width > 26) group.append(words(value.toFixed(2), at[0], at[1] + 4, { colour: "--ink" }));
    points.push({ at, box, told: filled(trace.hovertemplate, { z: value, customdata: trace.customdata[r][c] }) });
  }));
}

function told(trace, i) {
  const values = { x: trace.x[i], y: trace.y[i], text: trace.text?.[i], customdata: trace.customdata?.[i] };
  const template = trace.hovertemplate || `${trace.name ? `${trace.name}<br>` : ""}%{x}: %{y}`;
  return filled(template, values);
}

// %{y:.3f}, %{customdata[2]}: the few forms that the figures use.
function filled(template, values) {
  return clear(template.replace(/<extra>.*<\/extra>/, "").replace(/%\{(\w+)(?:\[(\d+)\])?(?::([^}]*))?\}/g, (_, name, index, format) => {
    const value = index === undefined ? values[name] : values[name][Number(index)];
    if (typeof value !== "number") return String(value ?? "");
    const digits = /\.(\d)f/.exec(format || "");
    return digits ? value.toFixed(Number(digits[1])) : value.toLocaleString("en", { maximumSignificantDigits: 5 });
  })).replace(/<br>/g, "\n");
}

// How far it is from a point, or from a bar; within it is nothing.
function distanceTo({ at, box }, x, y) {
  if (!box) return Math.hypot(at[0] - x, at[1] - y);
  return Math.hypot(Math.max(box.x - x, 0, x - box.x - box.width), Math.max(box.y - y, 0, y - box.y - box.height));
}

// The point that is nearest says what it is, to a mouse and to a finger.
function explain(area, svg, points, width) {
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  area.append(tip);
  const look = (event) => {
    const box = svg.getBoundingClientRect(), scale = width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    let best = null, nearest = NEAR;
    for (const point of points) {
      const distance = distanceTo(point, x, y);
      if (distance < nearest) [best, nearest] = [point, distance];
    }
    tip.hidden = !best;
    if (!best) return;
    tip.textContent = best.told;
    const left = best.at[0] / scale, half = tip.offsetWidth / 2;
    tip.style.left = `${Math.max(half, Math.min(box.width - half, left))}px`;
    tip.style.top = `${best.at[1] / scale}px`;
  };
  svg.addEventListener("pointermove", look);
  svg.addEventListener("pointerdown", look);
  svg.addEventListener("pointerleave", () => (tip.hidden = true));
}
