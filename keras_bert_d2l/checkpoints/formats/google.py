"""Read the checkpoint folders of google-research/bert.

A folder contains

- `bert_config.json`: the architecture, in the fields of `modeling.BertConfig`;
- `vocab.txt`: one token per line;
- `bert_model.ckpt.index` and `bert_model.ckpt.data-00000-of-00001`, under this or a different
  prefix: the variables under their names in `modeling.py` and `run_pretraining.py`, and in
  checkpoints of a training run also the optimizer state;
- often `checkpoint`, which names the latest prefix.

The files do not record the graph, the case of the vocabulary or the kind of model. How a checkpoint
and the files beside it are found is the same for `model_garden`.

Source: github.com/google-research/bert, modeling.py, run_pretraining.py and optimization.py.
"""

import dataclasses
import os
import pathlib
import unicodedata
from collections.abc import Mapping

import tensorflow as tf

from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.formats import foreign_config
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, parts_of, unnamed_labels
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf
from keras_bert_d2l.checkpoints.weights import Names, Row, first_few
from keras_bert_d2l.checks import check_choice, check_that
from keras_bert_d2l.config import Activation, BERTConfig
from keras_bert_d2l.reading import errors_naming, has_file, read_json_object
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE, VOCAB_FILE, PREFIX = "bert_config.json", "vocab.txt", "bert_model.ckpt"

# Remedies for a checkpoint of Google without `bert_config.json`, and for models of Keras 2.
RENAME_CONFIG = f"If it is one of google-research/bert, rename its config.json to {CONFIG_FILE}."
SAVE_AS_HDF5 = (
    "If it is a BERT of transformers in Keras 2, call `model.save_weights('tf_model.h5')` and "
    "`bert.config.save_pretrained(folder)` there, and pass the folder with both files."
)

# Lowercasing changes 29 % of the pieces in Google's cased vocabulary and none in the uncased one.
# The threshold is above 0 because users replace unused pieces with their own words, which may
# contain uppercase letters.
_LEAST_CASED = 0.05

FIELDS: foreign_config.FieldTable = {  # of bert_config.json
    "vocab_size": ("vocab_size", None),
    **foreign_config.GOOGLE_FIELDS,
    "type_vocab_size": ("num_segments", 16),
}
_ACTIVATIONS: dict[str, Activation] = {  # `get_activation` of modeling.py, and of the Model Garden
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
    "gelu": "gelu_tanh",
}

# Dense kernels have the shape (in, out), as in Keras, except the kernel of the next-sentence head.
# Column 0 of its logits means "is next".
_NAMES: Names = {
    "encoder/token_embedding": "bert/embeddings/word_embeddings",
    "encoder/segment_embedding": "bert/embeddings/token_type_embeddings",
    "encoder/pos_embedding": ("bert/embeddings/position_embeddings", weights.POSITIONS),
    "encoder/embedding_ln": "bert/embeddings/LayerNorm",
    "encoder/blk_{}/attention/W_q": "bert/encoder/layer_{}/attention/self/query",
    "encoder/blk_{}/attention/W_k": "bert/encoder/layer_{}/attention/self/key",
    "encoder/blk_{}/attention/W_v": "bert/encoder/layer_{}/attention/self/value",
    "encoder/blk_{}/attention/W_o": "bert/encoder/layer_{}/attention/output/dense",
    "encoder/blk_{}/addnorm1/ln": "bert/encoder/layer_{}/attention/output/LayerNorm",
    "encoder/blk_{}/ffn/dense1": "bert/encoder/layer_{}/intermediate/dense",
    "encoder/blk_{}/ffn/dense2": "bert/encoder/layer_{}/output/dense",
    "encoder/blk_{}/addnorm2/ln": "bert/encoder/layer_{}/output/LayerNorm",
    "hidden": "bert/pooler/dense",
    "mlm/mlp/dense": "cls/predictions/transform/dense",
    "mlm/mlp/ln": "cls/predictions/transform/LayerNorm",
    "mlm/bias": "cls/predictions/output_bias",
    "nsp/dense/kernel": ("cls/seq_relationship/output_weights", weights.SWAPPED_TRANSPOSED),
    "nsp/dense/bias": ("cls/seq_relationship/output_bias", weights.SWAPPED),
}

_SIGNATURE = "bert/embeddings/word_embeddings"
# The heads of run_classifier.py and run_squad.py.
_CLASSIFIER, _SQUAD, _POOLER = "output_weights", "cls/squad/output_weights", "bert/pooler/"
# The state of Google's optimizer and of tf.train.AdamOptimizer: two slots for every variable, the
# number of steps, and powers.
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_STEPS = ("global_step", "beta1_power", "beta2_power")


def read_config(path: pathlib.Path, fields: ConfigDict) -> BERTConfig:
    """Return the architecture that the fields of a `bert_config.json` describe.

    A missing field gets the default of Google's code. Google's activation `"gelu"` is the tanh
    approximation.

    Raises:
        ValueError: A field is missing, unsupported or out of range.
    """
    with errors_naming(path, " cannot be read"):
        foreign_config.check_others(fields, FIELDS)
        check_that("vocab_size" in fields, "vocab_size", "in the file", sorted(fields))
        ours = foreign_config.our_fields(fields, FIELDS)
        activation = activation_of(fields, "hidden_act")
        return BERTConfig.preset("google", **ours, activation=activation)


def activation_of(fields: ConfigDict, name: str) -> Activation:
    """Return our name of an activation of Google's programs."""
    activation = str(fields.get(name, "gelu") or "linear").lower()
    return _ACTIVATIONS[check_choice(name, activation, tuple(_ACTIVATIONS))]


def table(config: BERTConfig, task: ConfigDict | None = None) -> list[Row]:
    """Return a row with Google's name and layout for every weight."""
    kernel = _SQUAD if task and task["kind"] == "QuestionAnswerer" else _CLASSIFIER
    head: Names = {
        "head/kernel": (kernel, weights.TRANSPOSED),
        "head/bias": kernel.replace("weights", "bias"),
    }
    return weights.expand(config, {**_NAMES, **head}, weights.TENSORFLOW_ENDINGS, parts_of(task))


def _task(shapes: Mapping[str, tuple[int, ...]]) -> ConfigDict | None:
    """Return the task of a checkpoint, whose labels have no names, or `None`."""
    if _SQUAD in shapes:
        return {"kind": "QuestionAnswerer"}
    is_sentence = _CLASSIFIER in shapes
    return sentence_task(shapes[_CLASSIFIER][0]) if is_sentence else None


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder or a checkpoint prefix looks like Google's."""
    if path.is_dir():
        return os.path.lexists(path / CONFIG_FILE) or bool(_prefixes(path))
    names = [file.name for file in path.parent.glob("*.*")]
    start = f"{path.name}.data-"
    return f"{path.name}.index" in names or any(name.startswith(start) for name in names)


def describe(path: pathlib.Path, *, tokenizer: bool = True) -> Checkpoint:
    """Locate the files of a checkpoint and read everything except the weights.

    No file records whether the vocabulary is lowercase, so this is inferred from the tokens.

    Args:
        path: The folder, whose top-level checkpoint is used, or a prefix such as
            `.../bert_model.ckpt`. The configuration and the vocabulary may also be in the parent
            folder, as they are for the step checkpoints of a training run.
        tokenizer: Whether to read the files of the tokenizer.

    Raises:
        FileNotFoundError: The checkpoint or `bert_config.json` is missing.
        ValueError: A file is damaged.
    """
    prefix = find_prefix(path)
    config_file = find_config(prefix, CONFIG_FILE)
    config = read_config(config_file, read_json_object(config_file))
    vocab, options = read_vocab(config_file.parent) if tokenizer else (None, {})
    arrays = open_tf(prefix)
    weights.check_extent(config, arrays)
    names = [name for name in arrays.shapes if not name.endswith((*_SLOTS, *_STEPS))]
    wrapper = weights.wrapper_prefix(arrays, _SIGNATURE)
    arrays = arrays.select({name.removeprefix(wrapper): name for name in names})
    task = _task(arrays.shapes)
    if task and "hidden" not in parts_of(task):  # run_squad.py does not use it
        arrays = arrays.select({x: x for x in arrays.shapes if not x.startswith(_POOLER)})
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    return Checkpoint(
        description=f"google-research/bert, TF1 checkpoint{weights.without_prefix(wrapper)}",
        config=config,
        table=table(config, task),
        arrays=arrays,
        task=task,
        vocab=vocab,
        tokenizer_options=options,
    )


def find_prefix(path: pathlib.Path) -> pathlib.Path:
    """Return the prefix of the checkpoint at a path. In a folder, choose the latest checkpoint."""
    if not path.is_dir():
        return path
    found = _prefixes(path)
    if len(found) == 1:
        return found[0]
    # Compare only the name: the file may contain a path on the machine that trained the model.
    state = tf.train.get_checkpoint_state(os.fspath(path))
    latest = "" if state is None else pathlib.PurePath(state.model_checkpoint_path).name
    if latest in [prefix.name for prefix in found]:
        return path / latest
    if not found:
        return path / PREFIX
    raise ValueError(
        f"{os.fspath(path)!r} contains {len(found)} checkpoints and no file `checkpoint` that "
        "names one of them. Pass one of their paths: "
        f"{first_few(os.fspath(prefix) for prefix in found)}."
    )


def _prefixes(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the prefixes of all checkpoints in a folder."""
    return sorted(file.with_suffix("") for file in folder.glob("*.index"))


def find_config(prefix: pathlib.Path, *names: str) -> pathlib.Path:
    """Return the first of some files next to a checkpoint, or else in the folder above.

    Raises:
        FileNotFoundError: There is none.
    """
    folders = prefix.parent, prefix.parent.parent
    for file in (folder / name for folder in folders for name in names):
        if has_file(file):
            return file
    raise FileNotFoundError(
        f"There is no {' or '.join(names)} next to the checkpoint {os.fspath(prefix)!r} or in its "
        "parent folder. It describes the architecture: copy it from the source of the weights. "
        f"{RENAME_CONFIG} {SAVE_AS_HDF5}"
    )


def read_vocab(folder: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Return the vocabulary of a folder, or `None`, and whether its words are lowercase."""
    if not has_file(folder / VOCAB_FILE):
        return None, {}
    vocab, changed = Vocab.from_file(folder / VOCAB_FILE), 0
    for token in vocab:
        special = token.startswith("[") and token.endswith("]")
        decomposed = unicodedata.normalize("NFD", token.lower())
        plain = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        changed += plain != token and not special
    return vocab, {"lowercase": changed < _LEAST_CASED * len(vocab)}


def sentence_task(num_labels: int) -> ConfigDict:
    """Return the task of a head of classification or, with one output, of regression."""
    fields = {"labels": unnamed_labels(num_labels), "long_texts": "cut", "dropout": 0.1}
    if num_labels == 1:
        return {"kind": "SequenceRegressor", **fields, "pooling": "cls"}
    return {"kind": "SequenceClassifier", "multi_label": False, **fields, "pooling": "cls"}
