"""The weights of a model: their names here and elsewhere, and copies from and to files.

A format of checkpoints has a table of names. `expand` turns it into one row for every weight of an
architecture. `load_weights` copies the arrays of a file into a model, `stored_weights` from a model
to the arrays of a file. Both raise an error instead of silently omitting weights on either side.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import initialize
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.partial_training import LORA_WEIGHTS, lora_update, lora_variables
from keras_bert_d2l.models.tasks.task_model import TaskModel

# The first component of a weight's name. A task model has the last two instead of those after
# "hidden".
BERT_PARTS = ("encoder", "hidden", "mlm", "nsp", "rtd")
PARTS = (*BERT_PARTS, "head", "crf")

# The parts of a `BERTModel` that a file may lack, with their user-facing names.
HEAD_NAMES = {"hidden": "pooler", "mlm": "mlm", "nsp": "nsp", "rtd": "rtd"}

_DENSE, _NORM = ("kernel", "bias"), ("gamma", "beta")
BLOCK = {
    **{f"attention/W_{letter}": _DENSE for letter in "qkvo"},
    "addnorm1/ln": _NORM,
    "ffn/dense1": _DENSE,
    "ffn/dense2": _DENSE,
    "addnorm2/ln": _NORM,
}
# Without a bias of the keys, which would change the scores of contents with distances.
_OWN_RELATIVE_KEYS = {
    **{f"attention/{name}": ("kernel",) for name in ("W_k", "W_rel_k")},
    "attention/W_rel_q": _DENSE,
}
_NUM_NAMED = 3


class Layout(NamedTuple):
    """The layout of a weight in another program, as conversions to and from our layout.

    A layout with another number of axes also has the conversion of a shape to theirs.
    """

    to_ours: Callable[[np.ndarray], np.ndarray]
    to_theirs: Callable[[np.ndarray], np.ndarray]
    shape: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None


SAME = Layout(np.asarray, np.asarray)
TRANSPOSED = Layout(np.transpose, np.transpose)  # dense kernels of shape (out, in)
# Position embeddings without the leading axis of length 1 that they have in the book and here.
POSITIONS = Layout(lambda x: x[None], lambda x: x[0])
# Next-sentence logits with "is next" in column 0. In this package, it is column 1.
SWAPPED = Layout(lambda x: x[..., ::-1], lambda x: x[..., ::-1])
SWAPPED_TRANSPOSED = Layout(lambda x: x[::-1].T, lambda x: x.T[::-1])


class Row(NamedTuple):
    """The names and the layout of one weight.

    Attributes:
        ours: This package's name, for example `encoder/blk_0/attention/W_q/kernel`.
        theirs: The other program's name.
        layout: The other program's layout.
    """

    ours: str
    theirs: str
    layout: Layout = SAME


# Maps the last component of our name to the other program's name ending and layout.
Endings = Mapping[str, tuple[str, Layout]]

TENSORFLOW_ENDINGS: Endings = {
    **{weight: (f"/{weight}", SAME) for weight in (*_DENSE, *_NORM)},
    "embeddings": ("", SAME),
}
TORCH_ENDINGS: Endings = {
    "kernel": (".weight", TRANSPOSED),
    **dict.fromkeys(("gamma", "embeddings"), (".weight", SAME)),
    **dict.fromkeys(("bias", "beta"), (".bias", SAME)),
}

# Maps our layers or single weights to those of another program. A single weight may have a layout.
# `{}` stands for the index of a block.
Names = Mapping[str, str | tuple[str, Layout]]


def expand(
    config: BERTConfig, names: Names, endings: Endings, parts: Collection[str] = BERT_PARTS
) -> list[Row]:
    """Return a row for each weight of a model that has a name in another program.

    Args:
        config: The architecture of the model.
        names: The other program's names of layers or single weights.
        endings: The other program's name endings for the weights of a layer.
        parts: The parts of the model, from `PARTS`.
    """
    rows = []
    for ours in weight_names(config, parts):
        block = re.search(r"(?<=/blk_)\d+", ours)
        general = re.sub(r"(?<=/blk_)\d+", "{}", ours)
        layer, _, weight = general.rpartition("/")
        if general in names:
            entry = names[general]
            theirs, layout = (entry, SAME) if isinstance(entry, str) else entry
        elif layer in names:
            ending, layout = endings[weight]
            theirs = f"{names[layer]}{ending}"
        else:
            continue
        rows.append(Row(ours, theirs.format(block and block[0]), layout))
    return rows


def weight_names(config: BERTConfig, parts: Collection[str]) -> list[str]:
    """Return the names of all weights of an architecture.

    Args:
        config: The architecture.
        parts: The parts of the model, from `PARTS`.
    """
    layers: dict[str, tuple[str, ...]] = {"encoder/token_embedding": ("embeddings",)}
    if config.num_segments:
        layers["encoder/segment_embedding"] = ("embeddings",)
    if config.positions == "learned":
        layers["encoder"] = ("pos_embedding",)
    if config.embedding_norm:
        layers["encoder/embedding_ln"] = _NORM
    if config.embedding_width:
        layers["encoder/embedding_projection"] = _DENSE
    if config.relative_buckets:
        layers["encoder/relative_bias"] = ("embeddings",)
    if config.relative_embeddings:
        layers["encoder/relative_embeddings"] = ("embeddings",)
    if config.relative_norm:
        layers["encoder/relative_embeddings/ln"] = _NORM
    if config.conv_kernel_size:
        layers |= {"encoder/conv/conv": _DENSE, "encoder/conv/addnorm/ln": _NORM}
    block = {**BLOCK, **_OWN_RELATIVE_KEYS} if config.own_relative_keys else BLOCK
    for index in range(min(config.num_blks, 1) if config.shared_blocks else config.num_blks):
        layers |= {f"encoder/blk_{index}/{name}": weights for name, weights in block.items()}
    if config.skip_first_norm:
        layers.pop("encoder/blk_0/addnorm1/ln", None)
    if config.final_norm:
        layers["encoder/final_ln"] = _NORM
    if config.pooler:
        layers["hidden"] = _DENSE
        if config.pooler_norm:
            layers["hidden/ln"] = _NORM
    if config.mlm_head == "mlp":
        layers |= {"mlm/mlp/dense": _DENSE, "mlm/mlp/ln": _NORM}
    if config.bias_free:  # not so the layers below
        layers = {name: tuple(set(weights) - {"bias", "beta"}) for name, weights in layers.items()}
    if config.tie_embeddings:
        layers["mlm"] = ("bias",)
    else:
        layers["mlm/mlp/logits"] = _DENSE
    if config.next_sentence:
        layers["nsp/dense"] = _DENSE
    if config.replaced_tokens:
        layers |= {"rtd/dense": _DENSE, "rtd/logits": _DENSE}
    layers |= {"head": _DENSE, "crf": ("transitions", "start", "end")}
    names = [f"{layer}/{weight}" for layer, weights in layers.items() for weight in weights]
    return [name for name in names if part_of(name) in parts]


def part_of(name: str) -> str:
    """Return the part of the model (from `PARTS`) that contains a weight."""
    return name.partition("/")[0]


def first_few(names: Iterable[str], most: int = 100) -> str:
    """Return the first names in alphabetical order, with at most `most` characters of each."""
    names = sorted(names)
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return ", ".join(f"{name:.{most}}" for name in names[:_NUM_NAMED]) + more


def wrapper_prefix(arrays: NamedArrays, pattern: str) -> str:
    """Return what a wrapper, such as `DataParallel`, has put before the names of the weights.

    Args:
        arrays: The arrays of a file.
        pattern: A regular expression for a name that a model has once, without the prefix.

    Raises:
        ValueError: The file contains several models.
    """
    matches = (re.fullmatch(rf"((?:.+?[./])??){pattern}", name) for name in arrays.shapes)
    prefixes = sorted({match[1] for match in matches if match})
    if len(prefixes) > 1:
        raise ValueError(
            f"{arrays.source!r} contains {len(prefixes)} models, with the prefixes "
            f"{first_few(map(shown, prefixes))}. Save the weights of one of them alone."
        )
    return prefixes[0] if prefixes else ""


def without_prefix(prefix: str) -> str:
    """Return the part of a summary that reports the prefix of a wrapper."""
    return f" (without the prefix {shown(prefix)} of its weights)" if prefix else ""


_MOST_USES = 4  # of a shared block, per array: ALBERT has 24 blocks and 23 arrays


def check_extent(config: BERTConfig, arrays: NamedArrays) -> None:
    """Raise `ValueError` if a model would be far larger than the arrays of its file.

    The number of blocks determines the size of the table of names. `check_contents` compares all
    other sizes.
    """
    if config.num_blks > len(arrays.shapes) * (_MOST_USES if config.shared_blocks else 1):
        raise ValueError(
            f"{arrays.source!r} has {len(arrays.shapes)} arrays, too few for the configuration: "
            f"num_blks={config.num_blks}. One of the two files is damaged."
        )


def main_shapes(config: BERTConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights that determine the sizes of all others."""
    width, of_blocks = config.width_of_embeddings, config.num_hiddens
    of_ffn = config.ffn_num_hiddens * (2 if config.gated_ffn else 1)
    return {
        "encoder/token_embedding/embeddings": (config.vocab_size, width),
        "encoder/segment_embedding/embeddings": (config.num_segments, width),
        "encoder/pos_embedding": (1, config.max_len + config.first_position_id, width),
        "encoder/embedding_projection/kernel": (width, of_blocks),
        "encoder/relative_bias/embeddings": (config.relative_buckets, config.num_heads),
        "encoder/relative_embeddings/embeddings": (2 * config.relative_embeddings, of_blocks),
        "encoder/conv/conv/kernel": (config.conv_kernel_size, of_blocks, of_blocks),
        "encoder/blk_0/attention/W_q/kernel": (of_blocks, config.num_heads * config.head_width),
        "encoder/blk_0/ffn/dense1/kernel": (of_blocks, of_ffn),
    }


def check_contents(
    table: Sequence[Row],
    arrays: NamedArrays,
    shapes: Mapping[str, tuple[int, ...]],
    may_lack: Collection[str],
) -> list[str]:
    """Compare the names and shapes of the arrays of a file with those that a model needs.

    Args:
        table: A row for every weight of the model.
        arrays: The arrays of the file that are weights.
        shapes: The shapes of some or all weights, by our names.
        may_lack: The parts of the model, from `PARTS`, that the file may lack.

    Returns:
        The parts that the file lacks.

    Raises:
        ValueError: Arrays are missing or unused, or a shape differs.
    """
    stored = {part_of(row.ours) for row in table if row.theirs in arrays.shapes}
    missing = ({part_of(row.ours) for row in table} - stored).intersection(may_lack)
    needed = {row.theirs for row in table if part_of(row.ours) not in missing}
    if absent := needed - arrays.shapes.keys():
        raise ValueError(
            f"{arrays.source!r} lacks weights of the model: {first_few(absent)}. The file "
            "belongs to a different model or is incomplete. Copy it again."
        )
    if left_over := arrays.shapes.keys() - needed:
        raise ValueError(
            f"{arrays.source!r} contains weights that the configured model does not have: "
            f"{first_few(left_over)}. The file or the configuration belongs to a different model."
        )
    wrong = []
    for row in table:
        if row.theirs in needed and row.ours in shapes:
            expected, found = their_shape(row, shapes[row.ours]), arrays.shapes[row.theirs]
            if found != expected:
                wrong.append(f"{row.theirs} is {found} instead of {expected}")
    if wrong:
        raise ValueError(f"{arrays.source!r} does not match its configuration: {first_few(wrong)}.")
    return sorted(missing)


def their_shape(row: Row, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that a weight has in the other program's layout."""
    if row.layout.shape is not None:
        return row.layout.shape(shape)
    # The axes of a small array have the lengths 1, 2 and so on, which show where each axis ends up.
    numbers = row.layout.to_theirs(np.empty(range(1, len(shape) + 1))).shape
    return tuple(shape[number - 1] for number in numbers)


def named_weights(model: BERTModel | TaskModel) -> dict[str, keras.Variable]:
    """Return the weights of a model by their Keras paths without the model's name.

    A tied token embedding is listed once. The states of random generators and the LoRA matrices
    are not listed.

    Raises:
        ValueError: The model is quantized, or its MLM head has other options than its encoder.
    """
    if model.quantized_policies:
        raise ValueError(
            "A quantized model has no float weights to save, change or load. Do this before "
            "`quantize`; to save the quantized model, use `model.save('model.keras')`."
        )
    # A path may start with a model name or a name scope, so it is compared with the path of the
    # layer.
    layers = {part: getattr(model, part, None) for part in PARTS}
    paths = {part: layer.path for part, layer in layers.items() if layer is not None}
    return {
        part + weight.path.removeprefix(path): weight
        for weight in model.weights
        for part, path in paths.items()
        if weight.path.startswith(f"{path}/") and not weight.name.startswith(LORA_WEIGHTS)
    }


def load_weights(model: BERTModel | TaskModel, table: Sequence[Row], arrays: NamedArrays) -> None:
    """Load the weights of a file into a model.

    A head of a `BERTModel` that is completely missing is initialized at random and recorded in
    `model.missing_heads`. The encoder and all parts of a task model are required.

    Args:
        model: The model.
        table: A row for every weight of the model.
        arrays: The arrays of the file that are weights.

    Raises:
        ValueError: Weights are missing or unused, a shape differs, or a value is not finite.
    """
    weights = named_weights(model)
    _check_names(weights, table)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    may_lack = HEAD_NAMES if isinstance(model, BERTModel) else ()
    missing = check_contents(table, arrays, shapes, may_lack)
    present = [row for row in table if part_of(row.ours) not in missing]
    # Load the largest weight first: it is in memory twice while it is converted, when the memory of
    # the other weights is not yet in use.
    for row in sorted(present, key=lambda row: -math.prod(shapes[row.ours])):
        weights[row.ours].assign(row.layout.to_ours(arrays.read_finite(row.theirs)))
    for layer in model.lora_layers:  # stored kernels include the LoRA update
        matrix = lora_variables(layer)[-1]
        matrix.assign(np.zeros(matrix.shape))
    for part in missing:
        initialize(getattr(model, part))
    has_same_layers = {"hidden/ln/gamma", "mlm/mlp/ln/gamma"} <= weights.keys()
    if has_same_layers and "hidden" in missing and "mlm" not in missing:
        # In transformers, ModernBERT's task models start with the weights of the MLM head's layers.
        for name in [name for name in weights if name.startswith("hidden/")]:
            layer = "mlm/mlp/" if "/ln/" in name else "mlm/mlp/dense/"
            weights[name].assign(weights[name.replace("hidden/", layer)])
    model.missing_heads = frozenset(HEAD_NAMES[part] for part in missing)


def stored_weights(model: BERTModel | TaskModel, table: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the weights of a model in float32, with another program's names and layouts.

    LoRA updates are merged into the kernels. Weights of `model.missing_heads` are omitted, because
    they are random.

    Raises:
        ValueError: The table lacks a row for a weight, so the format cannot express the model.
    """
    weights = named_weights(model)
    _check_names(weights, table)
    lora_layers = {id(lora_variables(layer)[0]): layer for layer in model.lora_layers}
    stored = {}
    for row in table:
        if HEAD_NAMES.get(part_of(row.ours)) in model.missing_heads:
            continue
        weight = weights[row.ours]
        value = keras.ops.convert_to_numpy(weight)
        if id(weight) in lora_layers:
            value = value + lora_update(lora_layers[id(weight)])
        stored[row.theirs] = np.ascontiguousarray(row.layout.to_theirs(value), dtype=np.float32)
    return stored


def _check_names(weights: Mapping[str, keras.Variable], table: Sequence[Row]) -> None:
    """Raise `ValueError` unless the table has exactly one row for each weight of the model."""
    names = {row.ours for row in table}
    if weights.keys() != names:
        raise ValueError(
            "The format cannot express this model. Weights without a counterpart: "
            f"{first_few(weights.keys() ^ names)}."
        )
