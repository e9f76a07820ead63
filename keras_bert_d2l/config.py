"""BERTConfig: every choice of architecture in one flat, checked, serialisable record.

The fields, their defaults and their names are those of the layers' constructors, of
`get_config()` and of `config.json`. The defaults are the model of *Dive into Deep Learning*,
section 15.8 (d2l.ai), in its TensorFlow edition.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any, Self

from keras_bert_d2l.files import write_text

ACTIVATIONS = ("relu", "gelu", "gelu_tanh")
INITIALIZERS = ("book", "truncated_normal")

# Google's sizes (github.com/google-research/bert, README): blocks and hidden width. Heads are 64
# wide and the feed-forward layer is four times as wide as the hidden layer.
_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
_HEAD_WIDTH = 64

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

_PRESETS: dict[str, dict[str, Any]] = {
    "d2l": _D2L,
    **{
        name: {
            **_GOOGLE,
            "num_hiddens": width,
            "ffn_num_hiddens": 4 * width,
            "num_heads": width // _HEAD_WIDTH,
            "num_blks": blocks,
        }
        for name, (blocks, width) in _SIZES.items()
    },
}


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
        embedding_dropout: Rate of the dropout on the summed embeddings (google: 0.1; the book:
            none).
        num_segments: Rows of the segment embedding.
        embedding_norm: Whether the summed embeddings are layer-normalised (google) or not (the
            book).
        layer_norm_epsilon: Added to the variance (Keras and the book in TensorFlow 1e-3, the
            book in PyTorch 1e-5, google 1e-12).
        activation: Of the feed-forward layer and the MLM head: `"relu"` (the book), `"gelu"`
            (exact, with erf) or `"gelu_tanh"` (google's approximation).
        tie_embeddings: Whether the MLM head ends in the transposed token embedding plus a bias
            (google) or in a dense layer of its own (the book).
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
    num_segments: int = 2
    embedding_norm: bool = False
    layer_norm_epsilon: float = 1e-3
    activation: str = "relu"
    tie_embeddings: bool = False
    initializer: str = "book"

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "num_hiddens",
            "ffn_num_hiddens",
            "num_heads",
            "num_blks",
            "max_len",
            "num_segments",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"`{name}` must be a positive integer. Received: {name}={value!r}."
                )
        for name in ("dropout", "attention_dropout", "embedding_dropout"):
            value = getattr(self, name)
            if name == "attention_dropout" and value is None:
                continue
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise ValueError(f"`{name}` must be in [0, 1). Received: {name}={value!r}.")
        if self.num_hiddens % self.num_heads:
            raise ValueError(
                "`num_hiddens` must be a multiple of `num_heads`, so that each head gets the same "
                f"width. Received: num_hiddens={self.num_hiddens}, num_heads={self.num_heads}."
            )
        if not isinstance(self.layer_norm_epsilon, int | float) or self.layer_norm_epsilon <= 0:
            raise ValueError(
                "`layer_norm_epsilon` must be a positive number. Received: "
                f"layer_norm_epsilon={self.layer_norm_epsilon!r}."
            )
        for name, allowed in (("activation", ACTIVATIONS), ("initializer", INITIALIZERS)):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"`{name}` must be one of {allowed}. Received: {name}={getattr(self, name)!r}."
                )
        for name in ("embedding_norm", "tie_embeddings"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"`{name}` must be True or False. Received: {name}={getattr(self, name)!r}."
                )

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Returns a named architecture.

        Args:
            name: `"d2l"` (the book's section 15.10) or a size of google's architecture: `"tiny"`,
                `"mini"`, `"small"`, `"medium"`, `"base"`, `"large"`.
            **overrides: Fields to set otherwise, for instance `vocab_size=8000`.

        Raises:
            ValueError: There is no such preset, or a field is unknown or out of its range.
        """
        if name not in _PRESETS:
            raise ValueError(f"`name` must be one of {tuple(_PRESETS)}. Received: name={name!r}.")
        return cls.from_dict({**_PRESETS[name], **overrides})

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
        try:
            fields = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{os.fspath(path)!r} is not a JSON file: {error}.") from error
        if not isinstance(fields, dict):
            raise ValueError(
                f"{os.fspath(path)!r} must hold a JSON object. Received: {fields!r:.80}."
            )
        try:
            return cls.from_dict(fields)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r}: {error}") from error
