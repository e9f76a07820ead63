"use strict";
// Draws the charts of a run: one per metric, with a curve per kind of data, and those of its calibration.

const LEFT = 52, RIGHT = 12, TOP = 8, BOTTOM = 24;
const [curves, calibration] = ["curves", "calibration"].map(id => JSON.parse(document.getElementById(id).textContent));
const charts = [...curves];
if (calibration) {
  const { temperature, bins, risk_coverage: points } = calibration;
  charts.push(...bins.slice(0, temperature === 1 ? 1 : 2).map(one => ({ bins: one })));
  if (points) charts.push({ unit: "coverage", startsAtZero: true, series: [{ isHeldOut: true, name: "risk", points }] });
}

// All charts of metrics have the same horizontal axis.
const places = curves.flatMap(({ series }) => series.flatMap(({ points }) => points.map(([x]) => x)));
const start = charts[0]?.unit === "epoch" ? 0 : Math.min(...places), end = Math.max(...places, start + 1);

const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const percent = new Intl.NumberFormat("en", { style: "percent" });
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

function nameOf({ isHeldOut, name }, chart) {
  if (name) return `${name} `;
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
  const width = svg.clientWidth, HEIGHT = svg.clientHeight;
  const { series } = chart, [first, last] = curves.includes(chart) ? [start, end] : [0, 1];
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
    if (chart.unit === "epoch" && !Number.isInteger(x)) continue;
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

/** Draw a reliability diagram, with the number of decisions of each bin below. */
function drawReliability(svg, { bins }) {
  const width = svg.clientWidth, height = svg.clientHeight, size = (width - LEFT - RIGHT) / bins.length;
  const middle = height - 84, most = Math.max(1, ...bins.map(([, , count]) => count));
  const toX = x => LEFT + x * (width - LEFT - RIGHT), toY = y => middle - y * (middle - TOP);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const y of ticks(0, 1, 5)) {
    svg.append(
      element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }),
      element("text", { class: "value", x: LEFT - 8, y: toY(y) }, percent.format(y)),
      element("text", { x: toX(y), y: height - 6, "text-anchor": y === 1 ? "end" : "middle" }, percent.format(y)));
  }
  bins.forEach(([, share, count], b) => {
    if (!count) return;
    const x = LEFT + b * size + 1, bar = { x, width: Math.max(1, size - 2) };
    const tall = Math.max(1, count / most * 26), top = height - BOTTOM - tall, isNarrow = size < 28;
    const place = `translate(${x + size / 2 - 1} ${top - 4})${isNarrow ? " rotate(-90)" : ""}`;
    svg.append(
      element("rect", { class: "share", ...bar, y: toY(share), height: Math.max(1, middle - toY(share)) }),
      element("rect", { class: "count", ...bar, y: top, height: tall }),
      element("text", {
        class: "number", transform: place, "text-anchor": isNarrow ? "start" : "middle",
        "dominant-baseline": isNarrow ? "central" : "auto",
      }, compact.format(count)));
  });
  svg.append(element("line", { class: "ideal", x1: toX(0), y1: toY(0), x2: toX(1), y2: toY(1) }));
  for (const [mean, share, count] of bins) {
    if (count) svg.append(element("circle", { class: "mean", cx: toX(mean), cy: toY(share), r: 2.5 }));
  }
  return place => {
    const b = Math.max(0, Math.min(bins.length - 1, Math.floor((place - LEFT) / size)));
    const [mean, share, count] = bins[b], range = [b, b + 1].map(n => exact.format(n / bins.length));
    const found = count ? [`confidence ${exact.format(mean)}`, `right ${exact.format(share)}`] : [];
    return [`bin ${range.join(" to ")}`, ...found, `decisions ${count.toLocaleString("en")}`].join("\n");
  };
}

document.querySelectorAll("figure.chart").forEach((figure, index) => {
  const svg = figure.querySelector("svg"), readout = figure.querySelector("output");
  let read = () => "";
  const chart = charts[index];
  const redraw = () => { read = (chart.bins ? drawReliability : draw)(svg, chart); };
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
