"""State dicts of two PyTorch tutorials: the codertimo notebook and the iks-ran blog.

The notebook's model is the one from github.com/codertimo/BERT-pytorch. It has sinusoidal positions
and pre-normalization with the unbiased standard deviation. The weight names of the repository and
of the notebook are both supported. The blog's model is the one from blog.iks-ran.com, 2023-07-26,
with the encoder block from 2023-07-19. In both models, token 0 is padding, and column 1 of the
next-sentence logits means "is next". Rows 1 and 2 of the segment embedding are for the two texts
and row 0 is for padding, see `first_segment_id` of `BERTConfig`. The files (npz or safetensors)
contain no vocabulary. These formats can be read but not written.
"""

import pathlib

import numpy as np

from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.state_dicts import SUFFIXES, StateDict
from keras_bert_d2l.checkpoints.weights import tables
from keras_bert_d2l.checkpoints.weights.tables import NamedArrays
from keras_bert_d2l.layers.encoder import sinusoidal_positions

# PyTorch's float32 sines of large angles are inexact because the angles themselves are rounded.
_POSITIONS_TOLERANCE = 1e-3

_BLOG_SIGNATURE = "ebd.t.weight"
# The names have no prefix if the encoder was saved alone.
_NOTEBOOK_SIGNATURES = ("bert.embedding.token.weight", "embedding.token.weight")

_BLOG_NAMES: tables.Names = {
    "encoder/token_embedding": "ebd.t",
    "encoder/segment_embedding": "ebd.s",
    "encoder/pos_embedding": ("ebd.p.weight", tables.POSITIONS),
    **{
        f"encoder/blk_{{}}/attention/W_{letter}": f"blks.{{}}.sublayer_1.w_{letter}"
        for letter in "qkvo"
    },
    "encoder/blk_{}/addnorm1/ln": "blks.{}.norm_1",
    "encoder/blk_{}/ffn/dense1": "blks.{}.sublayer_2.linear_1",
    "encoder/blk_{}/ffn/dense2": "blks.{}.sublayer_2.linear_2",
    "encoder/blk_{}/addnorm2/ln": "blks.{}.norm_2",
    "mlm/mlp/logits": "mlm.fc",
    "nsp/dense": "nsp.fc",
}
_NOTEBOOK_ENDINGS: tables.Endings = {
    **tables.TORCH_ENDINGS,
    "gamma": (".a_2", tables.SAME),
    "beta": (".b_2", tables.SAME),
}


def _notebook_names(
    prefix: str, attention: str, output: str, norms: tuple[str, str]
) -> tables.Names:
    block = f"{prefix}transformer_blocks.{{}}"
    return {
        "encoder/token_embedding": f"{prefix}embedding.token",
        "encoder/segment_embedding": f"{prefix}embedding.segment",
        "encoder/pos_embedding": f"{prefix}embedding.position.pe",
        "encoder/blk_{}/attention/W_q": f"{block}.{attention}.linear_layers.0",
        "encoder/blk_{}/attention/W_k": f"{block}.{attention}.linear_layers.1",
        "encoder/blk_{}/attention/W_v": f"{block}.{attention}.linear_layers.2",
        "encoder/blk_{}/attention/W_o": f"{block}.{attention}.{output}",
        "encoder/blk_{}/addnorm1/ln": f"{block}.{norms[0]}",
        "encoder/blk_{}/ffn/dense1": f"{block}.feed_forward.w_1",
        "encoder/blk_{}/ffn/dense2": f"{block}.feed_forward.w_2",
        "encoder/blk_{}/addnorm2/ln": f"{block}.{norms[1]}",
        "mlm/mlp/logits": "mask_lm.linear",
        "nsp/dense": "next_sentence.linear",
    }


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a file contains a state dict of one of the two programs."""
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    names = StateDict(path).arrays.shapes.keys()
    return not names.isdisjoint((_BLOG_SIGNATURE, *_NOTEBOOK_SIGNATURES))


def describe(path: pathlib.Path, num_heads: int | None = None) -> Checkpoint:
    """Read everything except the weights.

    Args:
        path: The file.
        num_heads: Number of attention heads per block, if the file does not store it.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged or from a different program, its positions are not
            sinusoidal, or the number of heads is unknown or does not match the sizes.
    """
    state = StateDict(path)
    stored = state.arrays.shapes
    if _BLOG_SIGNATURE in stored:
        return state.describe("the blog's state dict (iks-ran)", "iksran", num_heads, _BLOG_NAMES)
    signature = next((name for name in _NOTEBOOK_SIGNATURES if name in stored), None)
    if signature is None:
        raise ValueError(
            f"{state.arrays.source!r} is not a model of the notebook or the blog: it has neither "
            f"{_NOTEBOOK_SIGNATURES[1]!r} nor {_BLOG_SIGNATURE!r}."
        )
    prefix = signature.removesuffix(_NOTEBOOK_SIGNATURES[1])
    if f"{prefix}transformer_blocks.0.attention.output_linear.weight" in stored:
        norms = ("input_sublayer.norm", "output_sublayer.norm")
        names = _notebook_names(prefix, "attention", "output_linear", norms)
    else:
        norms = ("sublayers.0.norm", "sublayers.1.norm")
        names = _notebook_names(prefix, "self_attn", "output_layer", norms)
    checkpoint = state.describe(
        "the notebook's state dict (codertimo)", "codertimo", num_heads, names, _NOTEBOOK_ENDINGS
    )
    positions = f"{prefix}embedding.position.pe"
    _check_positions(state.arrays, positions)
    weights = {name: name for name in stored if name != positions}
    return checkpoint._replace(arrays=state.arrays.select(weights))


def _check_positions(arrays: NamedArrays, name: str) -> None:
    """Raise a `ValueError` if the positions differ from the ones that the model computes."""
    stored = arrays.read(name)
    expected = sinusoidal_positions(*stored.shape[1:])
    if stored.shape != expected.shape or not np.allclose(
        stored, expected, atol=_POSITIONS_TOLERANCE
    ):
        raise ValueError(
            f"{arrays.source!r}: {name!r} must contain sinusoidal positions of shape "
            f"{expected.shape}, which are not trained. Received: different values of shape "
            f"{stored.shape}. The file is damaged or belongs to a different model."
        )
