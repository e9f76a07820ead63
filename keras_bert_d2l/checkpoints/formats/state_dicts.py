"""Read PyTorch state dicts from npz and safetensors files.

A state dict contains only the named weights of a program. The number of attention heads cannot be
inferred from their shapes, so it is stored with the weights: as the array `num_heads` of an npz
file or as the entry `num_heads` of a safetensors file's metadata. The rate `dropout` may be stored
in the same way. PyTorch's own files are rejected, because they are pickles, which may run code when
they are read.
"""

import os
import pathlib

from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.weights.files import open_npz, open_safetensors
from keras_bert_d2l.checkpoints.weights.tables import TORCH_ENDINGS, Endings, Names, expand
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig

SUFFIXES = (".safetensors", ".npz")
PICKLE_SUFFIXES = (".params", ".pt", ".pth", ".bin", ".pkl")
_ARGUMENTS: dict[str, type[int] | type[float]] = {"num_heads": int, "dropout": float}
# If some names have this prefix, the other arrays are not weights but, for example, test inputs.
_PREFIX = "w/"
_HOW_TO_SAVE = (
    "`safetensors.torch.save_file(state, 'pretrained.safetensors', metadata={'num_heads': '4'})`"
)


class StateDict:
    """A state dict in one file.

    If some names start with `w/`, only these arrays are weights, and the prefix is removed.

    Args:
        file: A file whose suffix is in `SUFFIXES`.

    Attributes:
        arrays: The weights.
        arguments: `num_heads` and `dropout`, if the file stores them.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged or contains pickled objects, or an argument in it is not a
            number.
    """

    def __init__(self, file: pathlib.Path) -> None:
        stored = open_npz(file) if file.suffix == ".npz" else open_safetensors([file])
        weights = stored.shapes.keys() - _ARGUMENTS.keys()
        prefixed = [name for name in weights if name.startswith(_PREFIX)]
        self.arrays = stored.select({n.removeprefix(_PREFIX): n for n in prefixed or weights})
        arguments = stored.metadata.keys() & _ARGUMENTS.keys()
        self.arguments = {name: _number(file, name, stored.metadata[name]) for name in arguments}

    def describe(
        self,
        description: str,
        preset: str,
        num_heads: int | None,
        names: Names,
        endings: Endings = TORCH_ENDINGS,
    ) -> Checkpoint:
        """Describe the state dict as a checkpoint, and infer the sizes from the weights' shapes.

        Args:
            description: The format, for summaries.
            preset: The `BERTConfig` preset of the program that wrote the file.
            num_heads: Number of attention heads, if the file does not store it.
            names: The program's table of names.
            endings: The name endings that the table uses.

        Raises:
            ValueError: A weight is missing or has the wrong number of axes, or the number of heads
                is unknown or does not match the sizes.
        """
        arguments = {"num_heads": num_heads, **self.arguments}
        if arguments["num_heads"] is None:
            raise ValueError(
                f"{self.arrays.source!r} does not record how many attention heads the model has, "
                "and this cannot be inferred from its weights. Pass `num_heads`, on the command "
                "line to `keras-bert-d2l convert`, or store it with the weights: in an npz file as "
                "the array 'num_heads', in a safetensors file as metadata, "
                f"{_HOW_TO_SAVE}."
            )
        sizes = self._sizes(names)
        try:
            config = BERTConfig.preset(preset, **arguments, **sizes)
        except ValueError as error:
            raise ValueError(f"{self.arrays.source!r}: {error}") from error
        table = expand(config, names, endings)
        return Checkpoint(description, config, table, self.arrays, None, {})

    def _sizes(self, names: Names) -> dict[str, int]:
        ffn, positions = names["encoder/blk_{}/ffn/dense1"], names["encoder/pos_embedding"]
        blocks = str(ffn).partition("{}")[0]
        in_blocks = [n.removeprefix(blocks) for n in self.arrays.shapes if n.startswith(blocks)]
        # If the table gives the positions a layout, they are stored without the first of 3 axes.
        pe, num_axes = (positions, 3) if isinstance(positions, str) else (positions[0], 2)
        vocab_size, num_hiddens = self._shape(f"{names['encoder/token_embedding']}.weight", 2)
        return {
            "vocab_size": vocab_size,
            "num_hiddens": num_hiddens,
            "ffn_num_hiddens": self._shape(f"{ffn}.bias".format(0), 1)[0],
            "num_blks": len({name.partition(".")[0] for name in in_blocks}),
            "max_len": self._shape(pe, num_axes)[-2],
            "num_segments": self._shape(f"{names['encoder/segment_embedding']}.weight", 2)[0],
        }

    def _shape(self, name: str, num_axes: int) -> tuple[int, ...]:
        shape = self.arrays.shapes.get(name)
        if shape is None:
            raise ValueError(
                f"{self.arrays.source!r} lacks the weight {name!r}. The file belongs to a "
                "different model or is incomplete: copy it again."
            )
        if len(shape) != num_axes:
            raise ValueError(
                f"{self.arrays.source!r}: {name!r} must have {num_axes} axes. Received: the shape "
                f"{shape}."
            )
        return shape


def refuse_pickle(file: pathlib.Path) -> None:
    """Raise the `ValueError` that rejects PyTorch's own files."""
    raise ValueError(
        f"{os.fspath(file)!r} is a PyTorch or MXNet pickle, which may run code when it is read, so "
        "this package does not read it. Convert it to safetensors in an environment with PyTorch, "
        f"with the model's number of heads: `state = torch.load({file.name!r}, weights_only=True)`"
        f", then {_HOW_TO_SAVE}."
    )


def _number(file: pathlib.Path, name: str, value: str) -> int | float:
    try:
        return _ARGUMENTS[name](value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(file)!r}: `{name}` must be one number. Received: {shown(value)}."
        ) from error
