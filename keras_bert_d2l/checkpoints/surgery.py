"""Vocabulary and positions of a model that exists: a model in, one of another size out.

What the model answered before, it answers after: for the token ids and positions that both have,
encodings and logits are the same. The model that goes in is not changed, and neither is its
tokenizer; the state of an optimiser is not taken along.

V vocabulary, D hidden width.
"""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import check_bert, check_vocabulary
from keras_bert_d2l.checkpoints.weights.transfer import first, named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.initializers import without_initialization
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab

# The weights with one entry for each token, and the axis of it.
_VOCABULARY_AXES = {
    "encoder/token_embedding/embeddings": 0,
    "mlm/mlp/logits/kernel": 1,
    "mlm/mlp/logits/bias": 0,
    "mlm/bias": 0,
}
_POSITIONS = "encoder/pos_embedding"  # (1, max_len, D)
_INSIDE_A_WORD = "##"


def add_tokens(
    model: BERTModel, tokenizer: Tokenizer, tokens: Sequence[str]
) -> tuple[BERTModel, Tokenizer]:
    """Gives a model more tokens.

    They get the ids from V on. A new token begins as the mean of the pieces that it was made of so
    far, in the embedding and in the MLM head; a word that was unknown begins as the unknown token.

    Args:
        model: The model.
        tokenizer: The model's tokenizer.
        tokens: Tokens that the vocabulary does not have: words, or `##` and the inside of a word.

    Returns: a new model with V + `len(tokens)` tokens, and its tokenizer.

    Raises:
        ValueError: The tokenizer is not the model's, or a token is in the vocabulary already, is
            given twice or is no token.
    """
    check_bert(model)
    check_vocabulary(model, tokenizer)
    vocab = tokenizer.vocab.with_tokens(tokens)
    pieces = [_pieces(token, tokenizer) for token in vocab.tokens[len(tokenizer.vocab) :]]
    larger = Tokenizer(vocab, **tokenizer.options)
    _warn_of_unreachable(larger, vocab.tokens[len(tokenizer.vocab) :])

    def with_means(weight: np.ndarray) -> np.ndarray:
        means = [weight[ids].mean(axis=0, dtype=np.float64) for ids in pieces]
        return np.concatenate([weight, np.reshape(means, (-1, *weight.shape[1:]))])

    return _with_vocabulary(model, vocab, with_means), larger


def drop_tokens(
    model: BERTModel, tokenizer: Tokenizer, tokens: Iterable[str]
) -> tuple[BERTModel, Tokenizer]:
    """Takes tokens away from a model, for instance those that a corpus never uses.

    The tokens that stay keep their order, and get the ids 0, 1, 2 and so on; the special tokens
    always stay. A text with a token that is gone is split into smaller pieces, or its word is
    unknown.

    Args:
        model: The model.
        tokenizer: The model's tokenizer.
        tokens: Tokens to drop.

    Returns: a new model with fewer tokens, and its tokenizer.

    Raises:
        ValueError: The tokenizer is not the model's, or a token is not in the vocabulary.
    """
    check_bert(model)
    check_vocabulary(model, tokenizer)
    vocab = tokenizer.vocab.without_tokens(tokens)
    kept = tokenizer.vocab[list(vocab.tokens)]
    smaller = Tokenizer(vocab, **tokenizer.options)
    return _with_vocabulary(model, vocab, lambda weight: weight[kept]), smaller


def extend_positions(model: BERTModel, max_len: int) -> BERTModel:
    """Gives a model a longer `max_len`.

    The new positions begin as the old ones, from the first again, so that neighbours are related
    as they are in the old ones. Sinusoidal positions are computed, and go on as they are.

    Args:
        model: The model.
        max_len: The new length, at least the old one.

    Returns: a new model; what it answers up to the old length is the same to the bit.

    Raises:
        ValueError: `max_len` is smaller than the model's.
    """
    check_bert(model)
    old = model.bert_config.max_len
    if max_len < old:
        raise ValueError(
            f"`max_len` must be at least that of the model, {old}. Received: max_len={max_len}; "
            "a model takes shorter sequences as it is."
        )
    config = dataclasses.replace(model.bert_config, max_len=max_len)
    rows = np.arange(max_len) % old
    return _rebuilt(model, config, {_POSITIONS: lambda weight: weight[:, rows]})


def _with_vocabulary(
    model: BERTModel, vocab: Vocab, change: Callable[[np.ndarray], np.ndarray]
) -> BERTModel:
    """Returns a model of another vocabulary; `change` acts on the first axis, the tokens."""

    def along(axis: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda weight: np.moveaxis(change(np.moveaxis(weight, axis, 0)), 0, axis)

    config = dataclasses.replace(model.bert_config, vocab_size=len(vocab))
    return _rebuilt(model, config, {name: along(axis) for name, axis in _VOCABULARY_AXES.items()})


def _rebuilt(
    model: BERTModel,
    config: BERTConfig,
    changes: Mapping[str, Callable[[np.ndarray], np.ndarray]],
) -> BERTModel:
    """Returns a model of another configuration, with the weights of `model`, some of them changed.

    Weights of another shape than before without a change would be an error of `assign`.
    """
    with without_initialization():
        new = BERTModel.from_bert_config(config, dtype=model.dtype_policy)
    old_weights = named_weights(model)
    for name, weight in named_weights(new).items():
        value = keras.ops.convert_to_numpy(old_weights[name])
        weight.assign(changes[name](value) if name in changes else value)
    return new


def _pieces(token: str, tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of the longest old pieces, from the left, that make up a new token."""
    vocab = tokenizer.vocab
    if not token.startswith(_INSIDE_A_WORD):
        return tokenizer.tokenize([token]).to_list()[0] or [vocab.unk_id]
    ids, rest = [], token.removeprefix(_INSIDE_A_WORD)
    while rest:
        ends = range(len(rest), 0, -1)
        end = next((end for end in ends if _INSIDE_A_WORD + rest[:end] in vocab), None)
        if end is None:
            return [vocab.unk_id]
        ids.append(vocab[_INSIDE_A_WORD + rest[:end]])
        rest = rest[end:]
    return ids or [vocab.unk_id]


def _warn_of_unreachable(tokenizer: Tokenizer, tokens: Sequence[str]) -> None:
    """Warns of new tokens that no text becomes, since texts are split before they are looked up."""
    words = [token for token in tokens if not token.startswith(_INSIDE_A_WORD)]
    if not words:
        return
    made = tokenizer.tokenize(words).to_list()
    never = [w for w, ids in zip(words, made, strict=True) if ids != [tokenizer.vocab[w]]]
    if never:
        warnings.warn(
            f"No text becomes the new tokens {first(never)}: the tokenizer splits them at spaces "
            "and punctuation, or lowers them. Use their ids, or add what it makes of them.",
            stacklevel=3,
        )
