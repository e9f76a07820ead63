"""Weights under other names: a format is a table of names, and one loop goes through it.

A table says of every weight what another program calls it and how it lays it out. `load_weights`
goes from a file to a model, `stored_weights` from a model to what is to be written; both refuse
what is left over on either side.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.initializers import initialize
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.vocab.vocab import Vocab

# Of a model, by the first word of a weight's path; the last one is the head of a task.
PARTS = ("encoder", "hidden", "mlm", "nsp", "head")
_NEEDED = ("encoder", "head")  # without these a file is not of the model
_NUM_NAMED = 3  # of the weights that do not fit, so many are named


class Layout(NamedTuple):
    """How another program lays out the numbers of a weight."""

    to_ours: Callable[[np.ndarray], np.ndarray]
    to_theirs: Callable[[np.ndarray], np.ndarray]


def _same(x: np.ndarray) -> np.ndarray:
    return x


SAME = Layout(_same, _same)
TRANSPOSED = Layout(np.transpose, np.transpose)  # dense kernels as (out, in)
# Without the leading axis that the book's position embedding has.
POSITIONS = Layout(lambda x: x[None], lambda x: x[0])
# Here column 1 of the next-sentence logits is "is next"; elsewhere it may be column 0.
SWAPPED = Layout(lambda x: x[..., ::-1], lambda x: x[..., ::-1])
SWAPPED_TRANSPOSED = Layout(lambda x: x[::-1].T, lambda x: x.T[::-1])


class Row(NamedTuple):
    """One weight.

    Attributes:
        ours: Its name in `named_weights`, for instance `encoder/blk_0/attention/W_q/kernel`.
        theirs: Its name in the other program.
        layout: How the other program lays it out.
    """

    ours: str
    theirs: str
    layout: Layout = SAME


class Tensors(Protocol):
    """The arrays of a file, by name, read one at a time."""

    source: str  # the file, for people

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of all arrays by name, without reading the arrays."""
        ...

    def dtypes(self) -> Mapping[str, str]:
        """Returns the dtypes of all arrays in the file by name, for people."""
        ...

    def read(self, name: str) -> np.ndarray:
        """Returns one array as float32."""
        ...


class Arrays:
    """`Tensors` that are in memory already."""

    def __init__(self, arrays: Mapping[str, np.ndarray], source: str) -> None:
        self.source = source
        self._arrays = arrays

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(array.shape) for name, array in self._arrays.items()}

    def dtypes(self) -> Mapping[str, str]:
        return {name: str(array.dtype) for name, array in self._arrays.items()}

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._arrays[name], dtype=np.float32)


class Checkpoint(NamedTuple):
    """What a format found in a folder, before any weight is read.

    Attributes:
        description: The format and the kind of model, for people.
        config: The architecture.
        table: A row for every weight of that architecture.
        tensors: The weights.
        vocab: The vocabulary, or `None` where the folder has none.
        tokenizer_options: Keyword arguments of `Tokenizer` that go with the vocabulary.
        task: What the model is for, as `task_fields` has it; `None`: a `BERTModel`.
    """

    description: str
    config: BERTConfig
    table: Sequence[Row]
    tensors: Tensors
    vocab: Vocab | None
    tokenizer_options: dict[str, Any]
    task: dict[str, Any] | None = None


def named_weights(model: BERTModel | TaskModel) -> dict[str, keras.Variable]:
    """Returns the weights of a model by their paths without the model's own name.

    A tied token embedding is there once. The states of dropout's generators are not there, nor
    what LoRA adds to a kernel.
    """
    # Not by the model's name: a task's encoder has that of its BERT in front, and either may have
    # been made in a name scope.
    layers = {part: getattr(model, part, None) for part in PARTS}
    paths = {part: layer.path for part, layer in layers.items() if layer is not None}
    names = {}
    for weight in model.weights:
        for part, path in paths.items():
            if weight.path.startswith(f"{path}/") and not weight.name.startswith("lora_kernel"):
                names[part + weight.path.removeprefix(path)] = weight
    return names


def _adapted(model: BERTModel | TaskModel) -> dict[int, keras.layers.Dense]:
    """Returns the dense layers with LoRA, by the identity of their kernel's variable."""
    dense = [part for part in model._flatten_layers() if isinstance(part, keras.layers.Dense)]
    return {id(layer._kernel): layer for layer in dense if layer.lora_enabled}


def _addition(layer: keras.layers.Dense) -> np.ndarray:
    """Returns what LoRA adds to the kernel; `layer.kernel` would have the policy's precision."""
    a, b = map(keras.ops.convert_to_numpy, (layer.lora_kernel_a, layer.lora_kernel_b))
    return (layer.lora_alpha / layer.lora_rank) * (a @ b)


def load_weights(model: BERTModel | TaskModel, table: Sequence[Row], tensors: Tensors) -> list[str]:
    """Sets the weights of a model to those of a file.

    A head may be missing as a whole and is then drawn anew; the encoder may not, nor a task's
    head.

    Args:
        model: The model.
        table: A row for every weight of the model.
        tensors: The file; arrays that are no weights (a training step, a buffer) are left out.

    Returns: the parts of the model, of `PARTS`, that the file does not have.

    Raises:
        ValueError: Weights are missing or left over, shapes differ, or a number is not finite.
    """
    weights = named_weights(model)
    rows = {row.ours: row for row in table}
    _check_table(weights, rows)
    shapes = tensors.shapes()
    missing = _missing_parts(rows, shapes, tensors.source)
    present = {ours: row for ours, row in rows.items() if part_of(ours) not in missing}
    left_over = shapes.keys() - {row.theirs for row in rows.values()}
    if left_over:
        raise ValueError(
            f"{tensors.source!r} holds weights that the model of its configuration has not: "
            f"{first(left_over)}. The file is of another model, or the configuration is."
        )
    _check_shapes(weights, present, shapes, tensors.source)
    # The largest first: while it is converted it is in memory twice, and the rest is not yet.
    for ours, row in sorted(present.items(), key=lambda item: -math.prod(weights[item[0]].shape)):
        value = tensors.read(row.theirs)
        if not np.isfinite(value).all():
            raise ValueError(
                f"{tensors.source!r} holds numbers that are not finite in {row.theirs!r}: the "
                "training that wrote it diverged, or the file is damaged; use an earlier one."
            )
        weights[ours].assign(row.layout.to_ours(value))
    for layer in _adapted(model).values():  # the file has it in the kernel already
        layer.lora_kernel_b.assign(np.zeros(layer.lora_kernel_b.shape))
    for part in missing:
        initialize(getattr(model, part))
    return missing


def stored_weights(model: BERTModel | TaskModel, table: Sequence[Row]) -> dict[str, np.ndarray]:
    """Returns the weights of a model in float32, named and laid out as another program has them.

    Raises:
        ValueError: The table has no row for a weight, so that the format cannot express it.
    """
    weights = named_weights(model)
    _check_table(weights, {row.ours: row for row in table})
    adapted, stored = _adapted(model), {}
    for row in table:
        weight = weights[row.ours]
        value = keras.ops.convert_to_numpy(weight)
        if id(weight) in adapted:
            value = value + _addition(adapted[id(weight)])
        stored[row.theirs] = np.ascontiguousarray(row.layout.to_theirs(value), dtype=np.float32)
    return stored


def part_of(ours: str) -> str:
    """Returns the part of the model, of `PARTS`, that a weight belongs to."""
    return ours.partition("/")[0]


def _check_table(weights: Mapping[str, keras.Variable], rows: Mapping[str, Row]) -> None:
    """Refuses a model with weights that the format has no name for, and the other way round."""
    if weights.keys() != rows.keys():
        raise ValueError(
            "The format cannot express this model: the two differ in "
            f"{first(weights.keys() ^ rows.keys())}."
        )


def _missing_parts(
    rows: Mapping[str, Row], shapes: Mapping[str, tuple[int, ...]], source: str
) -> list[str]:
    missing = []
    for part in PARTS:
        names = [row.theirs for ours, row in rows.items() if part_of(ours) == part]
        absent = [name for name in names if name not in shapes]
        if absent and len(absent) == len(names) and part not in _NEEDED:
            missing.append(part)
        elif absent:
            raise ValueError(
                f"{source!r} lacks weights of the model: {first(absent)}. The file is of another "
                "model, or not whole: copy it again."
            )
    return missing


def _check_shapes(
    weights: Mapping[str, keras.Variable],
    rows: Mapping[str, Row],
    shapes: Mapping[str, tuple[int, ...]],
    source: str,
) -> None:
    wrong = []
    for ours, row in rows.items():
        # An array of one number seen in the weight's shape: the layout moves no memory.
        like = np.broadcast_to(np.float32(0), tuple(weights[ours].shape))
        expected = row.layout.to_theirs(like).shape
        if shapes[row.theirs] != expected:
            wrong.append(f"{row.theirs} is {shapes[row.theirs]} instead of {expected}")
    if wrong:
        raise ValueError(f"{source!r} does not fit its configuration: {first(wrong)}.")


def first(names: Iterable[str]) -> str:
    """Returns the first few of some names, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more
