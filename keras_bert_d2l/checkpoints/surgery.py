"""Extend the vocabulary, and change the positions, the blocks or the heads of a model.

Each public function returns a new model of a different size. Unless the number of blocks changes,
the encodings and logits are the same for the token ids and positions that both models have. The
given model and tokenizer are not changed, and the optimizer state is not carried over.

V: vocabulary size, D: hidden width.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind, tokenizer_of
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.checks import check_bool, check_integer, check_list, check_that, is_integer
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import without_initialization
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

# The weights with one entry per token, and the axis of these entries.
_VOCABULARY_AXES = {
    "encoder/token_embedding/embeddings": 0,
    "mlm/mlp/logits/kernel": 1,
    "mlm/mlp/logits/bias": 0,
    "mlm/bias": 0,
}
_POSITIONS = "encoder/pos_embedding"  # (1, max_len, D)
_BLOCK = re.compile(r"(?<=^encoder/blk_)\d+")
_INSIDE_A_WORD = "##"

Model = TypeVar("Model", BERTModel, TaskModel)


def add_tokens(
    model: BERTModel,
    tokens: Sequence[str],
    *,
    special: bool = False,
    tokenizer: Tokenizer | None = None,
) -> BERTModel:
    """Add tokens to the vocabulary of a model.

    The new tokens get the ids from V upward. In the embedding and in the MLM head, a new token is
    initialized to the mean of the pieces that the old tokenizer splits it into. A word that was
    unknown is initialized to a copy of the unknown token.

    Args:
        model: The model.
        tokens: Tokens to add: complete words, or `##` followed by a part of a word that is not at
            its start. The tokenizer never produces a word that it splits, such as one with
            punctuation, or lowercases: add such tokens with `special`.
        special: Whether the tokens stay whole in a text, whatever they contain, like `"[MASK]"`.
            They are added to the tokenizer's `special_tokens`. Tokenizers other than WordPiece
            keep all added tokens whole.
        tokenizer: The tokenizer of the model. Defaults to `model.tokenizer`.

    Returns:
        A new model with V + `len(tokens)` tokens, and its new tokenizer as `tokenizer`.

    Raises:
        ValueError: There is no tokenizer, its vocabulary does not have the model's size, or a token
            is already in it, is given twice or is not valid.

    Example:

    ```python
    import keras_bert_d2l as kb

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = kb.Tokenizer(kb.Vocab([*specials, "play", "##er"]))
    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=7))
    larger = kb.add_tokens(model, ["player"], tokenizer=tokenizer)
    assert larger.tokenizer.tokenize(["player"]).to_list() == [[7]]
    larger = kb.add_tokens(larger, ["[E1]", "[/E1]"], special=True)
    assert larger.tokenizer.tokenize(["[E1]Player[/E1]"]).to_list() == [[8, 7, 9]]
    ```
    """
    check_kind(model, BERTModel)
    tokenizer = tokenizer_of(model, tokenizer)
    vocab = tokenizer.vocab.with_tokens(tokens, special)
    new = vocab.tokens[len(tokenizer.vocab) :]
    pieces = [_pieces(token, tokenizer) for token in new]
    options = tokenizer.options
    if check_bool("special", special) and vocab.kind == "wordpiece":
        options["special_tokens"] = [*options.get("special_tokens", ()), *new]
    larger = Tokenizer(vocab, **options)

    def with_means(weight: np.ndarray) -> np.ndarray:
        means = [weight[ids].mean(axis=0, dtype=np.float64) for ids in pieces]
        return np.concatenate([weight, np.reshape(means, (-1, *weight.shape[1:]))])

    return _with_vocabulary(model, larger, with_means)


def resize_positions(model: BERTModel, max_len: int) -> BERTModel:
    """Change the `max_len` of a model.

    The embeddings of new positions repeat the old ones in the same order, so neighboring positions
    keep their relation to each other. A smaller `max_len` drops the last positions, for example
    those that were never trained. Sinusoidal positions are computed for the new length.

    Args:
        model: The model.
        max_len: The new maximum length, at least 1.

    Returns:
        A new model. For texts that both models accept, its outputs are bitwise identical.

    Raises:
        ValueError: `max_len` is not a positive integer.

    Example:

    ```python
    import keras_bert_d2l as kb

    config = kb.BERTConfig.preset("tiny", vocab_size=100, max_len=128)
    longer = kb.resize_positions(kb.BERTModel.from_bert_config(config), max_len=256)
    assert longer.bert_config.max_len == 256
    ```
    """
    check_kind(model, BERTModel)
    config = dataclasses.replace(model.bert_config, max_len=max_len)
    first = model.bert_config.first_position_id
    rows = np.append(np.arange(first), first + np.arange(max_len) % model.bert_config.max_len)
    return _rebuilt(model, config, {_POSITIONS: lambda weight: weight[:, rows]})


def keep_blocks(model: Model, blocks: Sequence[int]) -> Model:
    """Return a smaller model that has only some blocks of the encoder.

    It has the embeddings, the heads and the task of the model. Without further training, it is
    worse than the model: `distill` trains it.

    Source: Sanh et al. 2019 (DistilBERT), section 3, which keeps every second block.

    Args:
        model: A `BERTModel` or a task model.
        blocks: Numbers of the blocks to keep, from 1, in ascending order.

    Returns:
        A new model with `len(blocks)` blocks.

    Raises:
        ValueError: A block does not exist, or the blocks are not in ascending order.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=4, dropout=0.1, max_len=16)
    assert kb.keep_blocks(model, [2, 4]).bert_config.num_blks == 2
    ```
    """
    check_kind(model, BERTModel, TaskModel)
    check_list("blocks", blocks, "numbers of blocks")
    last = model.bert_config.num_blks
    in_order = [n for n in range(1, last + 1) if n in blocks]
    is_right = blocks and all(map(is_integer, blocks)) and list(blocks) == in_order
    expected = f"numbers from 1 to {last}, the model's last block, in ascending order"
    check_that(bool(is_right), "blocks", expected, blocks)
    return _with_blocks(model, blocks)


def stack_blocks(model: Model, times: int = 2) -> Model:
    """Return a deeper model that repeats the blocks of the encoder.

    With 4 blocks and `times=2`, they are the blocks 1, 2, 3, 4, 1, 2, 3, 4. The new model is worse
    than the given one until it is trained further.

    Source: Gong et al. 2019, Efficient Training of BERT by Progressively Stacking. There, this took
    less time than training a deep model from the start.

    Args:
        model: A `BERTModel` or a task model.
        times: Number of copies of each block.

    Returns:
        A new model with `times` times as many blocks.

    Raises:
        ValueError: `times` is not a positive integer, or the model has no blocks.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=2, dropout=0.1, max_len=16)
    assert kb.stack_blocks(model).bert_config.num_blks == 4
    ```
    """
    check_kind(model, BERTModel, TaskModel)
    check_integer("times", times, 1)
    number: int = model.bert_config.num_blks
    if not number:
        raise ValueError("`stack_blocks` needs a model with blocks. Received: num_blks=0.")
    return _with_blocks(model, [*range(1, number + 1)] * times)


def _with_blocks(model: Model, blocks: Sequence[int]) -> Model:
    """Return a model with copies of the given blocks, numbered from 1, in this order."""
    config = dataclasses.replace(model.bert_config, num_blks=len(blocks))
    if config.shared_blocks:
        return _rebuilt(model, config, {})
    every = config.global_attention_every if config.local_attention else 1
    is_right = all((block - 1 - place) % every == 0 for place, block in enumerate(blocks))
    is_right &= not config.skip_first_norm or [n for n, x in enumerate(blocks) if x == 1] == [0]
    expected = "such that every place keeps its kind of block (first, local or global), such as "
    expected += str([*range(1, len(blocks) + 1)])
    check_that(is_right, "blocks", expected, blocks)

    def old_name(name: str) -> str:
        return _BLOCK.sub(lambda match: str(blocks[int(match[0])] - 1), name)

    return _rebuilt(model, config, {}, old_name)


def _with_vocabulary(
    model: BERTModel, tokenizer: Tokenizer, change: Callable[[np.ndarray], np.ndarray]
) -> BERTModel:
    """Return a model with a different tokenizer. `change` acts on axis 0, the tokens."""

    def along(axis: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda weight: np.moveaxis(change(np.moveaxis(weight, axis, 0)[:used]), 0, axis)

    used = model.bert_config.num_tokens  # the other rows are dropped
    vocab, pad_id = tokenizer.vocab, model.bert_config.pad_id
    config = dataclasses.replace(
        model.bert_config,
        vocab_size=len(vocab),
        num_tokens=None,
        pad_id=vocab.pad_id if pad_id else 0,
    )
    changes = {name: along(axis) for name, axis in _VOCABULARY_AXES.items()}
    new = _rebuilt(model, config, changes)
    new.tokenizer = tokenizer
    return new


def with_config(model: BERTModel, config: BERTConfig) -> BERTModel:
    """Return a model with other heads or dropout rates, and the weights that both have.

    The other weights, such as those of a new pooler, are random.
    """
    changed = BERTModel.from_bert_config(config)
    changed.tokenizer, changed.missing_heads = model.tokenizer, model.missing_heads
    changed.sparse = model.sparse
    weights = named_weights(model)
    for name, weight in named_weights(changed).items():
        if name in weights:
            weight.assign(weights[name])
    return changed


def _rebuilt(
    model: Model,
    config: BERTConfig,
    changes: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    old_name: Callable[[str], str] = str,
) -> Model:
    """Return a model with the given configuration and the weights of `model` after `changes`.

    `changes` must contain a function for every weight whose shape differs. `old_name` returns the
    name in `model` of a weight of the new model.

    Raises:
        ValueError: The model is quantized or has LoRA.
    """
    if model.has_lora:
        raise ValueError(
            "The model must have no LoRA. Received: a model with LoRA; call `merge_lora` first."
        )
    with without_initialization():
        new = BERTModel.from_bert_config(config, dtype=model.dtype_policy)
        if isinstance(model, TaskModel):
            new = type(model)(new, **model.task_config())
    old_weights = named_weights(model)
    for name, weight in named_weights(new).items():
        value = keras.ops.convert_to_numpy(old_weights[old_name(name)])
        weight.assign(changes[name](value) if name in changes else value)
    new.tokenizer = model.tokenizer
    if isinstance(model, BERTModel):
        new.missing_heads, new.sparse = model.missing_heads, model.sparse
    return new


def _pieces(token: str, tokenizer: Tokenizer) -> list[int]:
    """Split a new token greedily into the longest old pieces, and return their ids."""
    vocab = tokenizer.vocab
    if vocab.kind != "wordpiece" or not token.startswith(_INSIDE_A_WORD):
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
