"""`BERTConfig`: all options of a BERT architecture in one flat, validated, serializable record.

Constructor arguments, `get_config()` and `config.json` use these field names and defaults. The
defaults describe the model of *Dive into Deep Learning*, section 15.8 (d2l.ai), in its TensorFlow
edition.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar, cast

from keras_bert_d2l.checks import (
    at_least,
    check_annotated,
    check_known,
    check_not_negative,
    check_positive,
    check_that,
    check_type,
    did_you_mean,
    is_integer,
    is_of_numpy,
    shown,
)
from keras_bert_d2l.files import write_json
from keras_bert_d2l.presets import PRESETS
from keras_bert_d2l.reading import errors_naming, read_json_object
from keras_bert_d2l.types import ConfigDict, LayerOptions, PathLike

Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "tanh", "linear"]
Initializer: TypeAlias = Literal["book", "truncated_normal"]
LayerNorm: TypeAlias = Literal["biased", "unbiased"]
MaskFrom: TypeAlias = Literal["valid_lens", "tokens"]
MLMHead: TypeAlias = Literal["mlp", "linear"]
Positions: TypeAlias = Literal["learned", "sinusoidal", "none", "rotary"]
_Value = TypeVar("_Value", str, int, float)
# The annotation of a field has its check, a function of the field's name and its value.
Size: TypeAlias = Annotated[int, at_least(1)]
Count: TypeAlias = Annotated[int, at_least(0)]
Rate: TypeAlias = Annotated[float, functools.partial(check_not_negative, below=1)]
Epsilon: TypeAlias = Annotated[float, check_positive]
Deviation: TypeAlias = Annotated[float, check_not_negative]


FARTHEST = 128  # all distances of at least this many tokens share a relative bias
_OF_LAYERS = ("activity_regularizer", "autocast")  # more arguments that every Keras layer takes


def check_field(name: str, value: _Value) -> _Value:
    """Return `value`, or raise a `ValueError` if it is invalid for the field `name`."""
    return check_annotated(name, value, BERTConfig.__dataclass_fields__[name].type)


def width_of_head(num_hiddens: int, num_heads: int, size_per_head: int | None) -> int:
    """Return the width of an attention head; raise `ValueError` if it is not a whole number."""
    check_field("num_heads", num_heads)
    width, rest = divmod(check_field("num_hiddens", num_hiddens), num_heads)
    if size_per_head is not None:
        return check_field("size_per_head", size_per_head)
    expected = f"a multiple of `num_heads` (num_heads={num_heads}), unless `size_per_head` is given"
    check_that(rest == 0, "num_hiddens", expected, num_hiddens)
    return width


# Fields that only BERT's relatives or options of Google's code set. Files of older versions lack
# them.
OF_RELATIVES = frozenset(
    "pad_id embedding_width shared_blocks first_position_id relative_buckets rope_theta "
    "local_rope_theta local_attention global_attention_every gated_ffn bias_free skip_first_norm "
    "pooler_activation pooler_norm size_per_head query_act key_act value_act "
    "use_one_hot_embeddings".split()
)


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
    gated_ffn: bool = False
    bias_free: bool = False
    skip_first_norm: bool = False
    size_per_head: Size | None = None
    query_act: Activation = "linear"
    key_act: Activation = "linear"
    value_act: Activation = "linear"

    def __new__(cls, *values: object, **fields: object) -> Self:
        check_known("field", fields, cls.__dataclass_fields__)
        required = [
            one.name for one in dataclasses.fields(cls) if one.default is dataclasses.MISSING
        ]
        missing = [name for name in required[len(values) :] if name not in fields]
        if missing and (values or fields):  # copies are made without both
            raise ValueError(
                f"A {cls.__name__} needs {', '.join(map(repr, missing))}. Received: "
                f"{shown([*values, *fields])}. `BERTConfig.preset('base', ...)` has BERT's values "
                "for all fields; the defaults of `BERTConfig` are the book's."
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if is_of_numpy(value, "generic"):  # as plain Python numbers, they fit into JSON
                value = value.item()
                object.__setattr__(self, field.name, value)
            check_annotated(field.name, value, field.type)
        is_right = self.norm_first or not self.skip_first_norm
        expected = "False with norm_first=False, where no sublayer normalizes its input"
        check_that(is_right, "skip_first_norm", expected, self.skip_first_norm)
        is_right = self.layer_norm == "biased" or not self.bias_free
        expected = "False with layer_norm='unbiased', which has a bias"
        check_that(is_right, "bias_free", expected, self.bias_free)

    @classmethod
    def of_layer(cls, *sizes: Any, **options: object) -> tuple[Self, LayerOptions]:
        """Split a layer's arguments into a configuration and the remaining ones, for Keras.

        A `BERTConfig` may stand for all sizes; the other required ones are then `None`.
        """
        if sizes[1:2] == (None,):
            advice = "Create one with `BERTConfig.preset(name)`, or call `load_pretrained(name)`."
            fields = check_type("config", sizes[0], BERTConfig, advice).to_dict()
            fields |= {} if sizes[6] == BERTConfig.max_len else {"max_len": sizes[6]}
            sizes, options = (), {**fields, **options}
        make: Callable[..., Self] = cls
        known = (*cls.__dataclass_fields__, *LayerOptions.__annotations__, *_OF_LAYERS)
        check_known("argument", options, known)
        own = {name: options.pop(name) for name in [*options] if name in cls.__dataclass_fields__}
        return make(*sizes, **own), cast(LayerOptions, options)

    def to_dict(self) -> ConfigDict:
        """Return the fields as a plain dictionary, in the order of the constructor.

        The fields of BERT's relatives are omitted where they have their defaults, so that the files
        of a BERT stay as they are.
        """
        return {
            field.name: getattr(self, field.name)
            for field in sorted(dataclasses.fields(self), key=lambda field: field.kw_only is True)
            if field.name not in OF_RELATIVES or getattr(self, field.name) != field.default
        }


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
        width_of_head(self.num_hiddens, self.num_heads, self.size_per_head)
        is_right = self.layer_norm != "unbiased" or self.num_hiddens > 1
        expected = "at least 2 with layer_norm='unbiased', which divides by num_hiddens - 1"
        check_that(is_right, "num_hiddens", expected, self.num_hiddens)


@dataclasses.dataclass(frozen=True)
class BERTConfig(_BlockFields):
    """The architecture of a BERT.

    Args:
        vocab_size: Number of tokens in the vocabulary, V.
        num_hiddens: Width of the encoder, D; a multiple of `num_heads`, unless `size_per_head` is
            given.
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
        num_segments: Number of rows of the segment embedding (3 in the blog and the notebook). With
            0, there is none (DistilBERT, MPNet, ModernBERT); with 1, every token gets the same row
            (RoBERTa). With both, segment ids do not change the encoded tokens.
        first_segment_id: Row of the segment embedding for the first text (1 in the blog and the
            notebook, whose row 0 is for padding). In every batch, segments count from 0; the
            encoder adds this number, except to tokens that `mask_from="tokens"` counts as padding.
            The rows before it start at zero, and training does not change them.
        positions: `"learned"`; `"sinusoidal"`, which is not trained (the notebook); `"none"`; or
            `"rotary"`, which rotates queries and keys (ModernBERT).
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
            `"tokens"`: also every token with the id `pad_id` (the blog and the notebook).
        pooler: Whether there is a dense layer between `[CLS]` and the NSP head (not in the blog
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
        pad_id: Id of the padding token (1 in RoBERTa and MPNet).
        embedding_width: Width of the embeddings, E, if a dense layer projects them to D (ELECTRA
            small, ALBERT). The hidden layer of the MLM head then has this width, too. `None`: D,
            without a projection.
        shared_blocks: Whether all L blocks are one block with the same weights (ALBERT).
        first_position_id: Row of the position embedding for the first token (2 in RoBERTa and
            MPNet). If it is not 0, the table has this many rows in addition to `max_len`, and
            positions count only the tokens whose id is not `pad_id`.
        relative_buckets: Number of rows of a bias of the attention scores that depends on the
            distance between query and key, an even number (32 in MPNet). 0: there is none.
        rope_theta: Base of the wavelengths of rotary positions.
        local_rope_theta: The same for the blocks that attend to a window.
        local_attention: Size of the window of attention, in tokens: a query attends to keys up to
            half of it away (128 in ModernBERT). 0: queries attend to all keys.
        global_attention_every: With a window, block i attends to all keys if i is a multiple of
            this number, at least 2 (3 in ModernBERT).
        gated_ffn: Whether the first feed-forward layer has twice the width, and the activation of
            its first half multiplies the second half (ModernBERT).
        bias_free: Whether the dense layers and normalizations of the encoder, of the pooler and of
            the hidden layer of the MLM head have no bias (ModernBERT). The logits keep theirs.
        skip_first_norm: With `norm_first`, whether the first block does not normalize the input of
            its attention, which the embeddings have normalized already (ModernBERT).
        pooler_activation: Activation of the pooler: `"tanh"`, `"relu"` (DistilBERT) or `"gelu"`
            (ELECTRA, ModernBERT).
        pooler_norm: Whether a layer normalization follows the pooler. Heads of tasks for tokens, or
            for the mean of the tokens, then read its output, too (ModernBERT).
        size_per_head: Width of each attention head (an option of google). `None`: D / N.
        query_act: Activation of the queries, as for `activation` (an option of google).
        key_act: The same for the keys.
        value_act: The same for the values.
        use_one_hot_embeddings: Whether the token embedding is a product of one-hot vectors with the
            table instead of a lookup (an option of google, for TPUs). The outputs are the same.

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
    num_segments: Count = 2
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
    pad_id: Count = 0
    embedding_width: Size | None = None
    shared_blocks: bool = False
    first_position_id: Count = 0
    relative_buckets: Count = 0
    rope_theta: Epsilon = 160000.0
    local_rope_theta: Epsilon = 10000.0
    local_attention: Count = 0
    global_attention_every: Size = 1
    pooler_activation: Activation = "tanh"
    pooler_norm: bool = False
    use_one_hot_embeddings: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        BlockConfig(**self.of_block())
        expected, first = f"below num_segments={self.num_segments}", self.first_segment_id
        check_that(first < max(self.num_segments, 1), "first_segment_id", expected, first)
        name = "num_hiddens" if self.embedding_width is None else "embedding_width"
        is_right = self.positions != "sinusoidal" or self.width_of_embeddings % 2 == 0
        expected = "even with positions='sinusoidal', a sine and a cosine per frequency"
        check_that(is_right, name, expected, self.width_of_embeddings)
        is_right = (self.num_tokens or 1) <= self.vocab_size
        check_that(is_right, "num_tokens", f"at most {self.vocab_size}", self.num_tokens)
        is_right = self.norm_first or not self.final_norm
        expected = "False with norm_first=False, which already ends each block in a normalization"
        check_that(is_right, "final_norm", expected, self.final_norm)
        is_right = not (self.zero_padding and self.tie_embeddings)
        expected = "False with tie_embeddings=True, which trains the embedding of every token"
        check_that(is_right, "zero_padding", expected, self.zero_padding)
        self._check_relatives()

    def _check_relatives(self) -> None:
        """Raise a `ValueError` if a field of BERT's relatives contradicts another one."""
        is_learned, window = self.positions == "learned", self.local_attention
        buckets, is_mlp = self.relative_buckets, self.mlm_head == "mlp"
        is_right_window = not window or min(window, self.global_attention_every) > 1
        for name, is_right, expected in (
            ("pad_id", self.pad_id < self.vocab_size, f"below vocab_size={self.vocab_size}"),
            (
                "zero_padding",
                not (self.zero_padding and self.pad_id),
                "False unless pad_id is 0, because it zeroes the embedding of token 0",
            ),
            (
                "num_hiddens",
                self.positions != "rotary" or self.head_width % 2 == 0,
                "an even multiple of `num_heads`, or have an even `size_per_head`, with "
                "positions='rotary', which rotates pairs",
            ),
            (
                "embedding_width",
                is_mlp or self.width_of_embeddings == self.num_hiddens or not self.tie_embeddings,
                "num_hiddens with mlm_head='linear' and tie_embeddings=True, because only the "
                "dense layer of an 'mlp' head changes the width",
            ),
            (
                "shared_blocks",
                not (self.shared_blocks and self.skip_first_norm),
                "False with skip_first_norm=True, which makes the first block differ",
            ),
            (
                "first_position_id",
                is_learned or not self.first_position_id,
                "0 unless positions='learned', which has a table of positions",
            ),
            (
                "relative_buckets",
                not buckets or (4 <= buckets <= 2 * FARTHEST and buckets % 2 == 0),
                f"0, or an even number from 4 to {2 * FARTHEST}",
            ),
            (
                "local_attention",
                is_right_window,
                "0, or at least 2 with global_attention_every of 2 or more",
            ),
        ):
            check_that(is_right, name, expected, getattr(self, name))

    @property
    def unlike_bert(self) -> ConfigDict:
        """The fields with a value that BERT does not have."""
        fields = {name: value for name, value in self.to_dict().items() if name in OF_RELATIVES}
        fields |= {"positions": "rotary"} if self.positions == "rotary" else {}
        return fields | ({} if self.num_segments else {"num_segments": 0})

    def is_local(self, block: int) -> bool:
        """Return whether the attention of a block, counted from 0, is limited to a window."""
        return self.local_attention > 0 and block % self.global_attention_every > 0

    @property
    def head_width(self) -> int:
        """The width of an attention head."""
        return width_of_head(self.num_hiddens, self.num_heads, self.size_per_head)

    @property
    def width_of_embeddings(self) -> int:
        """The width of the embeddings and of the hidden layer of the MLM head, D or E."""
        return self.embedding_width or self.num_hiddens

    @classmethod
    def preset(cls, name: str, **overrides: object) -> Self:
        """Return the configuration of a named architecture.

        Args:
            name: A reference implementation: `"d2l"` (the book's section 15.10 in TensorFlow),
                `"d2l-torch"`, `"iksran"` (a blog), `"google"`, `"codertimo"` (a notebook),
                `"huggingface"`; or a size of Google's architecture: `"tiny"`, `"mini"`,
                `"small"`, `"medium"`, `"base"`, `"large"`, or `"L-2_H-128"` and so on, with
                2, 4, 6, 8, 10 or 12 blocks of width 128, 256, 512 or 768; or a relative of BERT:
                `"distilbert"`, `"electra-small"`, `"electra-base"`, `"roberta-base"`,
                `"xlm-roberta-base"`, `"albert-base"`, `"mpnet-base"`, `"modernbert-base"`,
                `"ettin-17m"`.
            **overrides: Fields with other values, for example `vocab_size=8000`. `dropout` also
                applies to the other dropout rates of the preset that are not named. A `vocab_size`
                that does not include the preset's `pad_id` makes it 0.

        Raises:
            ValueError: There is no such preset, or a field is unknown or out of range.
        """
        advice = f"{did_you_mean(name, PRESETS)}Load a checkpoint with `load_pretrained(name)`."
        check_that(name in PRESETS, "name", f"one of {', '.join(map(repr, PRESETS))}", name, advice)
        fields = {**PRESETS[name], **overrides}
        if "dropout" in overrides:
            rates = [field for field in PRESETS[name] if field.endswith("_dropout")]
            fields |= {rate: overrides.get(rate, overrides["dropout"]) for rate in rates}
        size = fields["vocab_size"]
        if "pad_id" not in overrides and is_integer(size) and fields.get("pad_id", 0) >= size:
            fields["pad_id"] = 0
        return cls.from_dict(fields)

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
            "bias_free": self.bias_free,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Self:
        """Return the configuration with the given fields.

        Raises:
            ValueError: `fields` is not a dictionary, or a field is unknown, missing, or out of
                range.
        """
        is_right = isinstance(fields, Mapping) and len(fields) > 0
        check_that(is_right, "fields", "a dictionary of at least the sizes", fields)
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
