"""Read the BERTs of TensorFlow Hub (`bert_en_*`, `bert_multi_*`, `small_bert/*`, `experts/*`).

They are SavedModels. The folder contains

- `saved_model.pb`: the graph, which is neither loaded nor parsed. It is searched for the names of
  operations, which tell the activation and whether texts are lowercased;
- `variables/variables.index` and `variables/variables.data-*`: a checkpoint of TensorFlow 2;
- `assets/vocab.txt`, in the encoders and in the preprocessing models.

The variables have the names of the program that made them, the Model Garden, whose checkpoints
have the same ones. They may follow the name of a model, such as `bert_encoder/`. The attention has
the heads as an axis of their own, see `split_heads`.

A SavedModel of Keras 2 with a `hub.KerasLayer` is read in the same way: its encoder is loaded, and
the layers around it are reported.

Source: github.com/tensorflow/models, official/nlp/modeling and
official/nlp/tools/export_tfhub_lib.py.
"""

import os
import pathlib
import re
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, parts_of
from keras_bert_d2l.checkpoints.formats.google import SAVE_AS_HDF5
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf, variables_of
from keras_bert_d2l.checkpoints.weights import Layout, Names, Row
from keras_bert_d2l.checks import shown, shown_names
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.reading import check_file, check_size, errors_naming
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

GRAPH_FILE, _PREFIX = "saved_model.pb", "variables/variables"
_MOST_BYTES = 2**26  # of the graph; a fine-tuned BERT large needs 35 MB
# Operations that only one activation in a BERT needs: x**3 of the tanh approximation, and erf.
_ACTIVATIONS = {"Pow": "gelu_tanh", "Erf": "gelu", "Erfc": "gelu", "Relu": "relu"}
# The data of the operation `FastBertNormalize`, which are not read, say whether it lowercases.
_WORDPIECE, _LOWERCASE, _FAST = b"WordpieceTokenizeWithOffsets", b"CaseFoldUTF8", b"FastBertNorm"

PRETRAINING, SENTENCE, TOKENS = "next_sentence", "sentence_prediction", "predictions/transform"

_BLOCK = "transformer/layer_{}"
_NAMES: Names = {
    "encoder/token_embedding": "word_embeddings/embeddings",
    "encoder/segment_embedding": "type_embeddings/embeddings",
    "encoder/pos_embedding": ("position_embedding/embeddings", weights.POSITIONS),
    "encoder/embedding_ln": "embeddings/layer_norm",
    "encoder/blk_{}/attention/W_q": f"{_BLOCK}/self_attention/query",
    "encoder/blk_{}/attention/W_k": f"{_BLOCK}/self_attention/key",
    "encoder/blk_{}/attention/W_v": f"{_BLOCK}/self_attention/value",
    "encoder/blk_{}/attention/W_o": f"{_BLOCK}/self_attention/attention_output",
    "encoder/blk_{}/addnorm1/ln": f"{_BLOCK}/self_attention_layer_norm",
    "encoder/blk_{}/ffn/dense1": f"{_BLOCK}/intermediate",
    "encoder/blk_{}/ffn/dense2": f"{_BLOCK}/output",
    "encoder/blk_{}/addnorm2/ln": f"{_BLOCK}/output_layer_norm",
    "hidden": "pooler_transform",
    "mlm/mlp/dense": "cls/predictions/transform/dense",
    "mlm/mlp/ln": "cls/predictions/transform/LayerNorm",
    "mlm/bias": "cls/predictions/output_bias/bias",
    # The labels of the sentence pairs are Google's: column 0 means "is next".
    "nsp/dense/kernel": (f"{PRETRAINING}/logits/kernel", weights.SWAPPED),
    "nsp/dense/bias": (f"{PRETRAINING}/logits/bias", weights.SWAPPED),
}
_OF_BERT = re.compile(
    r"(?:.+/)?((?:word|type)_embeddings/embeddings|position_embedding/embeddings"
    r"|embeddings/layer_norm/\w+|transformer/layer_(\d+)/.+|pooler_transform/\w+"
    r"|cls/predictions/.+)"
)


def table(config: BERTConfig, task: ConfigDict | None = None) -> list[Row]:
    """Return a row with the Model Garden's name for every weight."""
    head = SENTENCE if "hidden" in parts_of(task) else TOKENS
    names = {**_NAMES, "head": f"{head}/logits"}
    rows = weights.expand(config, names, weights.TENSORFLOW_ENDINGS, parts_of(task))
    return split_heads(rows, config.num_heads)


def bert_names(arrays: NamedArrays, heads: str = "(?!)") -> dict[str, str]:
    """Map the names of `table` to the names in a file, for each variable of a BERT.

    Args:
        arrays: The variables of the file.
        heads: A regular expression for the names of further variables.

    Raises:
        ValueError: The file has several models.
    """
    names: dict[str, str] = {}
    of_head = re.compile(f"(?:.+/)?({heads})")
    for stored in arrays.shapes:
        found = _OF_BERT.fullmatch(stored) or of_head.fullmatch(stored)
        if found and names.setdefault(found[1], stored) != stored:
            raise ValueError(
                f"{arrays.source!r} contains several BERTs: {shown(names[found[1]])} and "
                f"{shown(stored)}. Save one of them alone in the program that made them."
            )
    return names


def _sizes(arrays: NamedArrays) -> dict[str, int]:
    """Return the sizes of a BERT from the shapes of its variables, by their names of `table`."""
    shapes = arrays.shapes

    def size(name: str, axis: int, rank: int = 2) -> int:
        if len(shapes.get(name, ())) != rank:
            raise ValueError(
                f"{arrays.source!r} is not a BERT of TensorFlow Hub: it must "
                f"have an array {name!r} with {rank} axes. Received: {shapes.get(name)}."
            )
        return shapes[name][axis]

    blocks = {found[2] for name in shapes if (found := _OF_BERT.fullmatch(name)) and found[2]}
    return {
        "vocab_size": size("word_embeddings/embeddings", 0),
        "num_hiddens": size("word_embeddings/embeddings", 1),
        "num_segments": size("type_embeddings/embeddings", 0),
        "max_len": size("position_embedding/embeddings", 0),
        "num_heads": size("transformer/layer_0/self_attention/query/kernel", 1, rank=3),
        "ffn_num_hiddens": size("transformer/layer_0/intermediate/kernel", 1),
        "num_blks": len(blocks),
    }


def split_heads(rows: Sequence[Row], num_heads: int) -> list[Row]:
    """Return rows for files whose attention weights have an axis for the heads, as in Keras."""
    layouts = dict.fromkeys(
        (f"W_{x}/{end}" for x in "qkv" for end in ("kernel", "bias")), _by_head(num_heads, -1)
    )
    layouts["W_o/kernel"] = _by_head(num_heads, 0)
    return [
        row._replace(layout=layouts.get(row.ours.partition("/attention/")[2], row.layout))
        for row in rows
    ]


def _by_head(num_heads: int, axis: int) -> Layout:
    """Return a layout in which the first axis (0) or the last one (-1) is heads times their width.

    The first axis D of the kernel of the output is (N, D / N) there, and so is the last axis of the
    kernels and biases of query, key and value.
    """

    def theirs(shape: tuple[int, ...]) -> tuple[int, ...]:
        split = (num_heads, shape[axis] // num_heads)
        return (*split, *shape[1:]) if axis == 0 else (*shape[:-1], *split)

    def ours(x: np.ndarray) -> np.ndarray:
        return x.reshape(-1, *x.shape[2:]) if axis == 0 else x.reshape(*x.shape[:-2], -1)

    return Layout(ours, lambda x: x.reshape(theirs(x.shape)), theirs)


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a path looks like a SavedModel."""
    return os.path.lexists(path / GRAPH_FILE)


def describe(path: pathlib.Path, *, tokenizer: bool = True) -> Checkpoint:
    """Read everything except the weights.

    Args:
        path: The folder.
        tokenizer: Whether to read the vocabulary.

    Raises:
        FileNotFoundError: The variables are missing.
        ValueError: A file is damaged, or the model is not a BERT.
    """
    with errors_naming(path):
        model = _SavedModel(path)
        stored = variables_of(model.stored)
    names = bert_names(stored)
    if not names:
        raise ValueError(
            f"{os.fspath(path)!r} has no BERT of TensorFlow Hub. For a preprocessing model, "
            "use `load_tokenizer`. For a model that this package exported, pass its checkpoint. "
            + SAVE_AS_HDF5
        )
    arrays = stored.select(names)
    sizes = _sizes(arrays)
    with errors_naming(path):
        activation = model.activation()
        config = BERTConfig.preset("google", **sizes, activation=activation, next_sentence=False)
        vocab, options = model.vocabulary() if tokenizer else (None, {})
    weights.check_extent(config, arrays)
    others = stored.shapes.keys() - {*names.values()}
    layers = sorted({name.partition("/")[0] for name in others})
    unread = f" (not read: the layers {shown_names(layers)})" if layers else ""
    return Checkpoint(
        description=f"TensorFlow Hub, SavedModel{unread}",
        config=config,
        table=table(config),
        arrays=arrays,
        vocab=vocab,
        tokenizer_options=options,
    )


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Read the vocabulary and the casing of an encoder or a preprocessing model.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged.
    """
    with errors_naming(path):
        return _SavedModel(path).vocabulary()


class _SavedModel:
    """The files of a SavedModel.

    Args:
        folder: Its folder.

    Attributes:
        stored: Its variables, in a checkpoint of TensorFlow 2.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        file = check_file(folder / GRAPH_FILE)
        check_size(file, _MOST_BYTES)
        self._graph = file.read_bytes()
        self.stored = open_tf(folder / _PREFIX)

    def activation(self) -> str:
        """Return the activation of the blocks of an encoder.

        The layers around it, and its MLM head, may have other ones. Operations of a block have its
        name in their own. A name follows its number of bytes and the tag of its field,
        `NodeDef.name`, `NodeDef.op` or, in the list of all operations, `OpDef.name`.
        """
        names = "|".join(_ACTIVATIONS).encode()
        of_block = rb"r/layer_0/[\w./-]{1,200}\x12[\3-\6](%b)\x1a" % names
        found = re.findall(of_block, self._graph)
        found = found or re.findall(rb"[\n\x12][\3-\6](%b)(?!\w)" % names, self._graph)
        activations = {_ACTIVATIONS[operation.decode()] for operation in found}
        if len(activations) != 1:
            raise ValueError(
                f"{GRAPH_FILE!r} is damaged, or its blocks do not have the activation of a BERT: "
                f"it computes {shown_names(sorted(activations)) or 'neither GELU nor ReLU'}. "
                "Copy it again, or load the model that it was fine-tuned from."
            )
        return activations.pop()

    def vocabulary(self) -> tuple[Vocab | None, TokenizerOptions]:
        """Return the vocabulary, if there is just one, and the options of the tokenizer."""
        files = self._folder.glob("assets/[!.]*.txt")
        vocabs = {Vocab.from_file(file) for file in files if "vocab" in file.name}
        stored = self.stored
        if _WORDPIECE in self._graph and _FAST not in self._graph:  # it has its preprocessing
            flags = {_LOWERCASE in self._graph}
        else:  # the variable `do_lower_case` of an encoder
            flags = {bool(stored.read(x)) for x, dtype in stored.dtypes.items() if dtype == "bool"}
        if len(vocabs) != 1 or len(flags) != 1:
            return None, {}
        return vocabs.pop(), {"lowercase": flags.pop()}
