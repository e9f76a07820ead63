"""Read and write the parameters of *Dive into Deep Learning* (d2l.ai, sections 15.8 and 16.7).

The names are those of the PyTorch edition's state dict. A folder has the layout of the book's
`bert.small` and `bert.base`: `vocab.json` is the list of tokens, and the parameters are in
`pretrained.safetensors` or `pretrained.npz`. (The book's own `pretrained.params` is a pickle.) A
single npz or safetensors file of parameters, without a vocabulary, can also be read.

Some options of our model are fixed in the book's model: two segments, ReLU, an epsilon of 1e-5.
"""

import os
import pathlib

from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.foreign_config import check_kept
from keras_bert_d2l.checkpoints.formats.state_dicts import (
    PICKLE_SUFFIXES,
    SUFFIXES,
    StateDict,
    refuse_pickle,
)
from keras_bert_d2l.checkpoints.weights.files import write_safetensors
from keras_bert_d2l.checkpoints.weights.tables import TORCH_ENDINGS, Names, expand
from keras_bert_d2l.checkpoints.weights.transfer import stored_weights
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.reading import MOST_VOCAB_BYTES, read_json
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab

VOCAB_FILE, PARAMETERS = "vocab.json", "pretrained"  # followed by one of `SUFFIXES`
PICKLE = "pretrained.params"
_PRESET = "d2l-torch"
# The arguments of the book's model, and `initializer`, which does not affect trained weights.
_FREE = """
    vocab_size num_hiddens ffn_num_hiddens num_heads num_blks dropout max_len initializer
""".split()
_NAMES: Names = {
    "encoder/token_embedding": "encoder.token_embedding",
    "encoder/segment_embedding": "encoder.segment_embedding",
    "encoder/pos_embedding": "encoder.pos_embedding",
    **{
        f"encoder/blk_{{}}/attention/W_{letter}": f"encoder.blks.{{}}.attention.W_{letter}"
        for letter in "qkvo"
    },
    "encoder/blk_{}/addnorm1/ln": "encoder.blks.{}.addnorm1.ln",
    "encoder/blk_{}/ffn/dense1": "encoder.blks.{}.ffn.dense1",
    "encoder/blk_{}/ffn/dense2": "encoder.blks.{}.ffn.dense2",
    "encoder/blk_{}/addnorm2/ln": "encoder.blks.{}.addnorm2.ln",
    "hidden": "hidden.0",
    "mlm/mlp/dense": "mlm.mlp.0",
    "mlm/mlp/ln": "mlm.mlp.2",
    "mlm/mlp/logits": "mlm.mlp.3",
    "nsp/dense": "nsp.output",
}
_SIGNATURE = "encoder.blks.0.addnorm1.ln.weight"  # no other known state dict has this name


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder has the book's layout, or a file has the book's weight names."""
    if path.is_dir():
        names = (PICKLE, *(PARAMETERS + suffix for suffix in SUFFIXES))
        return any((path / name).is_file() for name in names)
    if not path.is_file():
        return False
    # Pickles are included because the error of `describe` explains how to convert them.
    return path.suffix in PICKLE_SUFFIXES or (
        path.suffix in SUFFIXES and _SIGNATURE in StateDict(path).arrays.shapes
    )


def describe(path: pathlib.Path, num_heads: int | None = None) -> Checkpoint:
    """Read everything except the weights.

    Args:
        path: A folder or a file.
        num_heads: Number of attention heads per block, if the file does not store it.

    Raises:
        FileNotFoundError: The parameter file is missing.
        ValueError: A file is damaged, is a pickle or contradicts the other file, or the number of
            heads is unknown or does not match the sizes.
    """
    state = StateDict(_parameters(path))
    checkpoint = state.describe("the parameters of d2l.ai", _PRESET, num_heads, _NAMES)
    if not (path / VOCAB_FILE).is_file():
        return checkpoint
    vocab = _read_vocab(path / VOCAB_FILE)
    # The book lowercases every text.
    return checkpoint._replace(vocab=vocab, tokenizer_options={"lowercase": True})


def write(
    model: BERTModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
) -> None:
    """Write a folder with the book's layout.

    The parameters are written to `pretrained.safetensors`, with the number of heads and the
    dropout rate in the metadata, which PyTorch ignores. A warning is issued if a dropout rate
    cannot be stored. The outputs do not depend on it.

    Raises:
        ValueError: The book's format cannot express the model. The message names the field.
    """
    if model.missing_heads:
        raise ValueError(
            "The book's format requires every head, but the checkpoint of this model lacked "
            f"{sorted(model.missing_heads)}. Train the missing heads, or choose another format."
        )
    config = model.bert_config
    kept = {name: getattr(config, name) for name in _FREE}
    check_kept(config, BERTConfig.preset(_PRESET, **kept), "the book")
    weights = stored_weights(model, expand(config, _NAMES, TORCH_ENDINGS))
    if vocab is not None:
        if not tokenizer_options.get("lowercase", True):
            raise ValueError(
                "The book's format cannot express lowercase=False, because the book lowercases "
                "every text. Save the model without its tokenizer, or in another format."
            )
        write_json(folder / VOCAB_FILE, vocab.tokens, indent=None, ensure_ascii=False)
    metadata = {name: str(getattr(config, name)) for name in ("num_heads", "dropout")}
    write_safetensors(folder / f"{PARAMETERS}.safetensors", weights, metadata)


def _parameters(path: pathlib.Path) -> pathlib.Path:
    """Return the parameter file. In a folder, safetensors is preferred to npz."""
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
        f"{os.fspath(path)!r} contains neither of the book's files {PARAMETERS + SUFFIXES[0]!r} "
        f"and {PARAMETERS + SUFFIXES[1]!r}."
    )


def _read_vocab(file: pathlib.Path) -> Vocab:
    try:
        tokens = read_json(file, MOST_VOCAB_BYTES)
        if not isinstance(tokens, list):
            raise ValueError(f"it must be a JSON list of tokens. Received: {shown(tokens)}.")
        return Vocab(tokens)
    except ValueError as error:
        raise ValueError(f"{os.fspath(file)!r} is not a vocabulary of the book: {error}") from error
