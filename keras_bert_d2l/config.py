"""BERTConfig: every choice of architecture in one flat, checked, serialisable record.

The fields, their defaults and their names are those of the layers' constructors, of
`get_config()` and of `config.json`. The defaults are the model of *Dive into Deep Learning*,
section 15.8 (d2l.ai), in its TensorFlow edition.
"""

import dataclasses
import json
import os
from typing import Any, Self

from keras_bert_d2l.files import read_json_object, write_text

_CHOICES = {
    "positions": ("learned", "sinusoidal"),
    "layer_norm": ("biased", "unbiased"),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "mask_from": ("valid_lens", "tokens"),
    "mlm_head": ("mlp", "linear"),
    "initializer": ("book", "truncated_normal"),
}
_COUNTS = (
    "vocab_size",
    "num_hiddens",
    "ffn_num_hiddens",
    "num_heads",
    "num_blks",
    "max_len",
    "num_segments",
)
_RATES = ("dropout", "attention_dropout", "embedding_dropout", "ffn_dropout", "block_dropout")
_SWITCHES = (
    "embedding_norm",
    "norm_first",
    "final_norm",
    "pooler",
    "next_sentence",
    "tie_embeddings",
)
_OF_HEADS = ("pooler", "next_sentence", "mlm_head", "tie_embeddings")

_HEAD_WIDTH = 64


def _size(num_blks: int, num_hiddens: int) -> dict[str, int]:
    """Google's proportions: heads 64 wide, a feed-forward layer four times the hidden width."""
    return {
        "num_hiddens": num_hiddens,
        "ffn_num_hiddens": 4 * num_hiddens,
        "num_heads": num_hiddens // _HEAD_WIDTH,
        "num_blks": num_blks,
    }


# github.com/google-research/bert, README: the names, and the grid of the "smaller BERTs".
_SIZES = {
    "tiny": _size(2, 128),
    "mini": _size(4, 256),
    "small": _size(4, 512),
    "medium": _size(8, 512),
    "base": _size(12, 768),
    "large": _size(24, 1024),
} | {
    f"L-{blocks}_H-{width}": _size(blocks, width)
    for blocks in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
}

# modeling.py of google-research/bert. Its "gelu" is the tanh approximation.
_GOOGLE = {
    "vocab_size": 30522,
    "dropout": 0.1,
    "max_len": 512,
    "embedding_dropout": 0.1,
    "embedding_norm": True,
    "layer_norm_epsilon": 1e-12,
    "activation": "gelu_tanh",
    "tie_embeddings": True,
    "initializer": "truncated_normal",
}

# d2l.ai, section 15.10: the small BERT that the book pretrains on WikiText-2.
_D2L = {
    "vocab_size": 20256,
    "num_hiddens": 128,
    "ffn_num_hiddens": 256,
    "num_heads": 2,
    "num_blks": 2,
    "dropout": 0.2,
}

# Models whose padding is token 0 and whose segments are 1 and 2, with 0 for padding.
_PADDED_BY_ZERO: dict[str, Any] = {
    "num_segments": 3,
    "mask_from": "tokens",
    "pooler": False,
    "mlm_head": "linear",
}

_PRESETS: dict[str, dict[str, Any]] = {
    "d2l": _D2L,
    "d2l-torch": {**_D2L, "layer_norm_epsilon": 1e-5},
    # blog.iks-ran.com, 2023-07-26. It names no sizes: those of BERT base.
    "iksran": {
        "vocab_size": 30522,
        **_SIZES["base"],
        "dropout": 0.1,
        "max_len": 512,
        **_PADDED_BY_ZERO,
        "layer_norm_epsilon": 1e-5,
        "activation": "gelu",
    },
    "google": {**_GOOGLE, **_SIZES["base"]},
    # github.com/codertimo/BERT-pytorch, in the sizes of the notebook.
    "codertimo": {
        "vocab_size": 30000,
        **_SIZES["base"],
        "dropout": 0.1,
        "max_len": 512,
        **_PADDED_BY_ZERO,
        "embedding_dropout": 0.1,
        "ffn_dropout": 0.1,
        "block_dropout": 0.1,
        "positions": "sinusoidal",
        "norm_first": True,
        "layer_norm_epsilon": 1e-6,
        "layer_norm": "unbiased",
        "activation": "gelu_tanh",
    },
    "huggingface": {**_GOOGLE, **_SIZES["base"], "activation": "gelu"},
    **{name: {**_GOOGLE, **size} for name, size in _SIZES.items()},
}


def check_choice(name: str, value: str) -> str:
    """Returns the value of a field that has a few, or raises a `ValueError` that names them."""
    if value not in _CHOICES[name]:
        raise ValueError(f"`{name}` must be one of {_CHOICES[name]}. Received: {name}={value!r}.")
    return value


@dataclasses.dataclass(frozen=True)
class BERTConfig:
    """The architecture of a BERT.

    Args:
        vocab_size: Number of tokens in the vocabulary, V.
        num_hiddens: Width of the encoder, D; a multiple of `num_heads`.
        ffn_num_hiddens: Width of the position-wise feed-forward layer.
        num_heads: Attention heads per block, N.
        num_blks: Transformer blocks, L.
        dropout: Rate of the dropout after each sublayer, in [0, 1).
        max_len: Longest sequence that the position embeddings cover.
        attention_dropout: Rate of the dropout on the attention weights; `None`: as `dropout`.
        embedding_dropout: Rate of the dropout on the summed embeddings (google, Hugging Face and
            the notebook 0.1; the book none).
        ffn_dropout: Rate of the dropout between the two feed-forward layers (the notebook 0.1).
        block_dropout: Rate of the dropout at the end of each block (the notebook 0.1).
        num_segments: Rows of the segment embedding (the blog and the notebook 3, with 0 for
            padding).
        positions: `"learned"`, or `"sinusoidal"`, which is fixed (the notebook).
        embedding_norm: Whether the summed embeddings are layer-normalised (google and Hugging
            Face) or not (the others).
        norm_first: Whether each sublayer normalises its input (the notebook) or the sum of its
            input and output (the others).
        final_norm: Whether the last block's output is normalised; only with `norm_first`.
        layer_norm_epsilon: Added to the variance (Keras and the book in TensorFlow 1e-3, the
            book in PyTorch and the blog 1e-5, google and Hugging Face 1e-12).
        layer_norm: `"biased"`: by the root of the mean square; or `"unbiased"`: by the
            standard deviation over D - 1, to which the epsilon is added (the notebook, 1e-6).
        activation: Of the feed-forward layer and the MLM head: `"relu"` (the book), `"gelu"`
            (exact, with erf: Hugging Face and the blog) or `"gelu_tanh"` (google's approximation,
            also the notebook's).
        mask_from: Which keys are padding: `"valid_lens"`, those past the valid length; or
            `"tokens"`, those with the id 0 as well (the blog and the notebook).
        pooler: Whether a tanh layer stands between `[CLS]` and the NSP head (not in the blog and
            the notebook).
        next_sentence: Whether there is an NSP head.
        mlm_head: `"mlp"`, a dense layer and a normalisation before the logits; or `"linear"`,
            the logits alone (the blog and the notebook).
        tie_embeddings: Whether the MLM logits come from the transposed token embedding plus a
            bias (google and Hugging Face) or from a dense layer of its own (the others).
        initializer: `"book"` (Keras's defaults, positions from N(0, 0.05), but a last layer of
            `mlm` and `nsp` that starts as a guess) or `"truncated_normal"` (all with 0.02, google).

    Raises:
        ValueError: A field is out of its range, or two fields do not go together.
    """

    vocab_size: int
    num_hiddens: int
    ffn_num_hiddens: int
    num_heads: int
    num_blks: int
    dropout: float
    max_len: int = 1000
    _: dataclasses.KW_ONLY
    attention_dropout: float | None = None
    embedding_dropout: float = 0.0
    ffn_dropout: float = 0.0
    block_dropout: float = 0.0
    num_segments: int = 2
    positions: str = "learned"
    embedding_norm: bool = False
    norm_first: bool = False
    final_norm: bool = False
    layer_norm_epsilon: float = 1e-3
    layer_norm: str = "biased"
    activation: str = "relu"
    mask_from: str = "valid_lens"
    pooler: bool = True
    next_sentence: bool = True
    mlm_head: str = "mlp"
    tie_embeddings: bool = False
    initializer: str = "book"

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"`{name}` must be a positive integer. Received: {name}={value!r}."
                )
        for name in _RATES:
            value = getattr(self, name)
            if name == "attention_dropout" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise ValueError(f"`{name}` must be in [0, 1). Received: {name}={value!r}.")
        epsilon = self.layer_norm_epsilon
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or epsilon <= 0:
            raise ValueError(
                "`layer_norm_epsilon` must be a positive number. Received: "
                f"layer_norm_epsilon={epsilon!r}."
            )
        for name in _CHOICES:
            check_choice(name, getattr(self, name))
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"`{name}` must be True or False. Received: {name}={getattr(self, name)!r}."
                )
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.num_hiddens % self.num_heads:
            raise ValueError(
                "`num_hiddens` must be a multiple of `num_heads`, so that each head gets the same "
                f"width. Received: num_hiddens={self.num_hiddens}, num_heads={self.num_heads}."
            )
        if self.positions == "sinusoidal" and self.num_hiddens % 2:
            raise ValueError(
                "`num_hiddens` must be even with positions='sinusoidal', a sine and a cosine for "
                f"each frequency. Received: num_hiddens={self.num_hiddens}."
            )
        if self.layer_norm == "unbiased" and self.num_hiddens == 1:
            raise ValueError(
                "`num_hiddens` must be at least 2 with layer_norm='unbiased', which divides by "
                "num_hiddens - 1. Received: num_hiddens=1."
            )
        if self.final_norm and not self.norm_first:
            raise ValueError(
                "`final_norm` needs norm_first=True: without it each block ends in a "
                "normalisation already. Received: final_norm=True, norm_first=False."
            )

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Returns a named architecture.

        Args:
            name: A system: `"d2l"` (the book's section 15.10 in TensorFlow), `"d2l-torch"`,
                `"iksran"` (a blog), `"google"`, `"codertimo"` (a notebook), `"huggingface"`; or a
                size of google's architecture: `"tiny"`, `"mini"`, `"small"`, `"medium"`, `"base"`,
                `"large"`, or `"L-2_H-128"` and so on, with 2, 4, 6, 8, 10 or 12 blocks of
                width 128, 256, 512 or 768.
            **overrides: Fields to set otherwise, for instance `vocab_size=8000`.

        Raises:
            ValueError: There is no such preset, or a field is unknown or out of its range.
        """
        if name not in _PRESETS:
            raise ValueError(f"`name` must be one of {tuple(_PRESETS)}. Received: name={name!r}.")
        return cls.from_dict({**_PRESETS[name], **overrides})

    def of_encoder(self) -> dict[str, Any]:
        """Returns the fields that are the encoder's, as arguments for `BERTEncoder`."""
        return {name: value for name, value in self.to_dict().items() if name not in _OF_HEADS}

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a plain dictionary, in the order of the constructor."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Returns the configuration of a dictionary of fields.

        Raises:
            ValueError: A field is unknown, missing, or out of its range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(fields) - set(known))
        if unknown:
            raise ValueError(f"Unknown field {unknown[0]!r} in a BERTConfig; it has {known}.")
        missing = [
            field.name
            for field in dataclasses.fields(cls)
            if field.default is dataclasses.MISSING and field.name not in fields
        ]
        if missing:
            raise ValueError(
                f"A BERTConfig needs the field {missing[0]!r}; received {sorted(fields)}."
            )
        return cls(**fields)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes the fields to a JSON file, whole or not at all."""
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is not JSON, or a field is unknown, missing, or out of its range.
        """
        fields = read_json_object(path)
        try:
            return cls.from_dict(fields)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r}: {error}") from error
