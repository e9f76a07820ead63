"""A Keras model of one's own, as users assemble it from the layers of the package."""

import keras
import numpy as np
from keras import ops

import keras_bert_d2l as kb

SIZES = {"num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2, "num_blks": 1, "dropout": 0.1}
MAX_LEN = 16


def own_inputs(length=None, num_positions=None):
    """Return the inputs of a model by name, with a numeric feature besides those of a text."""
    return {
        "tokens": keras.Input((length,), dtype="int32", name="tokens"),
        "segments": keras.Input((length,), dtype="int32", name="segments"),
        "valid_lens": keras.Input((), dtype="int32", name="valid_lens"),
        "pred_positions": keras.Input((num_positions,), dtype="int32", name="pred_positions"),
        "numbers": keras.Input((3,), name="numbers"),
    }


def own_model(vocab_size, *, between=None, before=None, length=None, num_positions=None, **options):
    """Return a model with two heads of BERT and one of its own, of distinct random weights.

    Args:
        vocab_size: Size of the vocabulary.
        between: A layer between the encoder and the MLM head.
        before: A layer that changes the tokens.
        length: Fixed number of tokens per row.
        num_positions: Fixed number of predicted positions.
        **options: Further arguments of the encoder.
    """
    inputs = own_inputs(length, num_positions)
    encoder = kb.BERTEncoder(vocab_size, **SIZES, max_len=MAX_LEN, name="encoder", **options)
    tokens = inputs["tokens"] if before is None else before(inputs["tokens"])
    encoded_X = encoder(tokens, inputs["segments"], inputs["valid_lens"])
    read_X = encoded_X if between is None else between(encoded_X)
    mlm = kb.MaskLM(vocab_size, 8, token_embedding=encoder.token_embedding, name="mlm")
    pooled = keras.layers.Dense(8, activation="tanh", name="pooler")(encoded_X[:, 0])
    risk_X = ops.concatenate([encoded_X[:, 0], ops.cast(inputs["numbers"], encoded_X.dtype)], -1)
    outputs = {
        "mlm": mlm(read_X, inputs["pred_positions"]),
        "nsp": kb.NextSentencePred(name="nsp")(pooled),
        "risk": keras.layers.Dense(2, name="risk")(risk_X),
    }
    return randomized(keras.Model(inputs, outputs, name="own"))


def randomized(model):
    """Give a model weights of which no two are equal, and return it."""
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    return model


class Subclassed(keras.Model):
    """A model whose own code calls the layers of BERT."""

    def __init__(self, vocab_size):
        super().__init__()
        self.encoder = kb.BERTEncoder(vocab_size, **SIZES, max_len=MAX_LEN)
        self.mlm = kb.MaskLM(vocab_size, 8)

    def call(self, batch):
        encoded_X = self.encoder(batch["tokens"], batch["segments"], batch["valid_lens"])
        return self.mlm(encoded_X, batch["pred_positions"])
