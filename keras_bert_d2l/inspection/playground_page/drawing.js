// Draws the parts of the page. Every function replaces the content of one element.

const SVG = "http://www.w3.org/2000/svg";
const NUM_COLORS = 8;
const LEAST_LINE = 0.01;  // weights below are not drawn
const LINE_HEIGHT = 24, CELL = 21, CHARACTER_WIDTH = 8.4, SHARE_WIDTH = 50;  // in pixels
const LEAST_WIDTH = 60, MOST_WIDTH = 340;  // of the lines
const MOST_LABEL = 13;  // characters
const MOST_LENS = 4;  // candidates per block

function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (let [name, value] of Object.entries(attributes)) {
    if (name === "title" || name === "aria-label") value = printable(value);
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children.map(child => typeof child === "string" ? printable(child) : child));
  return node;
}

/** Replace the children of an element, and keep the keyboard's place in it. */
function replace(container, ...children) {
  const stops = () => [...container.querySelectorAll("button, [tabindex]")];
  const focused = stops().indexOf(document.activeElement);
  container.replaceChildren(...children);
  if (focused >= 0) stops()[focused]?.focus({ preventScroll: true });
}

/** Return a text with escapes for control characters, also of the direction of writing. */
function printable(text) {
  const obeyed = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
  return text.replace(obeyed, one => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const quoted = token => `“${printable(token)}”`;
const classes = names => Object.keys(names).filter(name => names[name]).join(" ");
const numbers = count => Array.from({ length: count }, (_, number) => number);

function percent(share) {
  return share < 0.0005 ? "< 0.1%" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
}

/** Return a piece without the sign that it continues a word. */
const bare = token => token.length > 2 ? token.replace(/^##/, "") : token;

/** Draw the tokens. A word, which may have several pieces, is a button if `onWord` is given. */
function drawPieces(container, pieces, selected, onWord) {
  const words = [];
  pieces.forEach((piece, position) => {
    const isNew = piece.word === NO_WORD || piece.word !== pieces[position - 1]?.word;
    if (isNew) words.push([]);
    words.at(-1).push({ ...piece, position });
  });
  replace(container, ...words.map(parts => {
    const [{ word, isMasked }] = parts;
    const isSelected = parts.some(({ position }) => position === selected);
    const content = [element("span", {}, ...parts.map(({ token, position }) => element("span", {
      class: classes({ "selected-part": position === selected && parts.length > 1 }),
    }, token)))];
    const original = parts.map(part => bare(part.original ?? "")).join("");
    if (isMasked) content.push(element("small", {}, original));
    if (word === NO_WORD) return element("span", { class: "word special" }, ...content);
    if (!onWord) return element("span", { class: "word" }, ...content);
    return element("button", {
      type: "button",
      class: classes({ word: true, masked: isMasked, selected: isSelected }),
      "aria-pressed": isMasked,
      onclick: () => onWord(word),
    }, ...content);
  }));
}

/** Draw bars: `{name, share, label, isOriginal, onclick}` each. The longest stands for `most`. */
function drawBars(container, rows, most) {
  replace(container, ...rows.map(({ name, share, label, isOriginal, onclick }) => {
    const width = `width:${(100 * Math.max(share / most, 0)).toFixed(2)}%`;
    return element("li", { class: classes({ original: isOriginal }) },
      onclick ? element("button", { type: "button", class: "token", onclick }, name)
        : element("span", { class: "token" }, name),
      element("span", { class: "bar" }, element("i", { style: width })),
      element("em", {}, label));
  }));
}

/** Draw the candidates after the embeddings and each block. `original`: what is masked, or null. */
function drawLens(table, lines, original) {
  const ranks = original === null ? [] : [`Rank of ${quoted(original)}`];
  const columns = numbers(Math.min(MOST_LENS, lines[0].candidates.length)).map(i => `${i + 1}`);
  const heads = [...columns, ...ranks].map(name => element("th", { scope: "col" }, name));
  const rows = lines.map(({ candidates, rank }, number) => element("tr", {},
    element("th", { scope: "row" }, number ? `Block ${number}` : "Embeddings"),
    ...candidates.slice(0, MOST_LENS).map(([token, share]) => element("td", {
      class: classes({ original: token === original }), title: token,
      style: `--share:${share.toFixed(3)}`,
    }, element("b", {}, token), element("small", {}, percent(share)))),
    ...ranks.map(() => element("td", { class: "rank" }, rank.toLocaleString("en")))));
  replace(table,
    element("thead", {}, element("tr", {}, element("th", {}), ...heads)),
    element("tbody", {}, ...rows));
}

const color = head => `var(--head-${head % NUM_COLORS})`;

/** Draw a small matrix of every head; `head` is null if all heads of the block are shown. */
function drawHeads(container, answer, { numBlocks, numHeads, block, head }, onHead) {
  container.style.setProperty("--columns", numHeads);
  const T = answer.pieces.length, width = numHeads + 1;
  const heads = numbers(numBlocks).flatMap(b => [null, ...numbers(numHeads)].map(h => [b, h]));
  const nodes = heads.map(([b, h]) => {
    const isShown = b === block && h === head, name = `Block ${b + 1}, head ${h + 1}`;
    const attributes = {
      type: "button", "aria-pressed": isShown, tabindex: isShown ? 0 : -1,
      onclick: () => onHead(b, h),
    };
    if (h === null) return element("button", { ...attributes, class: "all" }, `Block ${b + 1}`);
    return element("button", {
      ...attributes, "aria-label": name, title: name, style: `color:${color(h)}`,
    }, element("canvas", { width: T, height: T }));
  });
  replace(container, ...nodes);
  nodes.forEach((node, i) => {
    const [b, h] = heads[i];
    if (h !== null) paint(node.firstChild, answer.attention(b, h));
    node.addEventListener("keydown", event => moveFocus(event, nodes, i, width));
  });
}

/** Return how strongly a weight is drawn in a matrix. The root shows small weights as well. */
const strength = weight => Math.sqrt(weight);

/** Paint weights, T rows of T, on a canvas of T x T points, in the color of its text. */
function paint(canvas, weights) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
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

/** Return the mean of the weights of heads. */
function mean(heads) {
  return heads[0].weights.map((_, i) =>
    heads.reduce((sum, { weights }) => sum + weights[i], 0) / heads.length);
}

/** Return a group for each token that attends. Pointing at it or focusing it calls `onFrom`. */
function fromGroups(tokens, draw, onFrom) {
  const groups = tokens.map((token, from) => svg("g", {
    class: "from", tabindex: from ? -1 : 0, role: "img", "aria-label": token,
  }, ...draw(from)));
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

function leave({ currentTarget }) {
  currentTarget.querySelector(".active")?.classList.remove("active");
  currentTarget.classList.remove("focused");
}

/** Return the weights of the token `from` with their positions: `[weight, to]`. */
function row(weights, from, T) {
  return Array.from(weights.subarray(from * T, (from + 1) * T), (weight, to) => [weight, to]);
}

const visible = ([weight]) => weight >= LEAST_LINE;

/** Draw lines from every token to those that it attends to. `heads`: `{stroke, weights}` each. */
function drawLines(container, tokens, heads, onFrom) {
  const T = tokens.length, all = mean(heads), room = labelRoom(tokens);
  const width = container.clientWidth - 2 * room - SHARE_WIDTH;
  const start = room, end = room + Math.min(Math.max(width, LEAST_WIDTH), MOST_WIDTH);
  const middle = (start + end) / 2, right = end + room + SHARE_WIDTH;
  const y = place => (place + 0.5) * LINE_HEIGHT;
  const line = (from, [weight, to], stroke) => svg("path", {
    d: `M${start} ${y(from)} C${middle} ${y(from)} ${middle} ${y(to)} ${end} ${y(to)}`,
    stroke, "stroke-opacity": weight.toFixed(3),
  });
  const share = ([weight, to]) =>
    svg("text", { class: "to", x: right - 2, y: y(to), "text-anchor": "end" }, percent(weight));
  const groups = fromGroups(tokens, from => [
    svg("rect", {
      class: "row", x: 1, y: y(from) - LINE_HEIGHT / 2 + 1, rx: 5,
      width: room - 4, height: LINE_HEIGHT - 2,
    }),
    svg("text", { x: room - 8, y: y(from), "text-anchor": "end" }, label(tokens[from])),
    ...heads.flatMap(({ stroke, weights }) =>
      row(weights, from, T).filter(visible).map(to => line(from, to, stroke))),
    ...row(all, from, T).filter(visible).map(share),
  ], onFrom);
  const tos = tokens.map((token, to) => svg("text", { x: end + 8, y: y(to) }, label(token)));
  replace(container, svg("svg", {
    width: right, height: T * LINE_HEIGHT, role: "group",
    "aria-label": "Lines from each token to those that it attends to", onpointerleave: leave,
  }, ...tos, ...groups));
}

/** Draw the mean weights of heads: a row for each token, a column for each it attends to. */
function drawMatrix(container, tokens, heads, onFrom) {
  const T = tokens.length, weights = mean(heads), room = labelRoom(tokens), size = room + T * CELL;
  const color = heads.length > 1 ? "var(--accent)" : heads[0].stroke;
  const middle = place => room + (place + 0.5) * CELL;
  const cell = (from, [weight, to]) => svg("rect", {
    class: "cell", x: room + to * CELL + 0.5, y: room + from * CELL + 0.5, rx: 3,
    width: CELL - 1, height: CELL - 1, "fill-opacity": strength(weight).toFixed(3),
  }, svg("title", {}, `${tokens[from]} → ${tokens[to]}: ${percent(weight)}`));
  const groups = fromGroups(tokens, from => [
    svg("rect", {
      class: "row", x: 1, y: middle(from) - CELL / 2, rx: 4, width: size - 2, height: CELL,
    }),
    svg("text", { x: room - 8, y: middle(from), "text-anchor": "end" }, label(tokens[from])),
    ...row(weights, from, T).map(to => cell(from, to)),
  ], onFrom);
  const tos = tokens.map((token, to) =>
    svg("text", { transform: `translate(${middle(to)} ${room - 8}) rotate(-90)` }, label(token)));
  const legend = [0, 0.05, 0.25, 0.5, 1].map(weight => element("span", {},
    element("i", { style: `--share:${strength(weight)}` }), `${100 * weight}%`));
  replace(container, svg("svg", {
    width: size + 2, height: size + 2, role: "group", style: `color:${color}`,
    "aria-label": "Matrix of attention weights", onpointerleave: leave,
  }, ...tos, ...groups), element("div", { class: "legend", style: `--color:${color}` }, ...legend));
}

/** Return the width of the longest label, in pixels. */
function labelRoom(tokens) {
  return 14 + CHARACTER_WIDTH * Math.max(...tokens.map(token => label(token).length));
}

/** Return a token, shortened if it does not fit next to the lines. */
function label(token) {
  return token.length > MOST_LABEL ? `${token.slice(0, MOST_LABEL - 1)}…` : token;
}
