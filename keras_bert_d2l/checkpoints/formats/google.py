"""google-research/bert: TF1 checkpoints to models and back.

A folder holds

- `bert_config.json`: the architecture, in the fields of `modeling.BertConfig`;
- `vocab.txt`: one token a line;
- `bert_model.ckpt.index` and `bert_model.ckpt.data-00000-of-00001`, under this prefix or another:
  the variables by the names of `modeling.py` and `run_pretraining.py`, and of a training run also
  the state of its optimiser;
- often `checkpoint`: which prefix is the latest.

The graph, the vocabulary's case and the model's kind are not in them. Source:
github.com/google-research/bert: modeling.py, run_pretraining.py, optimization.py.
"""

import os
import pathlib
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.google_config import (
    CONFIG_FILE,
    config_from_json,
    config_to_json,
)
from keras_bert_d2l.checkpoints.weights.transfer import (
    POSITIONS,
    SWAPPED,
    SWAPPED_TRANSPOSED,
    Checkpoint,
    Row,
    first,
    named_weights,
    stored_weights,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.vocab.vocab import Vocab

VOCAB_FILE, PREFIX = "vocab.txt", "bert_model.ckpt"

# Dense kernels are (in, out) as here, but for that of the next-sentence head, whose column 0 is
# "is next".
_EMBEDDINGS = (
    Row("encoder/token_embedding/embeddings", "bert/embeddings/word_embeddings"),
    Row("encoder/segment_embedding/embeddings", "bert/embeddings/token_type_embeddings"),
    Row("encoder/pos_embedding", "bert/embeddings/position_embeddings", POSITIONS),
    Row("encoder/embedding_ln/gamma", "bert/embeddings/LayerNorm/gamma"),
    Row("encoder/embedding_ln/beta", "bert/embeddings/LayerNorm/beta"),
)
_BLOCK = (  # after encoder/blk_{i}/ and bert/encoder/layer_{i}/
    Row("attention/W_q/kernel", "attention/self/query/kernel"),
    Row("attention/W_q/bias", "attention/self/query/bias"),
    Row("attention/W_k/kernel", "attention/self/key/kernel"),
    Row("attention/W_k/bias", "attention/self/key/bias"),
    Row("attention/W_v/kernel", "attention/self/value/kernel"),
    Row("attention/W_v/bias", "attention/self/value/bias"),
    Row("attention/W_o/kernel", "attention/output/dense/kernel"),
    Row("attention/W_o/bias", "attention/output/dense/bias"),
    Row("addnorm1/ln/gamma", "attention/output/LayerNorm/gamma"),
    Row("addnorm1/ln/beta", "attention/output/LayerNorm/beta"),
    Row("ffn/dense1/kernel", "intermediate/dense/kernel"),
    Row("ffn/dense1/bias", "intermediate/dense/bias"),
    Row("ffn/dense2/kernel", "output/dense/kernel"),
    Row("ffn/dense2/bias", "output/dense/bias"),
    Row("addnorm2/ln/gamma", "output/LayerNorm/gamma"),
    Row("addnorm2/ln/beta", "output/LayerNorm/beta"),
)
_HEADS = (
    Row("hidden/kernel", "bert/pooler/dense/kernel"),
    Row("hidden/bias", "bert/pooler/dense/bias"),
    Row("mlm/mlp/dense/kernel", "cls/predictions/transform/dense/kernel"),
    Row("mlm/mlp/dense/bias", "cls/predictions/transform/dense/bias"),
    Row("mlm/mlp/ln/gamma", "cls/predictions/transform/LayerNorm/gamma"),
    Row("mlm/mlp/ln/beta", "cls/predictions/transform/LayerNorm/beta"),
    Row("mlm/bias", "cls/predictions/output_bias"),
    Row("nsp/dense/kernel", "cls/seq_relationship/output_weights", SWAPPED_TRANSPOSED),
    Row("nsp/dense/bias", "cls/seq_relationship/output_bias", SWAPPED),
)

# What the optimiser adds: two slots for every variable, and the number of steps.
_SLOTS = {"first_moment": "adam_m", "second_moment": "adam_v"}
_STEP = "global_step"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # only in the checkpoints of TensorFlow 2

# Of the pieces of google's cased vocabulary lowering changes 29 %, of the uncased none; users put
# a few words of their own, upper-case or not, in the place of unused ones.
_LEAST_CASED = 0.05

_UNREADABLE = (tf.errors.OpError, IndexError, ValueError)  # of TensorFlow's reader
_DAMAGED = "The file is damaged or not whole: copy it again."


class TF1Checkpoint:
    """The `Tensors` of a TF1 checkpoint: its weights, without the state of an optimiser.

    Args:
        prefix: The path without `.index`.

    Raises:
        ValueError: The index is damaged, or is of an object-based checkpoint of TensorFlow 2.
    """

    def __init__(self, prefix: pathlib.Path) -> None:
        self.source = os.fspath(prefix)
        try:
            self._reader = tf.train.load_checkpoint(self.source)
        except _UNREADABLE as error:
            raise ValueError(
                f"{self.source + '.index'!r} is no readable checkpoint index, or a data file of "
                f"it is missing: {error}. {_DAMAGED}"
            ) from error
        self._shapes = {
            name: tuple(shape) for name, shape in self._reader.get_variable_to_shape_map().items()
        }
        if _OBJECT_GRAPH in self._shapes:
            raise ValueError(
                f"{self.source!r} is an object-based checkpoint of TensorFlow 2, whose names are "
                "those of the program that wrote it. Use the TF1 checkpoint of the same model "
                "(github.com/google-research/bert)."
            )

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of all weights by name, without reading the weights."""
        return {
            name: shape
            for name, shape in self._shapes.items()
            if name != _STEP and not _is_slot(name)
        }

    def dtypes(self) -> Mapping[str, str]:
        """Returns the dtypes of all weights by name."""
        dtypes = self._reader.get_variable_to_dtype_map()
        return {name: dtypes[name].name for name in self.shapes()}

    def slots(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of the optimiser's slots by name."""
        return {name: shape for name, shape in self._shapes.items() if _is_slot(name)}

    def read(self, name: str) -> np.ndarray:
        """Returns one weight or slot as float32."""
        return np.asarray(self._value(name), dtype=np.float32)

    def step(self) -> int | None:
        """Returns the number of training steps, or `None` where the file does not tell it."""
        return int(self._value(_STEP)) if _STEP in self._shapes else None

    def _value(self, name: str) -> np.ndarray:
        try:
            return self._reader.get_tensor(name)
        except _UNREADABLE as error:
            raise ValueError(
                f"{name!r} cannot be read from the data file of {self.source!r}: {error}. "
                f"{_DAMAGED}"
            ) from error


def recognises(path: pathlib.Path) -> bool:
    """Tells whether a folder, or the prefix of a checkpoint, looks like google's."""
    if path.is_dir():
        return (path / CONFIG_FILE).is_file() or bool(_prefixes(path))
    return bool(_prefixes(path.parent, path.name)) or any(_data_files(path))


def describe(path: pathlib.Path) -> Checkpoint:
    """Finds the parts of a checkpoint and reads all but the weights.

    Whether the vocabulary is of lowered words is in none of the files: it is told from the
    tokens.

    Args:
        path: The folder, of which the checkpoint at the top level is taken; or a prefix such as
            `.../bert_model.ckpt`. The configuration and the vocabulary may also lie in the folder
            above, as they do for the steps of a training run.

    Raises:
        FileNotFoundError: The checkpoint or `bert_config.json` is missing.
        ValueError: A file is damaged.
    """
    prefix = _find_prefix(path)
    config_file = _find_config(prefix)
    config = config_from_json(config_file)
    vocab_file = config_file.with_name(VOCAB_FILE)
    vocab = Vocab.from_file(vocab_file) if vocab_file.is_file() else None
    tensors = TF1Checkpoint(prefix)
    trained = ", with the state of its optimiser" if tensors.slots() else ""
    return Checkpoint(
        description=f"google-research/bert, TF1 checkpoint{trained}",
        config=config,
        table=table(config),
        tensors=tensors,
        vocab=vocab,
        tokenizer_options={} if vocab is None else {"lowercase": _is_lowered(vocab)},
    )


def write(
    model: BERTModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: Mapping[str, Any],
) -> None:
    """Writes a model as google's own code would save it, without the state of an optimiser.

    The same model gives the same bytes.

    Args:
        model: The model.
        folder: An existing folder.
        vocab: The vocabulary, or `None`.
        tokenizer_options: Keyword arguments of the `Tokenizer`. The format has no place for them;
            `lowercase` is google's flag `--do_lower_case`.

    Raises:
        ValueError: The format cannot express the model.
    """
    config_to_json(model.bert_config, folder / CONFIG_FILE)
    arrays = stored_weights(model, table(model.bert_config))
    names = sorted(arrays)
    with tf.device("CPU"):
        tf.raw_ops.SaveV2(
            prefix=os.fspath(folder / PREFIX),
            tensor_names=names,
            shape_and_slices=[""] * len(names),  # whole arrays
            tensors=[arrays[name] for name in names],
        )
    state = f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n'
    write_text(folder / "checkpoint", state)
    if vocab is not None:
        vocab.to_file(folder / VOCAB_FILE)
        lowercase = tokenizer_options.get("lowercase", True)
        if lowercase != _is_lowered(vocab):
            warnings.warn(
                f"The tokenizer has lowercase={lowercase}, which this format does not keep and "
                "which the vocabulary does not show: tell it to whoever reads the checkpoint "
                f"(google's flag: --do_lower_case={lowercase}).",
                stacklevel=2,
            )


def restore_optimizer(path: str | os.PathLike[str], model: BERTModel) -> int:
    """Sets the state of a compiled model's optimiser to that of a checkpoint of google's.

    The weights are left as they are; with those of the same checkpoint, training goes on as if it
    had never stopped. Google's optimiser is `BERTAdamW(..., bias_correction=False)`.

    Args:
        path: The folder or prefix of the checkpoint, see `describe`.
        model: A model that is compiled with `BERTAdamW`.

    Returns: the number of steps that the checkpoint has been trained.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The checkpoint holds no state, or that of another model; or the model is not
            compiled with `BERTAdamW`.
    """
    tensors = TF1Checkpoint(_find_prefix(pathlib.Path(path)))
    step, slots = tensors.step(), tensors.slots()
    if step is None or not slots:
        raise ValueError(
            f"{tensors.source!r} holds no state of an optimiser ({_STEP} and a slot adam_m and "
            "adam_v for every weight): use a checkpoint of a training run."
        )
    values = []  # all is found and fits before anything is changed
    for variable, name, row in _moments(model):
        expected = row.layout.to_theirs(np.empty(variable.shape)).shape
        if slots.get(name) != expected:
            raise ValueError(
                f"{tensors.source!r} is of another model: the slot {name!r} must have the shape "
                f"{expected}. Found: {slots.get(name, 'none')}."
            )
        values.append((variable, row.layout.to_ours(tensors.read(name))))
    for variable, value in values:
        variable.assign(value)
    model.optimizer.iterations.assign(step)
    return step


def table(config: BERTConfig) -> list[Row]:
    """Returns google's name and layout of every weight of a model."""
    blocks = [
        Row(f"encoder/blk_{index}/{ours}", f"bert/encoder/layer_{index}/{theirs}", layout)
        for index in range(config.num_blks)
        for ours, theirs, layout in _BLOCK
    ]
    return [*_EMBEDDINGS, *blocks, *_HEADS]


def _is_slot(name: str) -> bool:
    return name.rpartition("/")[2] in _SLOTS.values()


def _moments(model: BERTModel) -> Iterable[tuple[keras.Variable, str, Row]]:
    """Yields the moments of a model's optimiser, each with its name in a checkpoint and its row."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(
            "The model has no optimiser to restore: call "
            "`model.compile(BERTAdamW(..., bias_correction=False))` first."
        )
    optimizer.build(model.trainable_variables)
    # Keras calls a variable of an optimiser by the weight's path and the variable's purpose.
    states = {variable.name: variable for variable in optimizer.variables}
    rows = {row.ours: row for row in table(model.bert_config)}
    for ours, weight in named_weights(model).items():
        if not weight.trainable:
            continue
        if ours not in rows:
            raise ValueError(f"The format of google-research/bert has no weight {ours!r}.")
        for moment, slot in _SLOTS.items():
            name = f"{weight.path.replace('/', '_')}_{moment}"
            if name not in states:
                raise ValueError(
                    "The model must be compiled with BERTAdamW, whose state google's slots are. "
                    f"Received: {optimizer.name!r}, which has no {name!r}."
                )
            yield states[name], f"{rows[ours].theirs}/{slot}", rows[ours]


def _prefixes(folder: pathlib.Path, name: str | None = None) -> list[pathlib.Path]:
    """Returns the prefixes of the checkpoints in a folder, or the one of that name."""
    found = [file.with_suffix("") for file in folder.glob("*.index")]
    return sorted(prefix for prefix in found if name in (None, prefix.name))


def _data_files(prefix: pathlib.Path) -> list[pathlib.Path]:
    start = f"{prefix.name}.data-"
    return [file for file in prefix.parent.glob("*.data-*") if file.name.startswith(start)]


def _find_prefix(path: pathlib.Path) -> pathlib.Path:
    if not path.is_dir():
        if not _prefixes(path.parent, path.name):
            raise FileNotFoundError(
                f"There is no checkpoint {os.fspath(path)!r}: {path.name + '.index'!r} is missing "
                "beside it."
            )
        return path
    prefixes = _prefixes(path)
    if len(prefixes) == 1:
        return prefixes[0]
    # The path in the file may be that of the machine where the model was trained.
    state = tf.train.get_checkpoint_state(os.fspath(path))
    latest = None if state is None else pathlib.PurePath(state.model_checkpoint_path).name
    for prefix in prefixes:
        if prefix.name == latest:
            return prefix
    if not prefixes:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} has a {CONFIG_FILE} but no checkpoint: {PREFIX}.index and "
            f"{PREFIX}.data-00000-of-00001 belong beside it."
        )
    raise ValueError(
        f"{os.fspath(path)!r} holds {len(prefixes)} checkpoints and no file `checkpoint` that "
        f"names one of them. Give one: {first(os.fspath(prefix) for prefix in prefixes)}."
    )


def _find_config(prefix: pathlib.Path) -> pathlib.Path:
    for folder in (prefix.parent, prefix.parent.parent):
        if (folder / CONFIG_FILE).is_file():
            return folder / CONFIG_FILE
    raise FileNotFoundError(
        f"There is no {CONFIG_FILE} beside the checkpoint {os.fspath(prefix)!r} or in the folder "
        "above it: it says how the weights are put together; take it from where the weights are "
        "from."
    )


def _is_lowered(vocab: Vocab) -> bool:
    """Tells whether a vocabulary is of lowered words without accents."""
    changed = 0
    for token in vocab:
        special = token.startswith("[") and token.endswith("]")
        decomposed = unicodedata.normalize("NFD", token.lower())
        plain = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        changed += plain != token and not special
    return changed < _LEAST_CASED * len(vocab)
