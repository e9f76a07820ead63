"""Every code block of d2l.ai, section 15.8, run as printed, in order, like a notebook.

The blocks are those of the TensorFlow slide deck, verbatim except for the first import. The web
page differs in the arguments of its encoder blocks; `test_blocks.py` has both orders. (Sample code
of Dive into Deep Learning, modified MIT license.)
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

IMPORTS = """
from keras_bert_d2l import book as d2l
import tensorflow as tf
from tensorflow import keras
import numpy as np
"""

GET_TOKENS_AND_SEGMENTS = """
def get_tokens_and_segments(tokens_a, tokens_b=None):
    \"\"\"Get tokens of the BERT input sequence and their segment IDs.\"\"\"
    tokens = ['<cls>'] + tokens_a + ['<sep>']
    # 0 and 1 are marking segment A and B, respectively
    segments = [0] * (len(tokens_a) + 2)
    if tokens_b is not None:
        tokens += tokens_b + ['<sep>']
        segments += [1] * (len(tokens_b) + 1)
    return tokens, segments
"""

BERT_ENCODER = """
class BERTEncoder(keras.layers.Layer):
    \"\"\"BERT encoder.\"\"\"
    def __init__(self, vocab_size, num_hiddens, ffn_num_hiddens, num_heads,
                 num_blks, dropout, max_len=1000, **kwargs):
        super(BERTEncoder, self).__init__(**kwargs)
        self.token_embedding = keras.layers.Embedding(vocab_size, num_hiddens)
        self.segment_embedding = keras.layers.Embedding(2, num_hiddens)
        # In BERT, positional embeddings are learnable, thus we create a
        # trainable variable of positional embeddings that are long enough
        self.pos_embedding = self.add_weight(
            name='pos_embedding', shape=(1, max_len, num_hiddens),
            initializer='random_normal', trainable=True)
        norm_shape = [num_hiddens]
        # BERT's attention sublayers use biased projections; the default for
        # `TransformerEncoderBlock` is `bias=False`, so override here.
        self.blks = [d2l.TransformerEncoderBlock(
            num_hiddens, num_hiddens, num_hiddens, num_hiddens, norm_shape,
            ffn_num_hiddens, num_heads, dropout, bias=True)
            for _ in range(num_blks)]

    def call(self, tokens, segments, valid_lens, training=False, **kwargs):
        # Shape of `X` remains unchanged in the following code snippet:
        # (batch size, max sequence length, `num_hiddens`)
        X = self.token_embedding(tokens) + self.segment_embedding(segments)
        X = X + self.pos_embedding[:, :tf.shape(X)[1], :]
        for blk in self.blks:
            X = blk(X, valid_lens, training=training)
        return X
"""

MASK_LM = """
class MaskLM(keras.layers.Layer):
    \"\"\"The masked language model task of BERT.\"\"\"
    def __init__(self, vocab_size, num_hiddens, **kwargs):
        super(MaskLM, self).__init__(**kwargs)
        self.mlp = keras.Sequential([
            keras.layers.Dense(num_hiddens, activation='relu'),
            keras.layers.LayerNormalization(),
            keras.layers.Dense(vocab_size),
        ])

    def call(self, X, pred_positions, **kwargs):
        num_pred_positions = pred_positions.shape[1]
        pred_positions_flat = tf.reshape(pred_positions, [-1])
        batch_size = tf.shape(X)[0]
        batch_idx = tf.repeat(tf.range(batch_size), num_pred_positions)
        # Suppose that `batch_size` = 2, `num_pred_positions` = 3, then
        # `batch_idx` is `tf.tensor([0, 0, 0, 1, 1, 1])`
        indices = tf.stack([batch_idx, pred_positions_flat], axis=1)
        masked_X = tf.gather_nd(X, indices)
        masked_X = tf.reshape(masked_X, [batch_size, num_pred_positions, -1])
        mlm_Y_hat = self.mlp(masked_X)
        return mlm_Y_hat
"""

NEXT_SENTENCE_PRED = """
class NextSentencePred(keras.layers.Layer):
    \"\"\"The next sentence prediction task of BERT.\"\"\"
    def __init__(self, **kwargs):
        super(NextSentencePred, self).__init__(**kwargs)
        # `output` is reserved on Keras Layer (a read-only property), so use
        # `dense` for the head.
        self.dense = keras.layers.Dense(2)

    def call(self, X, **kwargs):
        # `X` shape: (batch size, `num_hiddens`)
        return self.dense(X)
"""

BERT_MODEL = """
class BERTModel(keras.Model):
    \"\"\"The BERT model.\"\"\"
    def __init__(self, vocab_size, num_hiddens, ffn_num_hiddens,
                 num_heads, num_blks, dropout, max_len=1000):
        super(BERTModel, self).__init__()
        self.encoder = BERTEncoder(vocab_size, num_hiddens, ffn_num_hiddens,
                                   num_heads, num_blks, dropout,
                                   max_len=max_len)
        self.hidden = keras.layers.Dense(num_hiddens, activation='tanh')
        self.mlm = MaskLM(vocab_size, num_hiddens)
        self.nsp = NextSentencePred()

    def call(self, tokens, segments, valid_lens=None, pred_positions=None,
             training=False, **kwargs):
        encoded_X = self.encoder(tokens, segments, valid_lens,
                                 training=training)
        if pred_positions is not None:
            mlm_Y_hat = self.mlm(encoded_X, pred_positions)
        else:
            mlm_Y_hat = None
        # The hidden layer of the MLP classifier for next sentence prediction.
        # 0 is the index of the '<cls>' token
        nsp_Y_hat = self.nsp(self.hidden(encoded_X[:, 0, :]))
        return encoded_X, mlm_Y_hat, nsp_Y_hat
"""

DEFINITIONS = (GET_TOKENS_AND_SEGMENTS, BERT_ENCODER, MASK_LM, NEXT_SENTENCE_PRED, BERT_MODEL)

# The blocks that use the definitions. Each ends with the value that the book prints.
USES = """
vocab_size, num_hiddens, ffn_num_hiddens, num_heads = 10000, 768, 1024, 4
ffn_num_input, num_blks, dropout = 768, 2, 0.2
encoder = BERTEncoder(vocab_size, num_hiddens, ffn_num_hiddens, num_heads,
                      num_blks, dropout)

tokens = tf.random.uniform((2, 8), 0, vocab_size, dtype=tf.int32)
segments = tf.constant([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]])
encoded_X = encoder(tokens, segments, None)
assert encoded_X.shape == (2, 8, 768)

mlm = MaskLM(vocab_size, num_hiddens)
mlm_positions = tf.constant([[1, 5, 2], [6, 1, 5]])
mlm_Y_hat = mlm(encoded_X, mlm_positions)
assert mlm_Y_hat.shape == (2, 3, 10000)

mlm_Y = tf.constant([[7, 8, 9], [10, 20, 30]])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction='none')
mlm_l = loss(tf.reshape(mlm_Y, [-1]), tf.reshape(mlm_Y_hat, (-1, vocab_size)))
assert mlm_l.shape == (6,)

nsp = NextSentencePred()
nsp_Y_hat = nsp(encoded_X[:, 0, :])
assert nsp_Y_hat.shape == (2, 2)

# PyTorch by default will not flatten the tensor as seen in mxnet where, if
# flatten=True, all but the first axis of input data are collapsed together
encoded_X = tf.reshape(encoded_X, (2, -1))
# input_shape for NSP: (batch size, `num_hiddens`)
nsp = NextSentencePred()
nsp_Y_hat = nsp(encoded_X)
assert nsp_Y_hat.shape == (2, 2)

nsp_y = tf.constant([0, 1])
nsp_l = loss(nsp_y, nsp_Y_hat)
assert nsp_l.shape == (2,)
"""

PAGES = {"printed": DEFINITIONS, "our names": ["from keras_bert_d2l.book import *"]}


@functools.cache
def names_of(page):
    """Return all names after the imports and the definitions."""
    names = {"__name__": "notebook"}
    for code in (IMPORTS, *PAGES[page]):
        exec(code, names)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_each_block_gives_the_value_printed_in_the_book(page):
    exec(USES, dict(names_of(page)))


@pytest.mark.parametrize("page", PAGES)
def test_15_8_4_tokens_and_segments(page):
    names = names_of(page)
    tokens_a, tokens_b = ["this", "movie", "is", "great"], ["i", "like", "it"]
    assert names["get_tokens_and_segments"](tokens_a, tokens_b) == (
        ["<cls>", "this", "movie", "is", "great", "<sep>", "i", "like", "it", "<sep>"],
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
    )
    assert names["get_tokens_and_segments"](tokens_a)[1] == [0] * 6
    assert tokens_a == ["this", "movie", "is", "great"]


@pytest.mark.slow
def test_15_8_6_our_model_returns_the_books_tuple_with_the_outputs_of_the_printed_model():
    printed, ours = (names_of(page)["BERTModel"](100, 16, 32, 2, 2, 0.2) for page in PAGES)
    rng = np.random.default_rng(0)
    arguments = (
        tf.constant(rng.integers(0, 100, (2, 8)), tf.int32),
        tf.constant([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]]),
        tf.constant([8.0, 5.0]),
        tf.constant([[1, 5, 2], [6, 1, 5]]),
    )
    outputs = printed(*arguments)
    ours.set_weights(printed.get_weights())
    assert [tuple(output.shape) for output in outputs] == [(2, 8, 16), (2, 3, 100), (2, 2)]
    for ours_of, printed_of in zip(ours(*arguments), outputs, strict=True):
        np.testing.assert_allclose(ours_of, printed_of, atol=1e-5)
    assert ours(*arguments[:2])[1] is None
