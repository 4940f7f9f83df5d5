"use strict";
// Axes of charts: ranges, round ticks, and the way from values to pixels. Layouts are written as plotly's are.
const CHARACTER = 7.2; // pixels of one, on average, in the labels of axes
const LONGEST_LABEL = 22; // characters; the rest is in the tooltip

function ends(values, axis) {
  let low = Math.min(...values), high = Math.max(...values);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  if (axis.rangemode === "tozero") [low, high] = [Math.min(0, low), Math.max(0, high)];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const room = 0.04 * (high - low);
  const given = axis.range || [null, null];
  return [
    given[0] ?? (axis.rangemode === "tozero" && low === 0 ? 0 : low - room),
    given[1] ?? (axis.rangemode === "tozero" && high === 0 ? 0 : high + room),
  ];
}

// About so many ticks, at multiples of 1, 2 or 5 times a power of ten.
function roundTicks([low, high], wanted, least) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least || 0, power * ([1, 2, 5].find((one) => one * power >= rough * 0.999) ?? 10));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  if (ticks.length < 2 && wanted < 16 && !least) return roundTicks([low, high], 2 * wanted);
  const digits = Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9)));
  return ticks.map((value) => ({ value, text: tickText(value, digits) }));
}

function tickText(value, digits) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-6)) return value.toExponential(1);
  if (size >= 1e4) return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 });
  return (value === 0 ? 0 : value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const shortened = (text) => (text.length > LONGEST_LABEL ? `${text.slice(0, LONGEST_LABEL - 1)}…` : text);

// What an axis shows: its ends, its ticks, and how wide their texts are. `length` is in pixels.
function scaleOf(values, axis, length, apart) {
  const range = ends(values, axis);
  if (axis.autorange === "reversed") range.reverse();
  const whole = [Math.min(...range), Math.max(...range)];
  const ticks = axis.tickvals
    ? axis.tickvals.map((value, i) => ({ value, text: String(axis.ticktext?.[i] ?? value) }))
    : roundTicks(whole, axis.nticks || Math.max(2, Math.floor(length / apart)), axis.dtick);
  return { range, ticks, label: Math.max(0, ...ticks.map((tick) => shortened(tick.text).length)) * CHARACTER };
}

const placed = (scale, from, to) => (value) =>
  from + ((value - scale.range[0]) / (scale.range[1] - scale.range[0])) * (to - from);
