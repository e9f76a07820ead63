// The state of the page, and what happens on input.

const MOST_OCCLUDED = 8;  // words
const MOST_ATTENDED = 4;  // tokens in the sentence below the attention
const FIRST_TEXT = "The man went to the store to buy a gallon of milk.";

const $ = id => document.getElementById(id);
let model, data, answer;
let version = 0;  // of the input; an answer to an older one is dropped
const masked = new Set();  // numbers of words
let selected = 0;  // position of the token whose candidates are shown
const shown = { block: 0, head: 0, view: "lines" };

async function start() {
  data = await readData();
  model = data.answers ? new StoredModel(data) : new LiveModel(data);
  const { num_blks: L, num_heads: N, num_hiddens: D, vocab_size: V } = data.config;
  const sizes = Object.entries({
    blocks: L, "heads per block": N, dimensions: D, tokens: V, weights: data.numWeights,
  }).map(([what, number]) => `${number.toLocaleString("en")} ${what}`);
  $("facts").textContent = `${sizes.join(", ")}. ` + (data.answers
    ? "The answers for these texts were computed in advance."
    : "The model runs in this page; nothing that you type leaves it.");
  $("hint").hidden = !data.hasHead;
  $("text").hidden = Boolean(data.answers);
  $("examples-label").hidden = !data.texts.length;
  $("examples").append(...data.texts.map(text => element("option", { value: text }, text)));
  $("text").value = data.texts[0] ?? FIRST_TEXT;
  listen();
  if (data.hasHead) maskFirst();
  await ask();
  $("input").hidden = false;
  $("attention-card").hidden = !L;
  drawAttention();  // the colors of elements that are hidden are not known
  document.documentElement.dataset.ready = Math.round(performance.now());
}

function listen() {
  const onText = text => {
    $("text").value = text;
    masked.clear();
    ask();
  };
  $("text").addEventListener("input", () => onText($("text").value));
  $("examples").addEventListener("change", () => onText($("examples").value));
  for (const view of ["lines", "matrix"]) {
    $(`view-${view}`).addEventListener("click", () => {
      shown.view = view;
      drawAttention();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAttention());
}

/** Mask a word in the middle of the first text, unless the text has a mask. */
function maskFirst() {
  const { pieces } = model.pieces($("text").value);
  const typed = pieces.findIndex(({ token }) => token === data.maskToken);
  const words = pieces.filter(({ token, word }) => word !== NO_WORD && /\p{L}/u.test(token));
  if (typed >= 0) selected = typed;
  else if (words.length) {
    const { word } = words[Math.floor(words.length / 2)];
    selected = pieces.findIndex(piece => piece.word === word);
    masked.add(word);
  }
}

/** Compute the answer to the current text and masks, and draw it. */
async function ask() {
  const current = ++version, started = performance.now();
  const found = await model.answer($("text").value, masked, () => current !== version);
  if (!found || current !== version) return;
  answer = found;
  const time = performance.now() - started;
  $("status").textContent = `${answer.pieces.length} tokens`
    + (answer.isStored ? "." : `, computed in ${time.toFixed(0)} ms.`)
    + (answer.isTruncated ? " This is the maximum; the rest of the text is truncated." : "");
  select(Math.min(selected, answer.pieces.length - 1));
  drawAttention();
  const neighbors = answer.neighbors();
  $("neighbors-card").hidden = !neighbors.length;
  drawBars($("neighbors"), neighbors.map(([name, share]) =>
    ({ name, share, label: share.toFixed(2) })), 1);
}

/** Mask a word, or select it if it is masked, or show it again if it is selected as well. */
async function onWord(word) {
  const positions = positionsOf(word);
  const isSelected = positions.includes(selected);
  if (!isSelected) [selected] = positions;
  const isTyped = answer.pieces[positions[0]].token === data.maskToken && !masked.has(word);
  if (isTyped || (masked.has(word) && !isSelected)) return select(selected);
  if (!masked.delete(word)) {
    if (data.answers) masked.clear();  // the answers have one masked word at a time
    masked.add(word);
  }
  await ask();
}

/** Return the positions of the pieces of a word. */
function positionsOf(word) {
  return [...answer.pieces.keys()].filter(position => answer.pieces[position].word === word);
}

/** Show the candidates at a position. */
function select(position) {
  selected = position;
  const { pieces } = answer, piece = pieces[position];
  drawPieces($("pieces"), pieces, position, data.hasHead ? onWord : null);
  const lens = piece.word === NO_WORD ? null : answer.lens(position);
  $("candidates-card").hidden = $("lens-card").hidden = !lens;
  $("occlusion-card").hidden = true;
  if (!lens) return;
  const isMask = piece.token === data.maskToken;
  const original = piece.isMasked ? piece.original : isMask ? null : piece.token;
  $("candidates-about").textContent = original === null ? "For the mask in the text."
    : piece.isMasked ? `For the mask in place of ${quoted(original)}.`
      : `For ${quoted(original)}, which the model can see.`;
  drawParts(positionsOf(piece.word), position);
  const { candidates, rank } = lens.at(-1);
  drawBars($("candidates"), candidates.map(([token, share]) => ({
    name: token, share, label: percent(share), isOriginal: token === original,
    onclick: data.answers ? null : () => put(token, piece),
  })), candidates[0][1]);
  const isListed = original === null || candidates.some(([token]) => token === original);
  $("rank").textContent = isListed ? ""
    : `${quoted(original)} is candidate number ${rank.toLocaleString("en")}.`;
  drawLens($("lens"), lens, original);
  occlude(position, ...candidates[0]);
}

/** Mask the other words one after the other, and draw how far a probability falls. */
async function occlude(position, token, share) {
  const current = version, { pieces } = answer, { word: own } = pieces[position];
  const isOutdated = () => current !== version || selected !== position;
  const others = new Set(pieces.map(({ word }) => word));
  const falls = [];
  for (const word of answer.isStored ? [] : others) {
    if (word === NO_WORD || word === own || masked.has(word)) continue;
    const found = await model.answer($("text").value, new Set([...masked, word]), isOutdated);
    if (!found || isOutdated()) return;
    const name = positionsOf(word).map(at => bare(pieces[at].token)).join("");
    falls.push({ name, share: share - found.share(position, token) });
  }
  if (!falls.length) return;
  falls.sort((a, b) => b.share - a.share);
  $("occlusion-about").textContent =
    `How far the probability of ${quoted(token)}, ${percent(share)}, falls if one more word is masked.`;
  drawBars($("occlusion"), falls.slice(0, MOST_OCCLUDED).map(one => ({
    ...one, label: `${one.share < 0 ? "+" : "−"}${percent(Math.abs(one.share))}`,
  })), Math.max(falls[0].share, 1e-9));
  $("occlusion-card").hidden = false;
}

/** Draw a choice between the pieces of a word. */
function drawParts(positions, position) {
  const parts = positions.length < 2 ? [] : positions.map(i => element("button", {
    type: "button", "aria-pressed": i === position, onclick: () => select(i),
  }, answer.pieces[i].original ?? answer.pieces[i].token));
  replace($("parts"), ...parts);
}

/** Put a candidate into the text. */
function put(token, { start, end, word }) {
  const text = $("text").value, before = text.slice(0, start), isJoined = token !== bare(token);
  $("text").value = (isJoined ? before.trimEnd() : before) + bare(token) + text.slice(end);
  masked.delete(word);
  if (isJoined) masked.clear();  // the words after this one have other numbers now
  ask();
}

function drawAttention() {
  const { num_blks: numBlocks, num_heads: numHeads } = data.config, { block, head, view } = shown;
  if (!numBlocks) return;
  const tokens = answer.attending, T = tokens.length;
  const heads = (head === null ? numbers(numHeads) : [head])
    .map(h => ({ stroke: color(h), weights: answer.attention(block, h) }));
  drawHeads($("heads"), answer, { numBlocks, numHeads, block, head }, (block, head) => {
    Object.assign(shown, { block, head });
    drawAttention();
  });
  const isMatrix = view === "matrix";
  $("view-lines").setAttribute("aria-pressed", !isMatrix);
  $("view-matrix").setAttribute("aria-pressed", isMatrix);
  const name = head === null ? `all heads${isMatrix ? " (mean)" : ""}` : `head ${head + 1}`;
  $("head-name").textContent = `Block ${block + 1}, ${name}`;
  $("attention-about").textContent = (isMatrix
    ? "The token of each row attends to those of the columns."
    : "Each token on the left attends to those on the right.")
    + (answer.isStored && masked.size ? " The weights are those of the text without a mask." : "");
  const weights = mean(heads);
  (isMatrix ? drawMatrix : drawLines)($("attention"), tokens, heads, from => {
    const shares = weights.subarray(from * T, (from + 1) * T);
    const most = largest(shares, MOST_ATTENDED);
    const named = most.map(to => `${quoted(tokens[to])} ${percent(shares[to])}`);
    $("attends").textContent = `${quoted(tokens[from])} attends to ${named.join(", ")}.`;
  });
  $("attends").textContent =
    "Point at a token to see what it attends to, or use the Tab and arrow keys.";
}

start().catch(error => {
  $("facts").className = "problem";
  $("facts").textContent = `The model could not be loaded (${error.message}). `
    + "This page needs a browser from 2023 or later.";
});
