"""`BERTConfig`: all options of a BERT architecture in one flat, validated, serializable record.

Constructor arguments, `get_config()` and `config.json` use these field names and defaults. The
defaults describe the model of *Dive into Deep Learning*, section 15.8 (d2l.ai), in its TensorFlow
edition.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Self, TypeAlias, TypeVar, cast

import numpy as np

from keras_bert_d2l.checks import (
    at_least,
    check_annotated,
    check_choice,
    check_known,
    check_not_negative,
    check_positive,
    check_that,
    shown,
)
from keras_bert_d2l.files import write_json
from keras_bert_d2l.reading import errors_naming, read_json_object
from keras_bert_d2l.types import ConfigDict, LayerOptions, PathLike

Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "tanh", "linear"]
Initializer: TypeAlias = Literal["book", "truncated_normal"]
LayerNorm: TypeAlias = Literal["biased", "unbiased"]
MaskFrom: TypeAlias = Literal["valid_lens", "tokens"]
MLMHead: TypeAlias = Literal["mlp", "linear"]
Positions: TypeAlias = Literal["learned", "sinusoidal", "none"]
_Value = TypeVar("_Value", str, int, float)
# The annotation of a field has its check, a function of the field's name and its value.
Size: TypeAlias = Annotated[int, at_least(1)]
Count: TypeAlias = Annotated[int, at_least(0)]
Rate: TypeAlias = Annotated[float, functools.partial(check_not_negative, below=1)]
Epsilon: TypeAlias = Annotated[float, check_positive]
Deviation: TypeAlias = Annotated[float, check_not_negative]


_HEAD_WIDTH = 64
_OF_LAYERS = ("activity_regularizer", "autocast")  # more arguments that every Keras layer takes


def _size(num_blks: int, num_hiddens: int) -> dict[str, int]:
    """Return sizes in Google's proportions: heads of width 64, feed-forward layers of width 4 D."""
    return {
        "num_hiddens": num_hiddens,
        "ffn_num_hiddens": 4 * num_hiddens,
        "num_heads": num_hiddens // _HEAD_WIDTH,
        "num_blks": num_blks,
    }


# Names and the grid of "smaller BERTs" from the README of github.com/google-research/bert.
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

# For models that pad with token 0 and use the segments 1 and 2, with 0 for padding.
_PADDED_BY_ZERO: ConfigDict = {
    "num_segments": 3,
    "first_segment_id": 1,
    "mask_from": "tokens",
    "pooler": False,
    "mlm_head": "linear",
}

_PRESETS: dict[str, ConfigDict] = {
    "d2l": _D2L,
    "d2l-torch": {**_D2L, "layer_norm_epsilon": 1e-5},
    # blog.iks-ran.com, 2023-07-26. It gives no sizes, so these are the sizes of BERT base.
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
    # github.com/codertimo/BERT-pytorch, with the sizes of the notebook.
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
        "zero_padding": True,
    },
    "huggingface": {**_GOOGLE, **_SIZES["base"], "activation": "gelu"},
    **{name: {**_GOOGLE, **size} for name, size in _SIZES.items()},
}


def check_field(name: str, value: _Value) -> _Value:
    """Return `value`, or raise a `ValueError` if it is invalid for the field `name`."""
    return check_annotated(name, value, BERTConfig.__dataclass_fields__[name].type)


def check_heads(num_hiddens: int, num_heads: int) -> None:
    """Raise a `ValueError` unless `num_hiddens` is a multiple of `num_heads`."""
    is_right = check_field("num_hiddens", num_hiddens) % check_field("num_heads", num_heads) == 0
    expected = f"a multiple of `num_heads` (num_heads={num_heads}), the same width for each head"
    check_that(is_right, "num_hiddens", expected, num_hiddens)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BlockFields:
    """Fields and methods that `BlockConfig` and `BERTConfig` share."""

    attention_dropout: Rate | None = None
    ffn_dropout: Rate = 0.0
    block_dropout: Rate = 0.0
    norm_first: bool = False
    layer_norm_epsilon: Epsilon = 1e-3
    layer_norm: LayerNorm = "biased"
    activation: Activation = "relu"
    initializer: Initializer = "book"
    initializer_range: Deviation = 0.02

    def __new__(cls, *values: object, **fields: object) -> Self:
        check_known("field", fields, cls.__dataclass_fields__)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.generic):  # as plain Python numbers, they fit into JSON
                value = value.item()
                object.__setattr__(self, field.name, value)
            check_annotated(field.name, value, field.type)

    @classmethod
    def of_layer(cls, *sizes: float, **options: object) -> tuple[Self, LayerOptions]:
        """Split a layer's arguments into a configuration and the remaining ones, for Keras."""
        make: Callable[..., Self] = cls
        known = (*cls.__dataclass_fields__, *LayerOptions.__annotations__, *_OF_LAYERS)
        check_known("argument", options, known)
        own = {name: options.pop(name) for name in [*options] if name in cls.__dataclass_fields__}
        return make(*sizes, **own), cast(LayerOptions, options)

    def to_dict(self) -> ConfigDict:
        """Return the fields as a plain dictionary, in the order of the constructor."""
        fields = sorted(dataclasses.fields(self), key=lambda field: field.kw_only is True)
        return {field.name: getattr(self, field.name) for field in fields}


@dataclasses.dataclass(frozen=True)
class BlockConfig(_BlockFields):
    """The architecture of one `TransformerEncoderBlock`; see `BERTConfig` for the fields."""

    num_hiddens: Size
    ffn_num_hiddens: Size
    num_heads: Size
    dropout: Rate
    use_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.num_hiddens, self.num_heads)
        is_right = self.layer_norm != "unbiased" or self.num_hiddens > 1
        expected = "at least 2 with layer_norm='unbiased', which divides by num_hiddens - 1"
        check_that(is_right, "num_hiddens", expected, self.num_hiddens)


@dataclasses.dataclass(frozen=True)
class BERTConfig(_BlockFields):
    """The architecture of a BERT.

    Args:
        vocab_size: Number of tokens in the vocabulary, V.
        num_hiddens: Width of the encoder, D; a multiple of `num_heads`.
        ffn_num_hiddens: Width of the position-wise feed-forward layers.
        num_heads: Attention heads per block, N.
        num_blks: Number of Transformer blocks, L. With 0, the encoded tokens are the embeddings.
        dropout: Dropout rate after each sublayer, in [0, 1).
        max_len: Longest sequence that the position embedding covers, in tokens.
        attention_dropout: Dropout rate of the attention weights; `None`: same as `dropout`.
        embedding_dropout: Dropout rate of the summed embeddings (0.1 in google, Hugging Face and
            the notebook, none in the book).
        ffn_dropout: Dropout rate between the two feed-forward layers (0.1 in the notebook).
        block_dropout: Dropout rate at the end of each block (0.1 in the notebook).
        num_segments: Number of rows of the segment embedding (3 in the blog and the notebook).
        first_segment_id: Row of the segment embedding for the first text (1 in the blog and the
            notebook, whose row 0 is for padding). In every batch, segments count from 0; the
            encoder adds this number, except to tokens that `mask_from="tokens"` counts as padding.
            The rows before it start at zero, and training does not change them.
        positions: `"learned"`, `"sinusoidal"`, which is not trained (the notebook), or `"none"`.
        embedding_norm: Whether to layer-normalize the summed embeddings (google, Hugging Face).
        norm_first: Whether each sublayer normalizes its input (the notebook) instead of the sum
            of its input and output (all others).
        final_norm: Whether to normalize the output of the last block; requires `norm_first`.
        layer_norm_epsilon: Small number that keeps layer normalization from dividing by zero
            (1e-3 in Keras and the book in TensorFlow, 1e-5 in the book in PyTorch and the blog,
            1e-12 in google and Hugging Face).
        layer_norm: `"biased"` adds the epsilon to the variance, as usual; `"unbiased"` adds it to
            the standard deviation, computed over D - 1 (the notebook, with 1e-6).
        activation: Activation of the feed-forward layers and the MLM head: `"relu"` (the book),
            `"gelu"` (exact, with erf: Hugging Face and the blog), `"gelu_tanh"` (Google's
            approximation, also the notebook's), `"tanh"` or `"linear"` (options of google).
        mask_from: Which tokens count as padding. `"valid_lens"`: tokens past the valid length;
            `"tokens"`: also every token with id 0 (the blog and the notebook).
        pooler: Whether there is a tanh layer between `[CLS]` and the NSP head (not in the blog
            and the notebook).
        next_sentence: Whether the model has an NSP head.
        mlm_head: `"mlp"`: a dense layer and a normalization before the logits; `"linear"`: the
            logits only (the blog and the notebook).
        mlm_activation: Activation of the MLM head; `None`: same as `activation` (KerasHub: exact
            GELU in the head, the approximation elsewhere).
        mlm_layer_norm_epsilon: Epsilon of the MLM head's normalization; `None`: same as
            `layer_norm_epsilon` (KerasHub: 1e-5 in the head, 1e-12 elsewhere).
        tie_embeddings: Whether the MLM logits use the transposed token embedding and a bias
            (google, Hugging Face) instead of a dense layer (all others).
        zero_padding: Whether the embedding of token 0 starts at zero, and training does not change
            it (the notebook, `padding_idx=0` in PyTorch); requires `tie_embeddings=False`.
        num_tokens: Number of tokens in the vocabulary, if the embedding has more rows, V: the MLM
            head never predicts the last rows. `None`: V.
        initializer: `"book"`: Keras's defaults, positions from N(0, 0.05), and small last layers
            in the heads, so that the initial loss is that of a uniform guess;
            `"truncated_normal"`: the same standard deviation everywhere (google).
        initializer_range: Standard deviation of `"truncated_normal"` and of the last layers of the
            heads, before the truncation at two standard deviations.

    Raises:
        ValueError: A field is out of range, or two fields contradict each other.

    Example:

    ```python
    import keras_bert_d2l as kb

    config = kb.BERTConfig.preset("mini", vocab_size=8000, max_len=128)
    model = kb.BERTModel.from_bert_config(config)
    config.to_json("config.json")
    assert kb.BERTConfig.from_json("config.json") == config
    ```
    """

    vocab_size: Size
    num_hiddens: Size
    ffn_num_hiddens: Size
    num_heads: Size
    num_blks: Count
    dropout: Rate
    max_len: Size = 1000
    _: dataclasses.KW_ONLY
    embedding_dropout: Rate = 0.0
    num_segments: Size = 2
    first_segment_id: Count = 0
    positions: Positions = "learned"
    embedding_norm: bool = False
    final_norm: bool = False
    mask_from: MaskFrom = "valid_lens"
    pooler: bool = True
    next_sentence: bool = True
    mlm_head: MLMHead = "mlp"
    mlm_activation: Activation | None = None
    mlm_layer_norm_epsilon: Epsilon | None = None
    tie_embeddings: bool = False
    zero_padding: bool = False
    num_tokens: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        BlockConfig(**self.of_block())
        expected, first = f"below num_segments={self.num_segments}", self.first_segment_id
        check_that(first < self.num_segments, "first_segment_id", expected, first)
        is_right = self.positions != "sinusoidal" or self.num_hiddens % 2 == 0
        expected = "even with positions='sinusoidal', a sine and a cosine per frequency"
        check_that(is_right, "num_hiddens", expected, self.num_hiddens)
        is_right = (self.num_tokens or 1) <= self.vocab_size
        check_that(is_right, "num_tokens", f"at most {self.vocab_size}", self.num_tokens)
        is_right = self.norm_first or not self.final_norm
        expected = "False with norm_first=False, which already ends each block in a normalization"
        check_that(is_right, "final_norm", expected, self.final_norm)
        is_right = not (self.zero_padding and self.tie_embeddings)
        expected = "False with tie_embeddings=True, which trains the embedding of every token"
        check_that(is_right, "zero_padding", expected, self.zero_padding)

    @classmethod
    def preset(cls, name: str, **overrides: object) -> Self:
        """Return the configuration of a named architecture.

        Args:
            name: A reference implementation: `"d2l"` (the book's section 15.10 in TensorFlow),
                `"d2l-torch"`, `"iksran"` (a blog), `"google"`, `"codertimo"` (a notebook),
                `"huggingface"`; or a size of Google's architecture: `"tiny"`, `"mini"`,
                `"small"`, `"medium"`, `"base"`, `"large"`, or `"L-2_H-128"` and so on, with
                2, 4, 6, 8, 10 or 12 blocks of width 128, 256, 512 or 768.
            **overrides: Fields with other values, for example `vocab_size=8000`.

        Raises:
            ValueError: There is no such preset, or a field is unknown or out of range.
        """
        check_choice("name", name, tuple(_PRESETS))
        return cls.from_dict({**_PRESETS[name], **overrides})

    def with_dropout(self, rate: float) -> Self:
        """Return a copy with one dropout rate, as in BERT.

        Args:
            rate: Dropout rate in [0, 1) after each sublayer, of the attention weights and of the
                embeddings.

        Raises:
            ValueError: `rate` is out of range.

        Example:

        ```python
        import keras_bert_d2l as kb

        kb.BERTConfig.preset("mini", vocab_size=8000).with_dropout(0.0)
        ```
        """
        return dataclasses.replace(
            self,
            dropout=rate,
            attention_dropout=None,
            embedding_dropout=rate,
            ffn_dropout=0.0,
            block_dropout=0.0,
        )

    def of_block(self) -> ConfigDict:
        """Return the fields of one block, as arguments for `TransformerEncoderBlock`."""
        block = BlockConfig.__dataclass_fields__
        return {name: value for name, value in self.to_dict().items() if name in block}

    def of_mlm(self) -> ConfigDict:
        """Return the options of the hidden layer of the MLM head, as arguments for `MaskLM`."""
        return {
            "activation": self.mlm_activation or self.activation,
            "layer_norm": self.layer_norm,
            "layer_norm_epsilon": self.mlm_layer_norm_epsilon or self.layer_norm_epsilon,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Self:
        """Return the configuration with the given fields.

        Raises:
            ValueError: `fields` is not a dictionary, or a field is unknown, missing, or out of
                range.
        """
        check_that(isinstance(fields, Mapping), "fields", "a dictionary", fields)
        known = {field.name: field for field in dataclasses.fields(cls)}
        check_known("field", fields, known)
        for name, field in known.items():
            if field.default is dataclasses.MISSING and name not in fields:
                raise ValueError(
                    f"A BERTConfig needs the field {name!r}. Received: {shown([*fields])}."
                )
        return cls(**fields)  # type: ignore[arg-type]

    def to_json(self, path: PathLike) -> None:
        """Write the fields to a JSON file. An interrupted write leaves no partial file."""
        write_json(path, self.to_dict())

    @classmethod
    def from_json(cls, path: PathLike) -> Self:
        """Read a file that `to_json` wrote.

        Raises:
            FileNotFoundError: The file does not exist.
            ValueError: The file is not JSON, or a field is unknown, missing, or out of range.
        """
        fields = read_json_object(path)
        with errors_naming(path):
            return cls.from_dict(fields)
