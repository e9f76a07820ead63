"""`BlockConfig`: the options of one Transformer block, which `BERTConfig` has, too."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from keras_bert_d2l.checks import (
    at_least,
    check_annotated,
    check_known,
    check_not_negative,
    check_positive,
    check_that,
    is_of_numpy,
    shown,
)
from keras_bert_d2l.types import ConfigDict, LayerOptions

Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "tanh", "linear"]
Initializer: TypeAlias = Literal["book", "truncated_normal"]
LayerNorm: TypeAlias = Literal["biased", "unbiased"]
# The annotation of a field has its check, a function of the field's name and its value.
Size: TypeAlias = Annotated[int, at_least(1)]
Count: TypeAlias = Annotated[int, at_least(0)]
Rate: TypeAlias = Annotated[float, functools.partial(check_not_negative, below=1)]
Epsilon: TypeAlias = Annotated[float, check_positive]
Deviation: TypeAlias = Annotated[float, check_not_negative]

_OF_LAYERS = ("activity_regularizer", "autocast")  # more arguments that every Keras layer takes

# Fields that only BERT's relatives or options of Google's code set. Files of older versions lack
# them.
OF_RELATIVES = frozenset(
    "pad_id embedding_width shared_blocks first_position_id relative_buckets rope_theta "
    "local_rope_theta local_attention global_attention_every gated_ffn bias_free skip_first_norm "
    "pooler_activation pooler_norm size_per_head query_act key_act value_act "
    "use_one_hot_embeddings relative_embeddings own_relative_keys relative_max_distance "
    "relative_norm conv_kernel_size replaced_tokens".split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockFields:
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
    relative_embeddings: Count = 0
    own_relative_keys: bool = False

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
        for name, is_right, expected in self.rules():
            check_that(is_right, name, expected, getattr(self, name))

    def rules(self) -> Iterator[tuple[str, bool, str]]:
        """Yield the rules on several fields: a field, whether it is right, and what it must be."""
        is_right = self.norm_first or not self.skip_first_norm
        expected = "False with norm_first=False, where no sublayer normalizes its input"
        yield "skip_first_norm", is_right, expected
        is_right = self.layer_norm == "biased" or not self.bias_free
        yield "bias_free", is_right, "False with layer_norm='unbiased', which has a bias"
        is_right = self.relative_embeddings > 0 or not self.own_relative_keys
        yield "own_relative_keys", is_right, "False with relative_embeddings=0, which has no keys"

    @classmethod
    def split_arguments(cls, *sizes: Any, **options: object) -> tuple[Self, LayerOptions]:
        """Split a layer's arguments into a configuration and the remaining ones, for Keras."""
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
class BlockConfig(BlockFields):
    """The architecture of one `TransformerEncoderBlock`; see `BERTConfig` for the fields."""

    num_hiddens: Size
    ffn_num_hiddens: Size
    num_heads: Size
    dropout: Rate
    use_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        width_of_head(self.num_hiddens, self.num_heads, self.size_per_head)

    def rules(self) -> Iterator[tuple[str, bool, str]]:
        yield from super().rules()
        is_right = self.layer_norm != "unbiased" or self.num_hiddens > 1
        expected = "at least 2 with layer_norm='unbiased', which divides by num_hiddens - 1"
        yield "num_hiddens", is_right, expected


def width_of_head(num_hiddens: int, num_heads: int, size_per_head: int | None) -> int:
    """Return the width of an attention head; raise `ValueError` if it is not a whole number."""
    check_annotated("num_heads", num_heads, Size)
    width, rest = divmod(check_annotated("num_hiddens", num_hiddens, Size), num_heads)
    if size_per_head is not None:
        return int(check_annotated("size_per_head", size_per_head, Size))
    expected = f"a multiple of `num_heads` (num_heads={num_heads}), unless `size_per_head` is given"
    check_that(rest == 0, "num_hiddens", expected, num_hiddens)
    return width
