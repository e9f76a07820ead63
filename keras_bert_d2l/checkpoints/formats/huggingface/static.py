"""Read and write a `StaticEmbedding` of sentence-transformers: a table with one vector per token.

The vector of a text is the mean of the vectors of its tokens. The model is a BERT without blocks
and positions, whose `TextEmbedder` skips `[CLS]` and `[SEP]`, which such models do not add.

Source: github.com/huggingface/sentence-transformers,
`sentence_transformer/modules/static_embedding.py`.
"""

import pathlib

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays, write_safetensors
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, step_weights, task_fields
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    STATIC,
    WEIGHTS_FILE,
    fields_of,
    open_module,
    read_array,
    read_embedding,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.checkpoints.formats.huggingface.written_modules import write_modules
from keras_bert_d2l.checkpoints.weights import Row, stored_weights, weight_names
from keras_bert_d2l.checks import check_integer, check_that, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import MOST_VOCAB_BYTES, errors_naming
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, JSON_FILE, Vocab
from keras_bert_d2l.types import ConfigDict

_LONGEST = 2**20  # tokens in a row; such models truncate no text
_TABLE, _OURS = "embedding.weight", "encoder/token_embedding/embeddings"
_ADDED = 2  # tokens that a row has besides those of the text


def static_config(vocab_size: int, width: int, *, pad_id: int, max_len: int) -> BERTConfig:
    """Return the architecture of a BERT that only looks up the vectors of tokens."""
    return BERTConfig(
        vocab_size,
        width,
        ffn_num_hiddens=1,
        num_heads=1,
        num_blks=0,
        dropout=0.0,
        max_len=max_len,
        num_segments=0,
        pad_id=pad_id,
        positions="none",
        pooler=False,
        next_sentence=False,
        mlm_head="linear",
        tie_embeddings=True,
    )


def describe(path: pathlib.Path, folder: pathlib.Path, *, tokenizer: bool) -> Checkpoint:
    """Read a folder, with the arguments of `folder.describe`, and its table in `folder`."""
    stored = open_module(folder)
    name = _TABLE if _TABLE in stored.shapes else "embeddings"  # of model2vec
    table = read_array(stored, name)
    with errors_naming(folder):
        is_table = table.ndim == 2 and stored.shapes.keys() == {name}
        check_that(is_table, _TABLE, "the only weights, with a vector per token", stored.shapes)
    vocab, options, unsupported = read_tokenizer(path) if tokenizer else (None, {}, "")
    if vocab is not None and set(vocab.tokens[len(table) :]) <= set(GOOGLE_SPECIALS):
        table = np.pad(table, ((0, max(0, len(vocab) - len(table))), (0, 0)))
    with errors_naming(folder / JSON_FILE):
        truncation = fields_of(folder / JSON_FILE, MOST_VOCAB_BYTES).get("truncation")
        fields = truncation if isinstance(truncation, dict) else {"max_length": _LONGEST}
        max_len = check_integer("max_length", fields.get("max_length"), 1) + _ADDED
    pad_id = 0 if vocab is None else vocab.pad_id
    config = static_config(*table.shape, pad_id=pad_id, max_len=max_len)
    embedding, weights = read_embedding(path, max_len, {})
    return Checkpoint(
        description=f"sentence-transformers {STATIC}",
        config=config,
        table=[*_rows(config), Row("mlm/bias", "mlm/bias")],
        arrays=NamedArrays(stored.source, {_OURS: table.shape}, {_OURS: "F32"}, lambda name: table),
        vocab=vocab,
        tokenizer_options=options,
        unsupported=unsupported,
        embedding={**(embedding or {}), "max_len": None},
        step_weights=weights,
    )


def _rows(config: BERTConfig) -> list[Row]:
    return [Row(name, name) for name in weight_names(config, ("encoder",))]


def is_table(model: BERTModel | TaskModel) -> bool:
    """Return whether a model computes what a `StaticEmbedding` does."""
    config, fields = model.bert_config, task_fields(model) or {}
    is_bare = config.num_blks == 0 and config.positions == "none" and config.num_segments < 2
    is_bare &= not (config.embedding_norm or config.final_norm or config.embedding_width)
    is_mean = fields.get("pooling") == "mean" and not fields.get("include_special", True)
    return is_bare and is_mean and fields["long_texts"] == "cut"


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
) -> None:
    """Write a folder of a model for which `is_table` holds, with the arguments of `folder.write`.

    Raises:
        ValueError: There is no tokenizer.
    """
    config, fields = model.bert_config, task_fields(model) or {}
    if vocab is None:
        raise wrong("tokenizer", f"that of the model, for a {STATIC}", None)
    steps = [Row(name, name) for names in step_weights(fields) for name in names]
    weights = stored_weights(model, [*_rows(config), *steps])
    table = weights[_OURS] + weights.get("encoder/segment_embedding/embeddings", np.zeros((1, 1)))
    stored = {_TABLE: table.astype(np.float32)}
    write_safetensors(folder / WEIGHTS_FILE, stored, {"format": "pt"})
    write_tokenizer(folder, vocab, tokenizer_options)
    max_len = fields["max_len"] or config.max_len
    if max_len < _LONGEST:
        found: ConfigDict = fields_of(folder / JSON_FILE, MOST_VOCAB_BYTES)
        side = tokenizer_options.get("truncation_side", "right").capitalize()
        how = {"direction": side, "strategy": "LongestFirst", "stride": 0}
        found["truncation"] = {"max_length": max_len - _ADDED, **how}
        write_json(folder / JSON_FILE, found, ensure_ascii=False)
    write_modules(folder, [STATIC], config.num_hiddens, fields, weights)
