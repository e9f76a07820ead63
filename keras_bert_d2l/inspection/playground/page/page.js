// The state of the page, and what happens on input.

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
  const sizes = [[L, "blocks"], [N, "heads per block"], [D, "dimensions"], [V, "tokens"], [data.numWeights, "weights"]];
  $("facts").textContent = `${sizes.map(([n, what]) => `${n.toLocaleString("en")} ${what}`).join(", ")}. `
    + (data.answers ? "The answers for these texts were computed in advance."
      : "The model runs in this page; nothing that you type leaves it.");
  $("hint").textContent = data.hasHead ? "Click a word to mask it, and once more to show it again." : "";
  $("text").hidden = Boolean(data.answers);
  $("examples-label").hidden = !data.texts.length;
  $("examples").append(...data.texts.map(text => element("option", { value: text }, text)));
  $("text").value = data.texts[0] ?? FIRST_TEXT;
  listen();
  await ask();
  if (data.hasHead) await maskFirst();
  for (const id of ["input", ...(data.config.num_blks ? ["attention-card"] : [])]) $(id).hidden = false;
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
async function maskFirst() {
  const { pieces } = answer, typed = pieces.findIndex(({ token }) => token === data.maskToken);
  const words = pieces.filter(({ token, word }) => word !== NO_WORD && /\p{L}/u.test(token));
  if (typed >= 0) select(typed);
  else if (words.length) await onWord(words[Math.floor(words.length / 2)].word);
}

/** Compute the answer to the current text and masks, and draw it. */
async function ask() {
  const current = ++version, started = performance.now();
  const found = await model.answer($("text").value, masked, () => current !== version);
  if (!found || current !== version) return;
  answer = found;
  const time = performance.now() - started;
  $("status").textContent = `${answer.pieces.length} tokens`
    + (answer.isTruncated ? `; the rest of the text is left out, because this page takes at most ${data.config.max_len}` : "")
    + (answer.isStored ? "." : `, computed in ${time.toFixed(0)} ms.`);
  select(Math.min(selected, answer.pieces.length - 1));
  drawAttention();
  const neighbors = answer.neighbors();
  $("neighbors-card").hidden = !neighbors.length;
  drawBars($("neighbors"), neighbors.map(([text, score]) => ({ name: text, share: score, label: score.toFixed(2) })), 1);
}

/** Mask a word, or select it if it is masked, or show it again if it is selected as well. */
async function onWord(word) {
  const positions = answer.pieces.flatMap((piece, position) => piece.word === word ? [position] : []);
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

/** Show the candidates at a position. */
function select(position) {
  selected = position;
  const { pieces } = answer, piece = pieces[position];
  drawPieces($("pieces"), pieces, position, { canMask: data.hasHead, onWord });
  const lens = piece.word === NO_WORD ? null : answer.lens(position);
  $("candidates-card").hidden = $("lens-card").hidden = !lens;
  if (!lens) return;
  const isMask = piece.token === data.maskToken;
  const original = piece.isMasked ? piece.original : isMask ? null : piece.token;
  $("candidates-about").textContent = piece.isMasked ? `For the mask in place of ${quoted(original)}.`
    : isMask ? "For the mask in the text." : `For ${quoted(original)}, which the model can see.`;
  drawParts(pieces.flatMap((other, i) => other.word === piece.word ? [i] : []), position);
  const { candidates, rank } = lens.at(-1);
  drawBars($("candidates"), candidates.map(([token, share]) => ({
    name: token, share, label: percent(share), isOriginal: token === original,
    onclick: data.answers ? null : () => put(token, piece),
  })), candidates[0][1]);
  const isListed = original === null || candidates.some(([token]) => token === original);
  $("rank").textContent = isListed ? "" : `${quoted(original)} is candidate number ${rank.toLocaleString("en")}.`;
  drawLens($("lens"), lens, original);
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
  const text = $("text").value;
  const before = token === bare(token) ? text.slice(0, start) : text.slice(0, start).trimEnd();
  $("text").value = before + bare(token) + text.slice(end);
  masked.delete(word);
  ask();
}

function drawAttention() {
  const { num_blks: L, num_heads: N } = data.config;
  if (!L) return;
  const { pieces } = answer, heads = shownHeads(answer, N, shown);
  drawHeads($("heads"), answer, L, N, shown, (block, head) => {
    Object.assign(shown, { block, head });
    drawAttention();
  });
  for (const view of ["lines", "matrix"]) $(`view-${view}`).setAttribute("aria-pressed", view === shown.view);
  const name = `Block ${shown.block + 1}, ${shown.head === null ? "all heads" : `head ${shown.head + 1}`}`;
  const isMean = shown.head === null && shown.view === "matrix";
  $("head-name").textContent = isMean ? `${name} (mean)` : name;
  $("attention-about").textContent = "Each token on the left attends to those on the right."
    .replace("on the left", shown.view === "lines" ? "on the left" : "of a row")
    .replace("on the right", shown.view === "lines" ? "on the right" : "of the columns")
    + (answer.isStored && masked.size ? " This is the attention of the text without the mask." : "");
  const weights = mean(heads), T = pieces.length;
  const draw = shown.view === "lines" ? drawLines : drawMatrix;
  draw($("attention"), answer, heads, from => {
    const row = weights.subarray(from * T, (from + 1) * T);
    const most = largest(row, MOST_ATTENDED).map(to => `${quoted(pieces[to].token)} ${percent(row[to])}`);
    $("attends").textContent = `${quoted(pieces[from].token)} attends to ${most.join(", ")}.`;
  });
  $("attends").textContent = "Point at a token to see what it attends to, or use the Tab and arrow keys.";
}

start().catch(error => {
  $("facts").className = "problem";
  $("facts").textContent = `The model could not be loaded (${error.message}). This page needs a browser from 2023 or later.`;
});
