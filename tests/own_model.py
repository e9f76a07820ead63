"""A Keras model of one's own, as users assemble it around a `BERTModel`."""

import keras
import numpy as np
from keras import ops

import keras_bert_d2l as kb

MAX_LEN = 16
SIZES = (8, 16, 2, 1, 0.1, MAX_LEN)  # after the size of the vocabulary


def own_model(vocab_size, sizes=(None, None), **names):
    """Return a model with the heads of a `BERTModel`, and a head that also reads numbers.

    Args:
        vocab_size: Size of the vocabulary.
        sizes: Fixed numbers of tokens and of predicted positions.
        **names: Other names of inputs.
    """
    shapes = {"tokens": sizes[:1], "segments": sizes[:1], "valid_lens": ()}
    shapes |= {"pred_positions": sizes[1:], "numbers": (3,)}
    inputs = {
        name: keras.Input(shape, dtype="int32", name=names.get(name, name))
        for name, shape in shapes.items()
    }
    bert = kb.BERTModel(vocab_size, *SIZES, tie_embeddings=True, name="bert")
    encoded_X, mlm, nsp = bert(**{name: x for name, x in inputs.items() if name != "numbers"})
    numbers = keras.layers.IntegerLookup(vocabulary=[1, 2, -4, 5])(inputs["numbers"])
    numbers = ops.cast(numbers, encoded_X.dtype)
    risk = keras.layers.Dense(2)(ops.concatenate([encoded_X[:, 0], numbers], axis=-1))
    model = keras.Model([*inputs.values()], {"mlm": mlm, "nsp": nsp, "risk": risk})
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    return model


class Subclassed(keras.Model):
    """A model whose own code calls the layers of BERT."""

    def __init__(self, vocab_size):
        super().__init__()
        self.encoder = kb.BERTEncoder(vocab_size, *SIZES)
        self.mlm = kb.MaskLM(vocab_size, 8)

    def call(self, batch):
        encoded_X = self.encoder(batch["tokens"], batch["segments"], batch["valid_lens"])
        return self.mlm(encoded_X, batch["pred_positions"])
