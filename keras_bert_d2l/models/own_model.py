"""Keras models of one's own: the BERT encoder and the heads in them, as a `BERTModel`."""

import weakref
from typing import Any

import keras

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred, is_pooler
from keras_bert_d2l.models.batch_model import BatchModel
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.types import Tensor

_NEUTRAL = ("Cast", "Dropout", "Identity")  # layers that change nothing in predictions
_KNOWN = {"tokens", "segments", "valid_lens", "training"}
_FIRST = (str(((slice(None), 0),)), str(((slice(None), 0, slice(None)),)))  # in `X[:, 0]`
_SHARED: weakref.WeakKeyDictionary[keras.Model, BERTModel] = weakref.WeakKeyDictionary()


def is_functional(model: object) -> bool:
    """Return whether a model is a graph of layers, made by `keras.Model(inputs, outputs)`."""
    return hasattr(model, "_nodes_by_depth")


def layers_of_kind(model: keras.Model, kind: type[keras.layers.Layer]) -> list[Any]:
    """Return the layers of a class anywhere in a model, each once."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, kind)]


def shared_bert(model: Any) -> Any:
    """Return a `BERTModel` that shares the layers of a Keras model with one `BERTEncoder`.

    Heads that the model does not use like a `BERTModel` are missing. The next call for the same
    model returns the same `BERTModel`.

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
    for name, kind in (("mlm", MaskLM), ("nsp", NextSentencePred)):
        layers |= _head(model, name, kind, encoders[0])
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


def _head(model: keras.Model, name: str, kind: type, encoder: BERTEncoder) -> dict[str, Any]:
    """Return the head of a class, and its pooler, if the model uses them like a `BERTModel`."""
    found = layers_of_kind(model, kind)
    graphs = filter(is_functional, model._flatten_layers())
    levels = [level for graph in graphs for level in graph._nodes_by_depth.values()]
    calls = [node for level in levels for node in level if node.operation in found]
    if len(found) != 1 or len(calls) != 1:
        return {}
    *between, node = _origin(calls[0].input_tensors[0])
    if node.operation is not encoder or not _reads_text(node, with_segments=name == "nsp"):
        return {}
    layers = {name: found[0]}
    if name == "nsp":
        if not between or str(between.pop().arguments.args[1:]) not in _FIRST:
            return {}
        if between and is_pooler(between[-1].operation, encoder.config):
            layers["pooler"] = between.pop().operation
    return {} if between else layers


def _origin(tensor: Tensor) -> list[Any]:
    """Return the calls of layers that computed a tensor, back to the encoder or to an input.

    Keras records these calls for functional models. A call with several inputs is the last one.
    """
    calls: list[Any] = []
    while True:
        operation, index, output = tensor._keras_history
        node = operation._inbound_nodes[index]
        if is_functional(operation):
            tensor = operation.outputs[output]
            continue
        if type(operation).__name__ not in _NEUTRAL:
            calls.append(node)
        if isinstance(operation, BERTEncoder) or len(node.input_tensors) != 1:
            return calls
        [tensor] = node.input_tensors


def _reads_text(node: Any, *, with_segments: bool) -> bool:
    """Return whether an encoder gets inputs as they are, and no further masks or positions."""
    args, kwargs = node.arguments.args, node.arguments.kwargs
    tokens = args[0] if args else kwargs["tokens"]
    segments = args[1] if len(args) > 1 else kwargs.get("segments")
    read = (tokens, segments)[: 1 + with_segments]
    are_inputs = all(x is not None and _origin(x)[0].is_input for x in read)
    return len(args) <= len(_KNOWN) and kwargs.keys() <= _KNOWN and are_inputs
