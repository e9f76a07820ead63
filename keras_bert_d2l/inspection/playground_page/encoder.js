// BERT's encoder and its masked-language-model head, for one text at a time.
// T tokens, D hidden width, N heads, L blocks, V vocabulary. Matrices are flat Float32Arrays, row
// after row; the names of weights and options are those of the Python package.

const PAUSE_AFTER = 30;  // milliseconds of work after which the browser may draw and take input

const ACTIVATIONS = {
  linear: x => x,
  relu: x => Math.max(x, 0),
  tanh: Math.tanh,
  gelu: x => x * 0.5 * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: x => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** Return the error function to 1.5e-7 (Abramowitz and Stegun 1964, formula 7.1.26). */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t
    + 0.254829592) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

/**
 * Return the products of all rows of X with all rows of a matrix, plus the bias.
 * Four rows of X are done together, because each weight is then read once for all four.
 */
function product(X, { rows, columns, values }, bias) {
  const numRows = X.length / columns, Y = new Float32Array(numRows * rows);
  for (let j = 0; j < rows; j++) {
    const first = j * columns, b = bias ? bias[j] : 0;
    for (let i = 0; i < numRows; i += 4) {
      // The last row is repeated if the number of rows is not a multiple of four.
      const i1 = Math.min(i + 1, numRows - 1), i2 = Math.min(i + 2, numRows - 1);
      const i3 = Math.min(i + 3, numRows - 1);
      const x0 = i * columns, x1 = i1 * columns, x2 = i2 * columns, x3 = i3 * columns;
      let y0 = b, y1 = b, y2 = b, y3 = b;
      for (let k = 0; k < columns; k++) {
        const weight = values[first + k];
        y0 += X[x0 + k] * weight;
        y1 += X[x1 + k] * weight;
        y2 += X[x2 + k] * weight;
        y3 += X[x3 + k] * weight;
      }
      Y[i * rows + j] = y0;
      Y[i1 * rows + j] = y1;
      Y[i2 * rows + j] = y2;
      Y[i3 * rows + j] = y3;
    }
  }
  return Y;
}

/** Replace scores by their softmax, in place. */
function softmax(scores) {
  let largest = -Infinity, sum = 0;
  for (const score of scores) largest = Math.max(largest, score);
  for (let i = 0; i < scores.length; i++) sum += scores[i] = Math.exp(scores[i] - largest);
  for (let i = 0; i < scores.length; i++) scores[i] /= sum;
}

class Encoder {
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
    this.activation = ACTIVATIONS[config.activation];
  }

  dense(X, name) {
    return product(X, this.weights[`${name}/kernel`], this.weights[`${name}/bias`]);
  }

  /** Return the rows of X, `(..., D)`, with layer normalization. */
  norm(X, name, epsilon = this.config.layer_norm_epsilon) {
    const { num_hiddens: D, layer_norm: kind } = this.config;
    const gamma = this.weights[`${name}/gamma`], beta = this.weights[`${name}/beta`];
    const Y = new Float32Array(X.length);
    for (let row = 0; row < X.length; row += D) {
      let mean = 0, squares = 0;
      for (let i = 0; i < D; i++) mean += X[row + i] / D;
      for (let i = 0; i < D; i++) squares += (X[row + i] - mean) ** 2;
      const scale = kind === "unbiased"
        ? 1 / (Math.sqrt(squares / (D - 1)) + epsilon)
        : 1 / Math.sqrt(squares / D + epsilon);
      for (let i = 0; i < D; i++) Y[row + i] = (X[row + i] - mean) * scale * gamma[i] + beta[i];
    }
    return Y;
  }

  /** Return which tokens count as padding: in some models, those with the id 0. */
  isPadding(ids) {
    return ids.map(id => this.config.mask_from === "tokens" && id === 0);
  }

  /** Return the embeddings, `(T, D)`. */
  embeddings(ids) {
    const { num_hiddens: D, first_segment_id: segment, embedding_norm: hasNorm } = this.config;
    const isPadding = this.isPadding(ids), X = new Float32Array(ids.length * D);
    const tables = ["token_embedding/embeddings", "segment_embedding/embeddings", "pos_embedding"];
    const [tokens, segments, positions] = tables.map(name => this.weights[`encoder/${name}`]);
    ids.forEach((id, place) => {
      const of = isPadding[place] ? 0 : segment;
      for (let i = 0; i < D; i++) {
        X[place * D + i] = tokens.values[id * D + i] + segments.values[of * D + i]
          + (positions ? positions.values[place * D + i] : 0);
      }
    });
    return hasNorm ? this.norm(X, "encoder/embedding_ln") : X;
  }

  /** Return the attended vectors of X, `(T, D)`, and the weights, `(N, T, T)`. */
  attend(X, isPadding, name) {
    const { num_hiddens: D, num_heads: N } = this.config, T = isPadding.length, H = D / N;
    const [q, k, v] = ["W_q", "W_k", "W_v"].map(part => this.dense(X, `${name}/${part}`));
    const weights = new Float32Array(N * T * T), attended = new Float32Array(T * D);
    for (let head = 0; head < N; head++) {
      for (let from = 0; from < T; from++) {
        const row = weights.subarray((head * T + from) * T, (head * T + from + 1) * T);
        for (let to = 0; to < T; to++) {
          let score = 0;
          for (let i = head * H; i < (head + 1) * H; i++) score += q[from * D + i] * k[to * D + i];
          row[to] = score / Math.sqrt(H) + (isPadding[to] ? -1e6 : 0);
        }
        softmax(row);
        for (let i = head * H; i < (head + 1) * H; i++) {
          let sum = 0;
          for (let to = 0; to < T; to++) sum += row[to] * v[to * D + i];
          attended[from * D + i] = sum;
        }
      }
    }
    return [this.dense(attended, `${name}/W_o`), weights];
  }

  /** Return the output of one block, `(T, D)`, and its attention, `(N, T, T)`. */
  block(X, isPadding, name) {
    const { norm_first: isFirst } = this.config;
    const before = (X, norm) => isFirst ? this.norm(X, `${name}/${norm}/ln`) : X;
    const addNorm = (X, Y, norm) => {
      const sum = X.map((x, i) => x + Y[i]);
      return isFirst ? sum : this.norm(sum, `${name}/${norm}/ln`);
    };
    const [attended, weights] = this.attend(before(X, "addnorm1"), isPadding, `${name}/attention`);
    X = addNorm(X, attended, "addnorm1");
    const hidden = this.dense(before(X, "addnorm2"), `${name}/ffn/dense1`).map(this.activation);
    return [addNorm(X, this.dense(hidden, `${name}/ffn/dense2`), "addnorm2"), weights];
  }

  /**
   * Return the hidden states of a text, L + 1 times `(T, D)`, and the attention, L times
   * `(N, T, T)`; or null as soon as `isOutdated()`.
   */
  async run(ids, isOutdated = () => false) {
    const isPadding = this.isPadding(ids), hidden = [this.embeddings(ids)], attention = [];
    let last = performance.now();
    for (let l = 0; l < this.config.num_blks; l++) {
      const [X, weights] = this.block(hidden[l], isPadding, `encoder/blk_${l}`);
      hidden.push(X);
      attention.push(weights);
      if (performance.now() - last > PAUSE_AFTER) {
        await new Promise(resolve => setTimeout(resolve));
        if (isOutdated()) return null;
        last = performance.now();
      }
    }
    // A norm after the last block belongs to the heads, so every block is read through it.
    const read = X => this.config.final_norm ? this.norm(X, "encoder/final_ln") : X;
    return { attention, hidden: hidden.map(read) };
  }

  /** Return the probabilities of all tokens for rows of hidden states, `(rows, D)`: `(rows, V)`. */
  probabilities(X) {
    const { mlm_head: head, tie_embeddings: isTied, vocab_size: V } = this.config;
    if (head === "mlp") {
      const { mlm_activation: name, mlm_layer_norm_epsilon: epsilon } = this.config;
      const hidden = this.dense(X, "mlm/mlp/dense").map(ACTIVATIONS[name] ?? this.activation);
      X = this.norm(hidden, "mlm/mlp/ln", epsilon ?? undefined);
    }
    const scores = isTied
      ? product(X, this.weights["encoder/token_embedding/embeddings"], this.weights["mlm/bias"])
      : this.dense(X, "mlm/mlp/logits");
    const rows = [];
    for (let i = 0; i < scores.length; i += V) rows.push(scores.subarray(i, i + V));
    rows.forEach(softmax);
    return rows;
  }

  /** Return the vector of a text from its encoded tokens, `(T, D)`. */
  pooled(X, ids, pooling) {
    const { num_hiddens: D } = this.config, isPadding = this.isPadding(ids);
    if (pooling === "cls") return X.slice(0, D);
    const rows = [...ids.keys()].filter(row => !isPadding[row]);
    return Float32Array.from({ length: D }, (_, i) => {
      const values = rows.map(row => X[row * D + i]);
      if (pooling === "max") return Math.max(...values);
      return values.reduce((sum, value) => sum + value) / rows.length;
    });
  }
}
