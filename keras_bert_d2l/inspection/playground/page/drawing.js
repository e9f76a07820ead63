// Draws the parts of the page. Every function replaces the content of one element.

const SVG = "http://www.w3.org/2000/svg";
const NUM_COLORS = 8;
const LEAST_LINE = 0.01;  // weights below are not drawn
const LINE_HEIGHT = 24, CELL = 21, CHARACTER_WIDTH = 8.4, SHARE_WIDTH = 50;  // in pixels
const LEAST_WIDTH = 60, MOST_WIDTH = 340;  // of the lines
const MOST_LENS = 4;  // candidates per block

function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Replace the children of an element, and keep the keyboard's place in it. */
function replace(container, ...children) {
  const stops = () => [...container.querySelectorAll("button, [tabindex]")];
  const focused = stops().indexOf(document.activeElement);
  container.replaceChildren(...children);
  if (focused >= 0) stops()[focused]?.focus({ preventScroll: true });
}

const percent = share => share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const quoted = token => `“${token}”`;
const classes = names => Object.keys(names).filter(name => names[name]).join(" ");

/** Draw the tokens: a button for each word, which may have several pieces. */
function drawPieces(container, pieces, selected, { canMask, onWord }) {
  const words = [];
  pieces.forEach((piece, position) => {
    const isNew = piece.word === NO_WORD || piece.word !== pieces[position - 1]?.word;
    if (isNew) words.push([]);
    words.at(-1).push({ ...piece, position });
  });
  replace(container, ...words.map(parts => {
    const [{ word, isMasked }] = parts, isSelected = parts.some(({ position }) => position === selected);
    const labels = parts.map(({ token, position }) =>
      element("span", { class: classes({ "selected-part": position === selected && parts.length > 1 }) }, token));
    const content = [element("span", {}, ...labels)];
    if (isMasked) content.push(element("small", {}, parts.map(part => bare(part.original)).join("")));
    if (word === NO_WORD || !canMask) return element("span", { class: "word special" }, ...content);
    return element("button", {
      type: "button",
      class: classes({ word: true, masked: isMasked, selected: isSelected }),
      "aria-pressed": isMasked,
      onclick: () => onWord(word),
    }, ...content);
  }));
}

/** Return a piece without the sign that it continues a word. */
const bare = token => token.length > 2 ? token.replace(/^##/, "") : token;

/** Draw bars: `{name, share, label, isOriginal, onclick}` each. The longest bar stands for `most`. */
function drawBars(container, rows, most) {
  replace(container, ...rows.map(({ name, share, label, isOriginal, onclick }) =>
    element("li", { class: classes({ original: isOriginal }) },
      onclick ? element("button", { type: "button", class: "token", onclick }, name)
        : element("span", { class: "token" }, name),
      element("span", { class: "bar" }, element("i", { style: `width:${(100 * Math.max(share / most, 0)).toFixed(2)}%` })),
      element("em", {}, label))));
}

/** Draw the candidates after the embeddings and each block. `original`: what is masked, or null. */
function drawLens(table, lines, original) {
  const ranks = original === null ? [] : [element("th", { scope: "col" }, `Rank of ${quoted(original)}`)];
  const columns = Array.from({ length: Math.min(MOST_LENS, lines[0].candidates.length) }, (_, i) =>
    element("th", { scope: "col" }, `${i + 1}`));
  const rows = lines.map(({ candidates, rank }, number) => element("tr", {},
    element("th", { scope: "row" }, number ? `Block ${number}` : "Embeddings"),
    ...candidates.slice(0, MOST_LENS).map(([token, share]) =>
      element("td", { class: classes({ original: token === original }), style: `--share:${share.toFixed(3)}` },
        element("span", {}, token, element("small", {}, percent(share))))),
    ...ranks.map(() => element("td", { class: "rank" }, rank.toLocaleString("en")))));
  replace(table,
    element("thead", {}, element("tr", {}, element("td", { class: "rank" }), ...columns, ...ranks)),
    element("tbody", {}, ...rows));
}

/** Draw a small matrix of every head; `head` is null if all heads of the block are shown. */
function drawHeads(container, answer, numBlocks, numHeads, { block, head }, onHead) {
  container.style.setProperty("--columns", numHeads);
  const T = answer.pieces.length, nodes = [];
  for (let b = 0; b < numBlocks; b++) {
    const isAll = b === block && head === null;
    nodes.push(element("button", {
      type: "button", class: "all", "aria-pressed": isAll, tabindex: isAll ? 0 : -1, onclick: () => onHead(b, null),
    }, `Block ${b + 1}`));
    for (let h = 0; h < numHeads; h++) {
      const isShown = b === block && h === head;
      const canvas = element("canvas", { width: T, height: T });
      nodes.push(element("button", {
        type: "button", "aria-label": `Block ${b + 1}, head ${h + 1}`, title: `Block ${b + 1}, head ${h + 1}`,
        "aria-pressed": isShown, tabindex: isShown ? 0 : -1, style: `color:${color(h)}`, onclick: () => onHead(b, h),
      }, canvas));
    }
  }
  replace(container, ...nodes);
  nodes.forEach((node, i) => {
    const h = i % (numHeads + 1) - 1;
    if (h >= 0) paint(node.firstChild, answer.attention(Math.floor(i / (numHeads + 1)), h));
    node.onkeydown = event => moveFocus(event, nodes, i, numHeads + 1);
  });
}

const color = head => `var(--head-${head % NUM_COLORS})`;

/** Return how strongly a weight is drawn in a matrix. The root shows small weights as well. */
const strength = weight => Math.sqrt(weight);

/** Paint weights, T rows of T, on a canvas of T x T points, in the color of its text. */
function paint(canvas, weights) {
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  const [red, green, blue] = getComputedStyle(canvas).color.match(/[\d.]+/g).map(Number);
  weights.forEach((weight, i) => image.data.set([red, green, blue, 255 * strength(weight)], 4 * i));
  context.putImageData(image, 0, 0);
}

/** Move the focus in a grid with the arrow keys. */
function moveFocus(event, nodes, place, columns) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const next = nodes[place + steps[event.key]];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** Return the shown heads of a block: pairs of a color and weights. */
function shownHeads(answer, numHeads, { block, head }) {
  const heads = head === null ? Array.from({ length: numHeads }, (_, h) => h) : [head];
  return heads.map(h => [color(h), answer.attention(block, h)]);
}

function mean(heads) {
  return heads[0][1].map((_, i) => heads.reduce((sum, [, weights]) => sum + weights[i], 0) / heads.length);
}

/** Return a group for each token that attends; it calls `onFrom` when it is pointed at or focused. */
function fromGroups(T, draw, onFrom) {
  const groups = Array.from({ length: T }, (_, from) => svg("g", { class: "from", tabindex: from ? -1 : 0 }, ...draw(from)));
  groups.forEach((group, from) => {
    const activate = () => {
      groups.forEach((other, i) => other.classList.toggle("active", i === from));
      group.parentNode.classList.add("focused");
      onFrom(from);
    };
    group.addEventListener("pointerenter", activate);
    group.addEventListener("focus", activate);
    group.addEventListener("keydown", event => moveFocus(event, groups, from, 1));
  });
  return groups;
}

function leave(event) {
  for (const active of event.currentTarget.querySelectorAll(".active")) active.classList.remove("active");
  event.currentTarget.classList.remove("focused");
}

/** Draw lines from every token to those that it attends to, one color per head. */
function drawLines(container, answer, heads, onFrom) {
  const T = answer.pieces.length, all = mean(heads), room = labelRoom(answer.pieces);
  const width = container.clientWidth - 2 * room - SHARE_WIDTH;
  const start = room, end = room + Math.min(Math.max(width, LEAST_WIDTH), MOST_WIDTH);
  const y = place => (place + 0.5) * LINE_HEIGHT;
  const path = (from, to) =>
    `M${start} ${y(from)} C${(start + end) / 2} ${y(from)} ${(start + end) / 2} ${y(to)} ${end} ${y(to)}`;
  const groups = fromGroups(T, from => [
    svg("rect", { class: "row", x: 1, y: y(from) - LINE_HEIGHT / 2 + 1, width: room - 4, height: LINE_HEIGHT - 2, rx: 5 }),
    svg("text", { x: room - 8, y: y(from), "text-anchor": "end" }, label(answer.pieces[from])),
    ...heads.flatMap(([stroke, weights]) => visible(weights, from, T).map(([weight, to]) => svg("path", {
      d: path(from, to), stroke, "stroke-opacity": (weight / Math.sqrt(heads.length)).toFixed(3),
    }))),
    ...visible(all, from, T).map(([weight, to]) =>
      svg("text", { class: "to", x: end + room + SHARE_WIDTH - 2, y: y(to), "text-anchor": "end" }, percent(weight))),
  ], onFrom);
  const tos = answer.pieces.map((piece, to) => svg("text", { x: end + 8, y: y(to) }, label(piece)));
  replace(container, svg("svg", {
    width: end + room + SHARE_WIDTH, height: T * LINE_HEIGHT, role: "group",
    "aria-label": "Lines from each token to those that it attends to", onpointerleave: leave,
  }, ...tos, ...groups));
}

/** Return the weights of a token that are large enough to be drawn, with their positions. */
function visible(weights, from, T) {
  const row = Array.from(weights.subarray(from * T, (from + 1) * T), (weight, to) => [weight, to]);
  return row.filter(([weight]) => weight >= LEAST_LINE);
}

/** Draw the weights as a matrix: a row for each token, a column for each that it attends to. */
function drawMatrix(container, answer, heads, onFrom) {
  const T = answer.pieces.length, weights = mean(heads), room = labelRoom(answer.pieces);
  const size = room + T * CELL, color = heads.length > 1 ? "var(--accent)" : heads[0][0];
  const middle = place => room + (place + 0.5) * CELL;
  const cell = (from, weight, to) => svg("rect", {
    class: "cell", x: room + to * CELL + 0.5, y: room + from * CELL + 0.5, width: CELL - 1, height: CELL - 1,
    rx: 3, "fill-opacity": strength(weight).toFixed(3),
  }, svg("title", {}, `${answer.pieces[from].token} → ${answer.pieces[to].token}: ${percent(weight)}`));
  const groups = fromGroups(T, from => [
    svg("rect", { class: "row", x: 1, y: middle(from) - CELL / 2, width: size - 2, height: CELL, rx: 4 }),
    svg("text", { x: room - 8, y: middle(from), "text-anchor": "end" }, label(answer.pieces[from])),
    ...Array.from(weights.subarray(from * T, (from + 1) * T), (weight, to) => cell(from, weight, to)),
  ], onFrom);
  const tos = answer.pieces.map((piece, to) =>
    svg("text", { transform: `translate(${middle(to)} ${room - 8}) rotate(-90)` }, label(piece)));
  const legend = [0, 0.05, 0.25, 0.5, 1].map(weight =>
    element("span", {}, element("i", { style: `--share:${strength(weight)}` }), `${100 * weight} %`));
  replace(container, svg("svg", {
    width: size + 2, height: size + 2, role: "group", style: `color:${color}`,
    "aria-label": "Matrix of attention weights", onpointerleave: leave,
  }, ...tos, ...groups), element("div", { class: "legend", style: `--color:${color}` }, ...legend));
}

/** Return the width of the longest label, in pixels. */
function labelRoom(pieces) {
  return 14 + CHARACTER_WIDTH * Math.max(...pieces.map(piece => label(piece).length));
}

/** Return a token, shortened if it does not fit next to the lines. */
function label({ token }) {
  return token.length > 13 ? `${token.slice(0, 12)}…` : token;
}
