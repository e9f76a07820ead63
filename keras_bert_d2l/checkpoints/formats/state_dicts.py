"""State dicts of PyTorch programs: *Dive into Deep Learning*, and two tutorials.

- The book (d2l.ai, sections 15.8 and 16.7). A folder has the layout of the book's `bert.small` and
  `bert.base`: `vocab.json` is the list of tokens, and the parameters are in
  `pretrained.safetensors` or `pretrained.npz`. A single file of parameters, without a vocabulary,
  can also be read. The options of the book's model are fixed: two segments, ReLU, an epsilon of
  1e-5. `pretrained.params` of the PyTorch edition can also be read.
- The notebook of github.com/codertimo/BERT-pytorch, with sinusoidal positions, and
  pre-normalization with the unbiased standard deviation. The weight names of the repository and of
  the notebook are both read.
- The blog blog.iks-ran.com, 2023-07-26, with the encoder block from 2023-07-19.

Those of the book are also written: `pretrained.safetensors`, which PyTorch loads by
`net.load_state_dict(safetensors.torch.load_file(file))`, and `vocab.json`.

In the tutorials, token 0 is padding, and rows 1 and 2 of the segment embedding are for the two
texts, see `first_segment_id` of `BERTConfig`. In all three, column 1 of the next-sentence logits
means "is next".

The number of attention heads cannot be inferred from the shapes of the weights, so it is stored
with them: as the array `num_heads` of an npz file or as the entry `num_heads` of a safetensors
file's metadata. The rate `dropout` may be stored in the same way. PyTorch's own files store
neither, so pass `num_heads`; they are read without unpickling.
"""

import os
import pathlib
import re
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.array_files import (
    NamedArrays,
    open_npz,
    open_safetensors,
    write_safetensors,
)
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.foreign_config import check_kept
from keras_bert_d2l.checkpoints.torch_files import open_torch
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.layers.positions import sinusoidal_positions
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.reading import MOST_VOCAB_BYTES, errors_naming, has_file, read_json
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab

VOCAB_FILE, PARAMETERS = "vocab.json", "pretrained"
_SUFFIXES = (".safetensors", ".npz", ".params", ".pt", ".pth", ".bin", ".ckpt", ".pkl")
_ARGUMENTS: dict[str, type[int] | type[float]] = {"num_heads": int, "dropout": float}
# If some names have this prefix, the other arrays are not weights but, for example, test inputs.
_PREFIX = "w/"
# The arguments of the models, and fields which do not affect trained weights.
_FREE = """
    vocab_size num_hiddens ffn_num_hiddens num_heads num_blks dropout max_len initializer
    initializer_range num_tokens
""".split()
# PyTorch's float32 sines of large angles are inexact because the angles themselves are rounded.
_POSITIONS_TOLERANCE = 1e-3


class Program(NamedTuple):
    """A program that writes state dicts.

    Attributes:
        description: The format, for summaries.
        preset: The `BERTConfig` preset of the program.
        signature: A name that its state dicts have, and no others.
        names: The program's table of names.
        endings: The name endings that the table uses.
    """

    description: str
    preset: str
    signature: str
    names: weights.Names
    endings: weights.Endings = weights.TORCH_ENDINGS


BOOK = Program(
    "the parameters of d2l.ai",
    "d2l-torch",
    "encoder.blks.0.addnorm1.ln.weight",
    {
        "encoder/token_embedding": "encoder.token_embedding",
        "encoder/segment_embedding": "encoder.segment_embedding",
        "encoder/pos_embedding": "encoder.pos_embedding",
        **{
            f"encoder/blk_{{}}/{layer}": f"encoder.blks.{{}}.{layer.replace('/', '.')}"
            for layer in weights.BLOCK
        },
        "hidden": "hidden.0",
        "mlm/mlp/dense": "mlm.mlp.0",
        "mlm/mlp/ln": "mlm.mlp.2",
        "mlm/mlp/logits": "mlm.mlp.3",
        "nsp/dense": "nsp.output",
    },
)
BLOG = Program(
    "the blog's state dict (iks-ran)",
    "iksran",
    "ebd.t.weight",
    {
        "encoder/token_embedding": "ebd.t",
        "encoder/segment_embedding": "ebd.s",
        "encoder/pos_embedding": ("ebd.p.weight", weights.POSITIONS),
        **{f"encoder/blk_{{}}/attention/W_{x}": f"blks.{{}}.sublayer_1.w_{x}" for x in "qkvo"},
        "encoder/blk_{}/addnorm1/ln": "blks.{}.norm_1",
        "encoder/blk_{}/ffn/dense1": "blks.{}.sublayer_2.linear_1",
        "encoder/blk_{}/ffn/dense2": "blks.{}.sublayer_2.linear_2",
        "encoder/blk_{}/addnorm2/ln": "blks.{}.norm_2",
        "mlm/mlp/logits": "mlm.fc",
        "nsp/dense": "nsp.fc",
    },
)
_OF_NOTEBOOK = "bert.transformer_blocks.{}"
NOTEBOOK = Program(
    "the notebook's state dict (codertimo)",
    "codertimo",
    "bert.embedding.token.weight",
    {
        "encoder/token_embedding": "bert.embedding.token",
        "encoder/segment_embedding": "bert.embedding.segment",
        "encoder/pos_embedding": "bert.embedding.position.pe",
        "encoder/blk_{}/attention/W_q": f"{_OF_NOTEBOOK}.self_attn.linear_layers.0",
        "encoder/blk_{}/attention/W_k": f"{_OF_NOTEBOOK}.self_attn.linear_layers.1",
        "encoder/blk_{}/attention/W_v": f"{_OF_NOTEBOOK}.self_attn.linear_layers.2",
        "encoder/blk_{}/attention/W_o": f"{_OF_NOTEBOOK}.self_attn.output_layer",
        "encoder/blk_{}/addnorm1/ln": f"{_OF_NOTEBOOK}.sublayers.0.norm",
        "encoder/blk_{}/ffn/dense1": f"{_OF_NOTEBOOK}.feed_forward.w_1",
        "encoder/blk_{}/ffn/dense2": f"{_OF_NOTEBOOK}.feed_forward.w_2",
        "encoder/blk_{}/addnorm2/ln": f"{_OF_NOTEBOOK}.sublayers.1.norm",
        "mlm/mlp/logits": "mask_lm.linear",
        "nsp/dense": "next_sentence.linear",
    },
    {**weights.TORCH_ENDINGS, "gamma": (".a_2", weights.SAME), "beta": (".b_2", weights.SAME)},
)
_PROGRAMS = (BOOK, BLOG, NOTEBOOK)
_OF_REPOSITORY = {  # its names, and those of the notebook
    ".attention.output_linear.": ".self_attn.output_layer.",
    ".attention.linear_layers.": ".self_attn.linear_layers.",
    ".input_sublayer.": ".sublayers.0.",
    ".output_sublayer.": ".sublayers.1.",
}
_ANY_SIGNATURE = "|".join(re.escape(program.signature) for program in _PROGRAMS)
# The encoder of the notebook may be saved alone.
_ANY_SIGNATURE += "|" + re.escape(NOTEBOOK.signature.removeprefix("bert."))


def _program(arrays: NamedArrays) -> Program | None:
    """Return the program that wrote some weights, or `None` if it is not known."""
    return next((one for one in _PROGRAMS if one.signature in arrays.shapes), None)


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder has the book's layout, or a file has a program's weight names."""
    if path.is_dir():
        return os.path.lexists(_parameters(path))
    if not path.is_file() or path.suffix not in _SUFFIXES:
        return False
    return _program(_open(path)[0]) is not None


def describe(
    path: pathlib.Path, num_heads: int | None = None, *, tokenizer: bool = True
) -> Checkpoint:
    """Read everything except the weights, and infer the sizes from the weights' shapes.

    Args:
        path: A folder or a file.
        num_heads: Number of attention heads per block, if the file does not store it.
        tokenizer: Whether to read the files of the tokenizer.

    Raises:
        FileNotFoundError: The parameter file is missing.
        ValueError: A file is damaged or contradicts the other file, a weight is missing, the
            positions of the notebook are not sinusoidal, or the number of heads is unknown or does
            not match the sizes.
    """
    arrays, prefix = _open(_parameters(path))
    program = _program(arrays) or BOOK
    arguments = _arguments(arrays, num_heads)
    sizes = _sizes(arrays, program.names)
    with errors_naming(arrays.source):
        config = BERTConfig.preset(program.preset, **arguments, **sizes)
    table = weights.expand(config, program.names, program.endings)
    description = program.description + weights.without_prefix(prefix)
    checkpoint = Checkpoint(description, config, table, arrays, None, {})
    if config.positions == "sinusoidal":  # they are not trained
        name = str(program.names["encoder/pos_embedding"])
        positions = _sinusoidal(arrays, name)
        others = arrays.select({other: other for other in arrays.shapes if other != name})
        checkpoint = checkpoint._replace(arrays=others, positions=positions)
    if not tokenizer or not has_file(path / VOCAB_FILE):
        return checkpoint
    with errors_naming(path / VOCAB_FILE, " is not a vocabulary of the book"):
        tokens = read_json(path / VOCAB_FILE, MOST_VOCAB_BYTES)
        if not isinstance(tokens, list):
            raise ValueError(f"it must be a JSON list of tokens. Received: {shown(tokens)}.")
        vocab = Vocab(tokens)
    # The book lowercases every text.
    return checkpoint._replace(vocab=vocab, tokenizer_options={"lowercase": True})


def write(
    model: BERTModel, folder: pathlib.Path, vocab: Vocab | None, tokenizer_options: TokenizerOptions
) -> None:
    """Write a folder with the book's layout.

    The parameters are written to `pretrained.safetensors`, with the number of heads and the
    dropout rate in the metadata, which PyTorch ignores. A warning is issued if a dropout rate
    cannot be stored. The outputs do not depend on it.

    Raises:
        ValueError: The format cannot express the model. The message names the field.
    """
    if model.missing_heads:
        raise ValueError(
            "The format 'book' requires every head, but the checkpoint of this model lacked "
            f"{sorted(model.missing_heads)}. Train the missing heads, or choose another format."
        )
    config = model.bert_config
    kept = {name: getattr(config, name) for name in _FREE}
    check_kept(config, BERTConfig.preset(BOOK.preset, **kept), "the book")
    arrays = weights.stored_weights(model, weights.expand(config, BOOK.names, BOOK.endings))
    if vocab is not None:
        write_json(folder / VOCAB_FILE, vocab.tokens, indent=None, ensure_ascii=False)
    metadata = {name: str(getattr(config, name)) for name in _ARGUMENTS}
    write_safetensors(folder / f"{PARAMETERS}.safetensors", arrays, metadata)


def _parameters(path: pathlib.Path) -> pathlib.Path:
    """Return the parameter file. In a folder, safetensors is preferred, and npz to PyTorch's."""
    files = [path / (PARAMETERS + suffix) for suffix in _SUFFIXES] if path.is_dir() else [path]
    return next((file for file in files if os.path.lexists(file)), files[0])


def _open(file: pathlib.Path) -> tuple[NamedArrays, str]:
    """Open a state dict without the prefix of a wrapper, which is returned too.

    The names are those of the notebook instead of its repository.
    """
    open_files = open_safetensors if file.suffix == ".safetensors" else open_torch
    stored = open_npz(file) if file.suffix == ".npz" else open_files([file])
    prefix = weights.wrapper_prefix(stored, f"(?:{_ANY_SIGNATURE})")
    is_alone = f"{prefix}{NOTEBOOK.signature}" not in stored.shapes  # the encoder of the notebook
    names = {}
    for name in stored.shapes.keys() - _ARGUMENTS.keys():
        if prefix == _PREFIX and not name.startswith(_PREFIX):
            continue
        ours = name.removeprefix(prefix)
        for old, new in _OF_REPOSITORY.items():
            ours = ours.replace(old, new)
        if is_alone and ours.startswith(("embedding.", "transformer_blocks.")):
            ours = f"bert.{ours}"
        names[ours] = name
    return stored.select(names), "" if prefix == _PREFIX else prefix


def _arguments(arrays: NamedArrays, num_heads: int | None) -> dict[str, int | float]:
    """Return `num_heads` and, if the file stores it, `dropout`."""
    found: dict[str, int | float] = {} if num_heads is None else {"num_heads": num_heads}
    for name, kind in _ARGUMENTS.items():
        if name in arrays.metadata:
            with errors_naming(arrays.source, f" has no number as `{name}`"):
                found[name] = kind(arrays.metadata[name])
    if "num_heads" not in found:
        raise ValueError(
            f"{arrays.source!r} does not record how many attention heads the model has, and this "
            "cannot be inferred from its weights. Pass `num_heads`, on the command line to "
            "`keras-bert-d2l convert`, or store it with the weights: in an npz file as the array "
            "'num_heads', in a safetensors file as metadata, `safetensors.torch.save_file(state, "
            "'pretrained.safetensors', metadata={'num_heads': '4'})`."
        )
    return found


def _sizes(arrays: NamedArrays, names: weights.Names) -> dict[str, int]:
    """Infer the sizes of the model from the shapes of its weights."""

    def shape(name: str, num_axes: int) -> tuple[int, ...]:
        found = arrays.shapes.get(name)
        if found is None or len(found) != num_axes:
            raise ValueError(
                f"{arrays.source!r} must have an array {name!r} with {num_axes} axes. Received: "
                f"{found}. The file belongs to a different model or is incomplete: copy it again."
            )
        return found

    ffn, positions = str(names["encoder/blk_{}/ffn/dense1"]), names["encoder/pos_embedding"]
    blocks = ffn.partition("{}")[0]
    in_blocks = [n.removeprefix(blocks) for n in arrays.shapes if n.startswith(blocks)]
    # If the table gives the positions a layout, they are stored without the first of 3 axes.
    pe, num_axes = (positions, 3) if isinstance(positions, str) else (positions[0], 2)
    vocab_size, num_hiddens = shape(f"{names['encoder/token_embedding']}.weight", 2)
    return {
        "vocab_size": vocab_size,
        "num_hiddens": num_hiddens,
        "ffn_num_hiddens": shape(f"{ffn}.bias".format(0), 1)[0],
        "num_blks": len({name.partition(".")[0] for name in in_blocks}),
        "max_len": shape(pe, num_axes)[-2],
        "num_segments": shape(f"{names['encoder/segment_embedding']}.weight", 2)[0],
    }


def _sinusoidal(arrays: NamedArrays, name: str) -> np.ndarray:
    """Return stored positions, or raise a `ValueError` if they are not those that we compute."""
    stored = arrays.read(name)
    expected = sinusoidal_positions(*stored.shape[1:])
    if stored.shape != expected.shape or not np.allclose(
        stored, expected, atol=_POSITIONS_TOLERANCE
    ):
        raise ValueError(
            f"{arrays.source!r}: {name!r} must contain sinusoidal positions of shape "
            f"{expected.shape}. Received: different values of shape {stored.shape}. The file is "
            "damaged or belongs to a different model."
        )
    return stored
