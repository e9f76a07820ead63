"""`BERTConfig`: all options of a BERT architecture in one flat, validated, serializable record.

Constructor arguments, `get_config()` and `config.json` use these field names and defaults. The
defaults describe the model of *Dive into Deep Learning*, section 15.8 (d2l.ai), in its TensorFlow
edition.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self, TypeAlias, TypeVar

from keras_bert_d2l.block_config import (
    OF_RELATIVES,
    Activation,
    BlockConfig,
    BlockFields,
    Count,
    Epsilon,
    Rate,
    Size,
    width_of_head,
)
from keras_bert_d2l.checks import check_annotated, check_that, check_type, did_you_mean, is_integer
from keras_bert_d2l.files import write_json
from keras_bert_d2l.presets import PRESETS
from keras_bert_d2l.reading import errors_naming, read_json_object
from keras_bert_d2l.types import ConfigDict, LayerOptions, PathLike

MaskFrom: TypeAlias = Literal["valid_lens", "tokens"]
MLMHead: TypeAlias = Literal["mlp", "linear"]
Positions: TypeAlias = Literal["learned", "sinusoidal", "none", "rotary"]
_Value = TypeVar("_Value", str, int, float)

_MOST_SINUSOIDS = 2**17  # positions, whose table is computed when a model is built
MAX_DISTANCE = 128  # all distances of at least this many tokens share a relative bias


def check_field(name: str, value: _Value) -> _Value:
    """Return `value`, or raise a `ValueError` if it is invalid for the field `name`."""
    return check_annotated(name, value, BERTConfig.__dataclass_fields__[name].type)


@dataclasses.dataclass(frozen=True)
class BERTConfig(BlockFields):
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
        replaced_tokens: Whether the model has a head that detects replaced tokens (ELECTRA).
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
        relative_embeddings: Number of distances per direction, K, that have an embedding (512 in
            DeBERTa, 256 in DeBERTa-v2 and v3). The attention then also scores each token with the
            distances to the others (disentangled attention). 0: there are none.
        relative_max_distance: With `relative_embeddings`, distances of more than K / 2 share
            embeddings, by their logarithm, up to this one (512 in DeBERTa-v2 and v3). 0: each
            distance has its own embedding, and those of at least K share the last one.
        relative_norm: Whether to layer-normalize the embeddings of distances (DeBERTa-v2 and v3).
        own_relative_keys: Whether each block projects the embeddings of distances by layers of its
            own instead of those of its queries and keys, and its keys have no bias (DeBERTa).
        conv_kernel_size: Number of neighboring embeddings, an odd one, that a convolution after the
            first block combines (3 in the large DeBERTa-v2). 0: there is none.
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
    replaced_tokens: bool = False
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
    relative_max_distance: Count = 0
    relative_norm: bool = False
    conv_kernel_size: Count = 0
    rope_theta: Epsilon = 160000.0
    local_rope_theta: Epsilon = 10000.0
    local_attention: Count = 0
    global_attention_every: Size = 1
    pooler_activation: Activation = "tanh"
    pooler_norm: bool = False
    use_one_hot_embeddings: bool = False

    def __post_init__(self) -> None:
        BlockConfig(**self.block_fields())
        super().__post_init__()

    def rules(self) -> Iterator[tuple[str, bool, str]]:
        yield from super().rules()
        is_right = self.first_segment_id < max(self.num_segments, 1)
        yield "first_segment_id", is_right, f"below num_segments={self.num_segments}"
        is_right = self.positions != "sinusoidal" or self.width_of_embeddings % 2 == 0
        name = "num_hiddens" if self.embedding_width is None else "embedding_width"
        yield name, is_right, "even with positions='sinusoidal', a sine and a cosine per frequency"
        is_right = self.positions != "sinusoidal" or self.max_len <= _MOST_SINUSOIDS
        yield "max_len", is_right, f"at most {_MOST_SINUSOIDS} with positions='sinusoidal'"
        yield "num_tokens", (self.num_tokens or 1) <= self.vocab_size, f"at most {self.vocab_size}"
        is_right = self.norm_first or not self.final_norm
        yield "final_norm", is_right, "False with norm_first=False, whose blocks end in one"
        is_right = not (self.zero_padding and self.tie_embeddings)
        yield "zero_padding", is_right, "False with tie_embeddings=True, which trains every token"
        yield "pad_id", self.pad_id < self.vocab_size, f"below vocab_size={self.vocab_size}"
        is_right = not (self.zero_padding and self.pad_id)
        yield "zero_padding", is_right, "False unless pad_id is 0, because it is about token 0"
        is_right = self.positions != "rotary" or self.head_width % 2 == 0
        expected = "an even multiple of `num_heads`, or have an even `size_per_head`, with "
        yield "num_hiddens", is_right, f"{expected}positions='rotary', which rotates pairs"
        is_right = self.mlm_head == "mlp" or self.width_of_embeddings == self.num_hiddens
        expected = "num_hiddens with mlm_head='linear' and tie_embeddings=True"
        yield "embedding_width", is_right or not self.tie_embeddings, expected
        is_right = not (self.shared_blocks and self.skip_first_norm)
        yield ("shared_blocks", is_right, "False with skip_first_norm=True, where blocks differ")
        is_right = self.positions == "learned" or not self.first_position_id
        yield "first_position_id", is_right, "0 unless positions='learned', which has a table"
        is_right = self.relative_buckets in (0, *range(4, 2 * MAX_DISTANCE + 1, 2))
        yield "relative_buckets", is_right, f"0, or an even number from 4 to {2 * MAX_DISTANCE}"
        far, num = self.relative_max_distance, self.relative_embeddings
        is_right = not far or (num >= 4 and num % 2 == 0 and far > num // 2 + 1)
        expected = "0, or more than half of relative_embeddings, an even number of at least 4"
        yield "relative_max_distance", is_right, expected
        is_right = num > 0 or not self.relative_norm
        yield "relative_norm", is_right, "False with relative_embeddings=0"
        is_other = self.positions == "rotary" or self.relative_buckets or self.local_attention
        expected = "0 with rotary positions, relative_buckets or local_attention"
        yield "relative_embeddings", not (num and is_other), expected
        is_right = self.conv_kernel_size % 2 == 1 or not self.conv_kernel_size
        yield "conv_kernel_size", is_right, "0, or an odd number"
        window = self.local_attention
        is_right = not window or min(window, self.global_attention_every) > 1
        expected = "0, or at least 2 with global_attention_every of 2 or more"
        yield "local_attention", is_right, expected

    @classmethod
    def split_arguments(cls, *sizes: Any, **options: object) -> tuple[Self, LayerOptions]:
        """Split a layer's arguments into a configuration and the remaining ones, for Keras.

        A `BERTConfig` may stand for all sizes; the other required ones are then `None`.
        """
        if sizes[1] is None:
            advice = "Create one with `BERTConfig.preset(name)`, or call `load_pretrained(name)`."
            fields = check_type("config", sizes[0], BERTConfig, advice).to_dict()
            fields |= {} if sizes[6] == BERTConfig.max_len else {"max_len": sizes[6]}
            sizes, options = (), {**fields, **options}
        return super().split_arguments(*sizes, **options)

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
                `"ettin-17m"`, `"deberta-base"`, `"deberta-v3-xsmall"`, `"deberta-v3-small"`,
                `"deberta-v3-base"`.
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

    def block_fields(self) -> ConfigDict:
        """Return the fields of one block, as arguments for `TransformerEncoderBlock`."""
        block = BlockConfig.__dataclass_fields__
        return {name: value for name, value in self.to_dict().items() if name in block}

    def mlm_fields(self) -> ConfigDict:
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
