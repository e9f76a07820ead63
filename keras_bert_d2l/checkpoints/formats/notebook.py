"""State dicts of two PyTorch tutorials' models, read: a notebook's and a blog's.

The notebook's model is that of github.com/codertimo/BERT-pytorch (sinusoidal positions,
normalisation first, by the unbiased standard deviation); its names are read in the spelling of
either. The blog's is that of blog.iks-ran.com, 2023-07-26, with the encoder block of 2023-07-19.
Both take token 0 for padding and number segments 1 and 2, with 0 for padding; in both, "is next"
is column 1. They are read from an npz or safetensors file, which has no vocabulary.
"""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.formats.state_dicts import SUFFIXES, StateDict, dense, layer_norm
from keras_bert_d2l.checkpoints.weights.transfer import POSITIONS, Checkpoint, Row
from keras_bert_d2l.layers.encoder import sinusoidal_positions

# Sines of large angles in float32, as PyTorch computes them, are off by a rounding of the angle.
_POSITIONS_TOLERANCE = 1e-3


class _Spelling(NamedTuple):
    """How the notebook or the repository it follows names the parts of a block."""

    attention: str
    output: str
    norms: tuple[str, str]


_NOTEBOOK = _Spelling("self_attn", "output_layer", ("sublayers.0.norm", "sublayers.1.norm"))
_REPOSITORY = _Spelling(
    "attention", "output_linear", ("input_sublayer.norm", "output_sublayer.norm")
)


def recognises(path: pathlib.Path) -> bool:
    """Tells whether a file holds a state dict of one of the two programs."""
    return path.suffix in SUFFIXES and path.is_file() and _reader(StateDict(path)) is not None


def describe(path: pathlib.Path, num_heads: int | None = None) -> Checkpoint:
    """Reads everything but the weights.

    Args:
        path: A file that `recognises` recognises.
        num_heads: Attention heads per block, where the file does not say it.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or of another program, its positions are not sinusoidal, or
            the number of heads is unknown or does not fit.
    """
    state = StateDict(path)
    reader = _reader(state)
    if reader is None:
        raise ValueError(
            f"{state.source!r} holds no model of the notebook or the blog: it has neither "
            "'embedding.token.weight' nor 'ebd.t.weight'."
        )
    return reader(state, num_heads)


def _reader(state: StateDict) -> Callable[[StateDict, int | None], Checkpoint] | None:
    names = state.shapes()
    if "ebd.t.weight" in names:
        return _describe_blog
    if any(prefix + "embedding.token.weight" in names for prefix in ("bert.", "")):
        return _describe_notebook
    return None


def _describe_notebook(state: StateDict, num_heads: int | None) -> Checkpoint:
    # The repository saves the encoder alone, whose names then lack the first word.
    prefix = "bert." if "bert.embedding.token.weight" in state.shapes() else ""
    blocks = f"{prefix}transformer_blocks."
    vocab_size, num_hiddens = state.shape(f"{prefix}embedding.token.weight", 2)
    config = state.config(
        "codertimo",
        num_heads,
        vocab_size=vocab_size,
        num_hiddens=num_hiddens,
        ffn_num_hiddens=state.shape(f"{blocks}0.feed_forward.w_1.bias", 1)[0],
        num_blks=state.num_blocks(blocks),
        max_len=state.shape(f"{prefix}embedding.position.pe", 3)[1],
        num_segments=state.shape(f"{prefix}embedding.segment.weight", 2)[0],
    )
    _take_positions(state, f"{prefix}embedding.position.pe")
    spelled = f"{blocks}0.{_REPOSITORY.attention}.{_REPOSITORY.output}.weight"
    spelling = _REPOSITORY if spelled in state.shapes() else _NOTEBOOK
    rows = [
        Row("encoder/token_embedding/embeddings", f"{prefix}embedding.token.weight"),
        Row("encoder/segment_embedding/embeddings", f"{prefix}embedding.segment.weight"),
    ]
    for index in range(config.num_blks):
        rows += _notebook_block(f"encoder/blk_{index}", f"{blocks}{index}", spelling)
    rows += dense("mlm/mlp/logits", "mask_lm.linear") + dense("nsp/dense", "next_sentence.linear")
    return Checkpoint("the notebook's state dict (codertimo)", config, rows, state, None, {})


def _notebook_block(ours: str, theirs: str, spelling: _Spelling) -> list[Row]:
    attention = f"{theirs}.{spelling.attention}"
    rows = []
    for number, letter in enumerate("qkv"):
        rows += dense(f"{ours}/attention/W_{letter}", f"{attention}.linear_layers.{number}")
    rows += dense(f"{ours}/attention/W_o", f"{attention}.{spelling.output}")
    for number, norm in enumerate(spelling.norms, start=1):
        rows += layer_norm(f"{ours}/addnorm{number}/ln", f"{theirs}.{norm}", "a_2", "b_2")
        rows += dense(f"{ours}/ffn/dense{number}", f"{theirs}.feed_forward.w_{number}")
    return rows


def _take_positions(state: StateDict, name: str) -> None:
    """Leaves out the buffer of positions, which the model computes, after a look at it."""
    stored = state.read(name)
    expected = sinusoidal_positions(*stored.shape[1:])
    if stored.shape != expected.shape or not np.allclose(
        stored, expected, atol=_POSITIONS_TOLERANCE
    ):
        raise ValueError(
            f"{state.source!r}: {name!r} must be the sinusoidal positions of shape "
            f"{expected.shape}, which are not trained. Received: other numbers in the shape "
            f"{stored.shape}; the model is another one, or the file damaged."
        )
    state.leave_out(name)


def _describe_blog(state: StateDict, num_heads: int | None) -> Checkpoint:
    vocab_size, num_hiddens = state.shape("ebd.t.weight", 2)
    config = state.config(
        "iksran",
        num_heads,
        vocab_size=vocab_size,
        num_hiddens=num_hiddens,
        ffn_num_hiddens=state.shape("blks.0.sublayer_2.linear_1.bias", 1)[0],
        num_blks=state.num_blocks("blks."),
        max_len=state.shape("ebd.p.weight", 2)[0],
        num_segments=state.shape("ebd.s.weight", 2)[0],
    )
    rows = [
        Row("encoder/token_embedding/embeddings", "ebd.t.weight"),
        Row("encoder/segment_embedding/embeddings", "ebd.s.weight"),
        Row("encoder/pos_embedding", "ebd.p.weight", POSITIONS),
    ]
    for index in range(config.num_blks):
        rows += _blog_block(f"encoder/blk_{index}", f"blks.{index}")
    rows += dense("mlm/mlp/logits", "mlm.fc") + dense("nsp/dense", "nsp.fc")
    return Checkpoint("the blog's state dict (iks-ran)", config, rows, state, None, {})


def _blog_block(ours: str, theirs: str) -> list[Row]:
    rows = []
    for letter in "qkvo":
        rows += dense(f"{ours}/attention/W_{letter}", f"{theirs}.sublayer_1.w_{letter}")
    for number in (1, 2):
        rows += layer_norm(f"{ours}/addnorm{number}/ln", f"{theirs}.norm_{number}")
        rows += dense(f"{ours}/ffn/dense{number}", f"{theirs}.sublayer_2.linear_{number}")
    return rows
