"""The parameters of *Dive into Deep Learning* (d2l.ai, sections 15.8 and 16.7): in and out.

The names are those of the PyTorch edition's state dict. A folder is laid out as the book's
`bert.small` and `bert.base`: `vocab.json`, the list of tokens, and the parameters beside it, in
`pretrained.safetensors` or `pretrained.npz`. (The book's own `pretrained.params` is a pickle.)
A single npz or safetensors file of the parameters is read too, without a vocabulary.

The book's model is fixed where ours has choices: two segments, ReLU, an epsilon of 1e-5.
"""

import json
import os
import pathlib
from typing import Any

import safetensors.numpy

from keras_bert_d2l.checkpoints.formats.lost_fields import check_kept
from keras_bert_d2l.checkpoints.formats.state_dicts import (
    PICKLE_SUFFIXES,
    SUFFIXES,
    StateDict,
    dense,
    layer_norm,
    refuse_pickle,
)
from keras_bert_d2l.checkpoints.weights.transfer import Checkpoint, Row, stored_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.vocab.vocab import Vocab

VOCAB_FILE, PARAMETERS = "vocab.json", "pretrained"  # the latter with one of `SUFFIXES`
PICKLE = "pretrained.params"
_PRESET = "d2l-torch"
_TOKENIZER_OPTIONS = {"lowercase": True}  # the book lowers every text
# What the book lets a reader choose. The initializer is of no use to weights that are there.
_FREE = (
    "vocab_size",
    "num_hiddens",
    "ffn_num_hiddens",
    "num_heads",
    "num_blks",
    "dropout",
    "max_len",
    "initializer",
)
_SIGNATURE = "encoder.blks.0.addnorm1.ln.weight"  # no other program's state dict has this name


def recognises(path: pathlib.Path) -> bool:
    """Tells whether a folder has the book's layout, or a file the book's names."""
    if path.is_dir():
        names = (PICKLE, *(PARAMETERS + suffix for suffix in SUFFIXES))
        return any((path / name).is_file() for name in names)
    if not path.is_file():
        return False
    # A pickle too, since `describe` says what to do with it.
    return path.suffix in PICKLE_SUFFIXES or (
        path.suffix in SUFFIXES and _SIGNATURE in StateDict(path).shapes()
    )


def describe(path: pathlib.Path, num_heads: int | None = None) -> Checkpoint:
    """Reads everything but the weights.

    Args:
        path: A folder or a file that `recognises` recognises.
        num_heads: Attention heads per block, where the file does not say it.

    Raises:
        FileNotFoundError: The file of the parameters is missing.
        ValueError: A file is damaged or a pickle, does not go with the other one, or the number
            of heads is unknown or does not fit.
    """
    state = StateDict(_parameters(path))
    vocab_size, num_hiddens = state.shape("encoder.token_embedding.weight", 2)
    config = state.config(
        _PRESET,
        num_heads,
        vocab_size=vocab_size,
        num_hiddens=num_hiddens,
        ffn_num_hiddens=state.shape("encoder.blks.0.ffn.dense1.bias", 1)[0],
        num_blks=state.num_blocks("encoder.blks."),
        max_len=state.shape("encoder.pos_embedding", 3)[1],
        num_segments=state.shape("encoder.segment_embedding.weight", 2)[0],
    )
    vocab = _read_vocab(path / VOCAB_FILE) if (path / VOCAB_FILE).is_file() else None
    description = "the parameters of d2l.ai"
    return Checkpoint(description, config, table(config), state, vocab, dict(_TOKENIZER_OPTIONS))


def table(config: BERTConfig) -> list[Row]:
    """Returns the book's name of every weight."""
    return [
        Row("encoder/token_embedding/embeddings", "encoder.token_embedding.weight"),
        Row("encoder/segment_embedding/embeddings", "encoder.segment_embedding.weight"),
        Row("encoder/pos_embedding", "encoder.pos_embedding"),
        *(
            row
            for index in range(config.num_blks)
            for row in _block(f"encoder/blk_{index}", f"encoder.blks.{index}")
        ),
        *dense("hidden", "hidden.0"),
        *dense("mlm/mlp/dense", "mlm.mlp.0"),
        *layer_norm("mlm/mlp/ln", "mlm.mlp.2"),
        *dense("mlm/mlp/logits", "mlm.mlp.3"),
        *dense("nsp/dense", "nsp.output"),
    ]


def _block(ours: str, theirs: str) -> list[Row]:
    rows = []
    for letter in "qkvo":
        rows += dense(f"{ours}/attention/W_{letter}", f"{theirs}.attention.W_{letter}")
    for number in (1, 2):
        rows += layer_norm(f"{ours}/addnorm{number}/ln", f"{theirs}.addnorm{number}.ln")
        rows += dense(f"{ours}/ffn/dense{number}", f"{theirs}.ffn.dense{number}")
    return rows


def write(
    model: BERTModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: dict[str, Any],
) -> None:
    """Writes a folder of the book's layout.

    The parameters are `pretrained.safetensors`, with the number of heads and the dropout in the
    metadata, which PyTorch passes over.

    Warns of a dropout that is not kept, which does not change the outputs.

    Raises:
        ValueError: The book has no model like this one; the field is named.
    """
    config = model.bert_config
    kept = {name: getattr(config, name) for name in _FREE}
    check_kept(config, BERTConfig.preset(_PRESET, **kept), "the book")
    weights = stored_weights(model, table(config))
    if vocab is not None:
        if not tokenizer_options.get("lowercase", True):
            raise ValueError(
                "The book's format cannot express lowercase=False: the book lowers every text. "
                "Save the model without its tokenizer, or in another format."
            )
        write_text(folder / VOCAB_FILE, json.dumps(vocab.tokens, ensure_ascii=False) + "\n")
    metadata = {name: str(getattr(config, name)) for name in ("num_heads", "dropout")}
    content = safetensors.numpy.save(weights, metadata=metadata)
    (folder / f"{PARAMETERS}.safetensors").write_bytes(content)


def _parameters(path: pathlib.Path) -> pathlib.Path:
    """Returns the file of the parameters in a folder, safetensors where there are both."""
    if not path.is_dir():
        if path.suffix in PICKLE_SUFFIXES:
            refuse_pickle(path)
        return path
    for suffix in SUFFIXES:
        if (path / (PARAMETERS + suffix)).is_file():
            return path / (PARAMETERS + suffix)
    if (path / PICKLE).exists():
        refuse_pickle(path / PICKLE)
    raise FileNotFoundError(
        f"{os.fspath(path)!r} has none of the book's files {PARAMETERS + SUFFIXES[0]!r} and "
        f"{PARAMETERS + SUFFIXES[1]!r}."
    )


def _read_vocab(file: pathlib.Path) -> Vocab:
    try:
        tokens = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(tokens, list):
            raise ValueError(f"it must be a JSON list of tokens. Received: {tokens!r:.80}.")
        return Vocab(tokens)
    except ValueError as error:  # among them those of the JSON and UTF-8 decoders
        raise ValueError(f"{os.fspath(file)!r} is no vocabulary of the book: {error}") from error
