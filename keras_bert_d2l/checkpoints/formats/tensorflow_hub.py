"""Read the BERTs of TensorFlow Hub (`bert_en_*`, `bert_multi_*`, `small_bert/*`, `experts/*`).

They are SavedModels. The folder contains

- `saved_model.pb`: the graph, which is neither loaded nor parsed. It is searched for the names of
  operations, which tell the activation and whether texts are lowercased;
- `variables/variables.index` and `variables/variables.data-*`: a checkpoint of TensorFlow 2;
- `assets/vocab.txt`, in the encoders and in the preprocessing models.

A model of Keras 2 with a `hub.KerasLayer` is read in the same way, as a SavedModel, `.h5` or
`.keras` file: its encoder is loaded, and the layers around it are reported.

Source: github.com/tensorflow/models, official/nlp/tools/export_tfhub_lib.py, and
github.com/tensorflow/hub, tensorflow_hub/keras_layer.py.
"""

import os
import pathlib
import re

from keras_bert_d2l.checkpoints.array_files import FLOATS, NamedArrays
from keras_bert_d2l.checkpoints.formats import garden_names
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.tensorflow_folder import SAVE_AS_HDF5
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5, open_keras, read_keras_config
from keras_bert_d2l.checkpoints.tensorflow_files import OBJECT_GRAPH, open_tf, variables_of
from keras_bert_d2l.checkpoints.weights import check_extent
from keras_bert_d2l.checks import shown_names
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.reading import check_file, check_size, errors_naming
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab

GRAPH_FILE, _PREFIX = "saved_model.pb", "variables/variables"
_HDF5, _KERAS = (".h5", ".hdf5"), ".keras"
_MOST_BYTES = 2**26  # of the graph; a fine-tuned BERT large needs 35 MB
_USUAL = "gelu_tanh"  # of all BERTs of TensorFlow Hub
# Operations that only one activation in a BERT needs: x**3 of the tanh approximation, and erf.
_ACTIVATIONS = {"Pow": _USUAL, "Erf": "gelu", "Erfc": "gelu", "Relu": "relu"}
# The data of the operation `FastBertNormalize`, which are not read, say whether it lowercases.
_WORDPIECE, _LOWERCASE, _FAST = b"WordpieceTokenizeWithOffsets", b"CaseFoldUTF8", b"FastBertNorm"
_LAYER = re.compile(r"(?:model_weights/|layers/)?([^/]+)")
_NUMBERED = re.compile(r"(layers/.+)/vars/(\d+)")
_NUM_AROUND, _NUM_IN_BLOCK = 7, 16  # variables of an encoder


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a path looks like a SavedModel, or a file of Keras 2 with a Hub layer."""
    if not path.is_file():
        return os.path.lexists(path / GRAPH_FILE)
    try:
        return path.suffix in _HDF5 or (
            path.suffix == _KERAS and b'"KerasLayer"' in read_keras_config(path)
        )
    except ValueError:
        return False


def describe(
    path: pathlib.Path, num_heads: int | None = None, *, tokenizer: bool = True
) -> Checkpoint:
    """Read everything except the weights.

    Args:
        path: The folder of a SavedModel, or a file of Keras 2.
        num_heads: Not used. The shapes of the weights tell it.
        tokenizer: Whether to read the vocabulary.

    Raises:
        FileNotFoundError: The variables are missing.
        ValueError: A file is damaged, or the model is not a BERT.
    """
    stored, model = _open(path)
    names = garden_names.bert_names(stored)
    if not names:
        raise ValueError(
            f"{os.fspath(path)!r} has no BERT of TensorFlow Hub. For a preprocessing model, "
            "use `load_tokenizer`. For a model that this package exported, pass its checkpoint. "
            "For a file of transformers or KerasHub, pass its folder, which has a config.json. "
            f"{SAVE_AS_HDF5}"
        )
    arrays = stored.select(names)
    sizes = garden_names.bert_sizes(arrays)
    with errors_naming(path):
        activation = model.activation() if model else _USUAL
        config = BERTConfig.preset("google", **sizes, activation=activation, next_sentence=False)
        vocab, options = model.vocabulary() if model and tokenizer else (None, {})
    check_extent(config, arrays)
    others = stored.shapes.keys() - {*names.values()}
    layers = {found[1] for name in others if (found := _LAYER.match(name))}
    kind = "SavedModel" if model else f"{path.suffix} file, assuming the activation {_USUAL!r}"
    unread = f" (not read: the layers {shown_names(sorted(layers))})" if layers else ""
    return Checkpoint(
        description=f"TensorFlow Hub, {kind}{unread}",
        config=config,
        table=garden_names.table(config),
        arrays=arrays,
        vocab=vocab,
        tokenizer_options=options,
    )


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Read the vocabulary and the casing of an encoder or a preprocessing model.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or there are several vocabularies.
    """
    if not path.is_dir():
        return None, {}
    with errors_naming(path):
        return _SavedModel(path).vocabulary()


def _open(path: pathlib.Path) -> tuple[NamedArrays, "_SavedModel | None"]:
    """Return the variables, by their names in the program, and the SavedModel that has them."""
    if path.suffix in _HDF5:
        return _of_layers(open_hdf5([path])), None
    if path.suffix == _KERAS:
        return _of_layers(open_keras(path)), None
    with errors_naming(path):
        model = _SavedModel(path)
        return model.variables(), model


def _of_layers(arrays: NamedArrays) -> NamedArrays:
    """Return the variables of the layers in an HDF5 file of Keras 2.

    A `.keras` or `.weights.h5` file stores those of a layer in order, without their names. The
    layers of a block are created in the same order in all versions of the Model Garden:
    official/nlp/bert_modeling.py (2019), modeling/layers/transformer.py (2020), and today's
    transformer_encoder_block.py.
    """
    floats = (name for name, dtype in arrays.dtypes.items() if dtype in FLOATS)
    weights = [name for name in floats if not name.startswith(("optimizer", "metrics"))]
    layers: dict[str, dict[int, str]] = {}
    for name in weights:
        if found := _NUMBERED.fullmatch(name):
            layers.setdefault(found[1], {})[int(found[2])] = name
    names = {x.removesuffix(":0"): x for x in weights if not _NUMBERED.fullmatch(x)}
    for layer, variables in layers.items():
        ordered = stored = [variables[number] for number in sorted(variables)]
        num_blks, rest = divmod(len(stored) - _NUM_AROUND, _NUM_IN_BLOCK)
        if num_blks > 0 and not rest:
            config = BERTConfig.preset("google", vocab_size=1, num_blks=num_blks)
            ordered = [f"{layer}/{row.theirs}" for row in garden_names.table(config)][: len(stored)]
            # The positions, which are more than the segments, come first in most versions.
            stored[1:3] = sorted(stored[2:0:-1], key=lambda name: arrays.shapes[name])
        names |= zip(ordered, stored, strict=True)
    return arrays.select(names)


class _SavedModel:
    """The files of a SavedModel.

    Args:
        folder: Its folder.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        file = check_file(folder / GRAPH_FILE)
        check_size(file, _MOST_BYTES)
        self._graph = file.read_bytes()
        self._stored = open_tf(folder / _PREFIX)

    def variables(self) -> NamedArrays:
        """Return the variables by their names in the program."""
        if OBJECT_GRAPH not in self._stored.shapes:
            raise ValueError(
                "it is a module of TensorFlow Hub for TensorFlow 1. Download the model for "
                "TensorFlow 2, or its checkpoint from github.com/google-research/bert."
            )
        return variables_of(self._stored)

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
        """Return the vocabulary, if there is one, and the options of the tokenizer."""
        files = self._folder.glob("assets/[!.]*.txt")
        vocabs = {Vocab.from_file(file) for file in files if "vocab" in file.name}
        if len(vocabs) > 1:
            raise ValueError(
                f"it has {len(vocabs)} vocabularies in its assets. Remove all but that of the BERT."
            )
        stored = self._stored
        if _WORDPIECE in self._graph and _FAST not in self._graph:  # it has its preprocessing
            flags = {_LOWERCASE in self._graph}
        else:  # the variable `do_lower_case` of an encoder
            flags = {bool(stored.read(x)) for x, dtype in stored.dtypes.items() if dtype == "bool"}
        if not vocabs or len(flags) != 1:
            return None, {}
        return vocabs.pop(), {"lowercase": flags.pop()}
