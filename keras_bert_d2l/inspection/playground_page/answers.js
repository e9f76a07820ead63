// What the page asks for a text: computed here by the model, or stored in the page.
//
// Both kinds of model have `pieces(text)`, which returns `pieces` and `isTruncated` as below, without
// masks, and `answer(text, masked)`, which returns null if `isOutdated()`, or
// - `pieces`: `{token, word, start, end, isMasked}` for each of the T tokens, with the `original`
//   token if it is masked;
// - `attention(block, head)`: weights, T rows of T, and `attending`, the T tokens they are of;
// - `lens(position)`: for the embeddings and each block `{candidates, rank}`, with pairs of a token
//   and its probability, and the rank of the original token; null without an MLM head;
// - `share(position, token)`: the probability of a token, only of a model that runs here;
// - `neighbors()`: the most similar texts, `[text, cosine]`;
// - `isTruncated`; `isStored`, in which case the attention is that of the text without masks.

const NUM_NEIGHBORS = 8;

function cosine(a, b) {
  let product = 0, squaresA = 0, squaresB = 0;
  for (let i = 0; i < a.length; i++) {
    product += a[i] * b[i];
    squaresA += a[i] ** 2;
    squaresB += b[i] ** 2;
  }
  return product / Math.sqrt(Math.max(squaresA * squaresB, 1e-24));
}

/** Return the texts of the page that are most similar to a vector, without `text` itself. */
function mostSimilar(vector, text, { texts, weights: { vectors } }) {
  const { columns: D, values } = vectors;
  return texts
    .map((other, row) => [other, cosine(vector, values.subarray(row * D, (row + 1) * D))])
    .filter(([other]) => other !== text)
    .sort(([, a], [, b]) => b - a)
    .slice(0, NUM_NEIGHBORS);
}

/** Return the numbers of the largest values, in descending order. */
function largest(values, count) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (found.length === count && values[i] <= values[found.at(-1)]) continue;
    let place = found.length;
    while (place > 0 && values[i] > values[found[place - 1]]) place--;
    found.splice(place, 0, i);
    found.length = Math.min(found.length, count);
  }
  return found;
}

class LiveModel {
  constructor(data) {
    this.data = data;
    this.tokenizer = new Tokenizer(data.tokenizer);
    this.encoder = new Encoder(data.config, data.weights);
  }

  pieces(text) {
    const all = this.tokenizer.tokenize(text), { max_len: most } = this.data.config;
    const isTruncated = all.length > most;
    return { isTruncated, pieces: isTruncated ? [...all.slice(0, most - 1), all.at(-1)] : all };
  }

  async answer(text, masked, isOutdated) {
    const { pooling, weights, hasHead } = this.data;
    const { pieces: originals, isTruncated } = this.pieces(text);
    const { maskToken } = this.data, { maskId } = this.tokenizer;
    const pieces = originals.map(piece => masked.has(piece.word)
      ? { ...piece, id: maskId, token: maskToken, original: piece.token, isMasked: true }
      : { ...piece, isMasked: false });
    const ids = pieces.map(({ id }) => id);
    const states = await this.encoder.run(ids, isOutdated);
    if (!states) return null;
    const vector = () => this.encoder.pooled(states.hidden.at(-1), ids, pooling);
    return {
      pieces,
      attention: (block, head) => slice(states.attention[block], head, ids.length),
      attending: pieces.map(({ token }) => token),
      lens: position => hasHead ? this.lens(states.hidden, position, originals[position].id) : null,
      share: (position, token) => this.share(states.hidden.at(-1), position, token),
      neighbors: () => weights.vectors ? mostSimilar(vector(), text, this.data) : [],
      isTruncated,
      isStored: false,
    };
  }

  /** Return the probability of a token at a position. */
  share(hidden, position, token) {
    const D = this.data.config.num_hiddens;
    const [shares] = this.encoder.probabilities(hidden.slice(position * D, (position + 1) * D));
    return shares[this.tokenizer.tokens.indexOf(token)];
  }

  /** Return the candidates at a position after the embeddings and each block. */
  lens(hidden, position, original) {
    const D = this.data.config.num_hiddens;
    const { tokens } = this.tokenizer, rows = new Float32Array(hidden.length * D);
    hidden.forEach((X, l) => rows.set(X.subarray(position * D, (position + 1) * D), l * D));
    return this.encoder.probabilities(rows).map(shares => {
      const best = largest(shares, this.data.numCandidates);
      const numAbove = shares.reduce((count, share) => count + (share > shares[original]), 0);
      return { candidates: best.map(id => [tokens[id], shares[id]]), rank: 1 + numAbove };
    });
  }
}

class StoredModel {
  constructor(data) {
    this.data = data;
  }

  pieces(text) {
    const { texts, answers } = this.data, { pieces } = answers[texts.indexOf(text)];
    return { isTruncated: false, pieces: pieces.map(([token, word]) => ({ token, word })) };
  }

  async answer(text, masked) {
    const { texts, answers, maskToken, weights: { vectors } } = this.data;
    const number = texts.indexOf(text), { attention, lens } = answers[number];
    const { pieces, isTruncated } = this.pieces(text);
    const { columns: D, values } = vectors, vector = values.subarray(number * D, (number + 1) * D);
    const [masking] = [...masked, NO_WORD];
    const weightsOf = (block, head) => slice(attention[block], head, pieces.length);
    return {
      pieces: pieces.map(({ token, word }) => masked.has(word)
        ? { token: maskToken, original: token, word, isMasked: true }
        : { token, word, isMasked: false }),
      attention: (...head) => Float32Array.from(weightsOf(...head), weight => weight / 255),
      attending: pieces.map(({ token }) => token),
      lens: at => lens?.[`${masking}:${at}`] ?? lens?.[`${NO_WORD}:${at}`] ?? null,
      neighbors: () => mostSimilar(vector, text, this.data),
      isTruncated,
      isStored: true,
    };
  }
}

/** Return the T x T weights of one head. */
function slice(weights, head, T) {
  return weights.slice(head * T * T, (head + 1) * T * T);
}
