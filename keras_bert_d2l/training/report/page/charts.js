"use strict";
// Draws the charts of a run: one per metric, with a curve per kind of data.

const HEIGHT = 210, LEFT = 52, RIGHT = 12, TOP = 8, BOTTOM = 24;
const charts = JSON.parse(document.getElementById("curves").textContent);

// All charts have the same horizontal axis.
const places = charts.flatMap(({ series }) => series.flatMap(({ points }) => points.map(([x]) => x)));
const isEpoch = charts[0]?.unit === "epoch";
const first = isEpoch ? 0 : Math.min(...places), last = Math.max(...places, first + 1);

const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const compact = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

function format(value, style) {
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : style.format(value);
}

function element(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Return about `count` round numbers between two values. */
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step || 0);  // not -0
  return found;
}

/** Return the ends of the vertical axis. */
function range(values, startsAtZero) {
  const low = Math.min(...values, ...startsAtZero ? [0] : []), high = Math.max(...values);
  const space = (high - low || Math.abs(high) || 1) * 0.05;
  return [startsAtZero && low === 0 ? 0 : low - space, high + space];
}

/** Return the point that is nearest to a place on the horizontal axis and has a value. */
function nearest(points, x) {
  const found = points.filter(([, y]) => y !== null);
  return found.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a), found[0]);
}

function nameOf({ isHeldOut }, chart) {
  const names = document.querySelectorAll(".legend span");
  return chart.series.some(one => one.isHeldOut) ? `${names[Number(isHeldOut)].textContent} ` : "";
}

function drawCurve(one, toX, toY) {
  const parts = [[]];  // a value that is not finite interrupts the curve
  for (const [x, y] of one.points) y === null ? parts.push([]) : parts.at(-1).push([toX(x), toY(y)]);
  const curve = element("g", { style: `color: var(--head-${Number(one.isHeldOut)})` });
  for (const part of parts) {
    const points = part.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
    curve.append(element("polyline", { points }));
    if (part.length < 15) curve.append(...part.map(([cx, cy]) => element("circle", { cx, cy, r: 2.5 })));
  }
  return curve;
}

/** Draw a chart and return a function of a place on it, in pixels, that reads its values. */
function draw(svg, chart) {
  const width = svg.clientWidth;
  const { series } = chart;
  const points = series.flatMap(one => one.points).filter(([, y]) => y !== null);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  if (!points.length) return () => "";
  const [low, high] = range(points.map(([, y]) => y), chart.startsAtZero);
  const toX = x => LEFT + (x - first) / (last - first) * (width - LEFT - RIGHT);
  const toY = y => HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - BOTTOM - TOP);
  for (const y of ticks(low, high, 4)) {
    svg.append(
      element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }),
      element("text", { class: "value", x: LEFT - 8, y: toY(y) }, format(y, compact)));
  }
  for (const x of ticks(first, last, Math.max(2, Math.floor(width / 110)))) {
    if (isEpoch && !Number.isInteger(x)) continue;
    const anchor = toX(x) > width - 24 ? "end" : "middle";
    svg.append(element("text", { x: toX(x), y: HEIGHT - 6, "text-anchor": anchor }, format(x, compact)));
  }
  svg.append(...series.map(one => drawCurve(one, toX, toY)));
  const cursor = element("line", { class: "cursor", x1: -9, x2: -9, y1: TOP, y2: HEIGHT - BOTTOM });
  svg.append(cursor);
  return place => {
    const [x] = nearest(points, first + (place - LEFT) / (width - LEFT - RIGHT) * (last - first));
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, toX(x));
    const values = series.map(one => [nameOf(one, chart), nearest(one.points, x)]);
    const texts = values.filter(([, point]) => point).map(([name, [, y]]) => `${name}${format(y, exact)}`);
    return [`${chart.unit} ${exact.format(x)}`, ...texts].join("\n");
  };
}

document.querySelectorAll("figure.chart").forEach((figure, index) => {
  const svg = figure.querySelector("svg"), readout = figure.querySelector("output");
  let read = () => "";
  const redraw = () => { read = draw(svg, charts[index]); };
  figure.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), place = event.clientX - box.left;
    readout.textContent = read(place);
    readout.dataset.side = place < box.width / 2 ? "right" : "left";
  });
  figure.addEventListener("pointerleave", () => {
    readout.textContent = "";
    redraw();
  });
  new ResizeObserver(redraw).observe(svg);
});
document.documentElement.dataset.ready = "true";
