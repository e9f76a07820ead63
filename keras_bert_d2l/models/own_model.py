"""Keras models of one's own: the BERT in them, as a `BERTModel`."""

import weakref
from typing import Any

import keras

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.models.batch_model import BatchModel
from keras_bert_d2l.models.bert import BERTModel

_SHARED: weakref.WeakKeyDictionary[keras.Model, BERTModel] = weakref.WeakKeyDictionary()


def is_functional(model: object) -> bool:
    """Return whether a model is a graph of layers, made by `keras.Model(inputs, outputs)`."""
    return hasattr(model, "_nodes_by_depth")


def layers_of_kind(model: keras.Model, kind: type[keras.layers.Layer]) -> list[Any]:
    """Return the layers of a class anywhere in a model, each once."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, kind)]


def shared_bert(model: Any) -> Any:
    """Return a `BERTModel` that shares the layers of a Keras model with one `BERTEncoder`.

    It has the heads of a `BERTModel` in the model; a head of one's own is passed to
    `BERTModel.from_layers`. The next call for the same model returns the same `BERTModel`.

    Args:
        model: The model. Anything else, also a model of this package, is returned unchanged.
    """
    if not isinstance(model, keras.Model) or isinstance(model, BatchModel):
        return model
    encoders = layers_of_kind(model, BERTEncoder)
    if len(encoders) != 1:
        return model
    layers = {"encoder": encoders[0]}
    for bert in layers_of_kind(model, BERTModel):
        layers |= bert.usable_heads
    bert = _SHARED.get(model)
    if bert is None or {"encoder": bert.encoder, **bert.usable_heads} != layers:
        bert = _SHARED[model] = BERTModel.from_layers(**layers)
    bert.tokenizer = getattr(model, "tokenizer", None)
    return bert


def checked_bert(bert: object) -> BERTModel:
    """Return the `BERTModel` for an argument `bert`, which may be a Keras model of one's own.

    Raises:
        ValueError: It does not have one encoder.
    """
    advice = "Load one with `load_pretrained(path).model`, or use `BERTModel.from_layers(encoder)`."
    return check_type("bert", shared_bert(bert), BERTModel, advice)
