"""BERTModel: BERT encoder and pretraining heads as one `keras.Model`.

B batch, T tokens, P predicted positions, E examples in a packed row, D hidden width,
V vocabulary.
"""

import dataclasses
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_bert_d2l.checks import check_that, check_type, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import (
    MaskLM,
    NextSentencePred,
    ReplacedTokenPred,
    is_pooler,
    pooler_of,
)
from keras_bert_d2l.layers.inputs import check_positions, gather_positions
from keras_bert_d2l.layers.sparse import SparsePooling
from keras_bert_d2l.models.batch_model import BatchModel, check_keys
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import (
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
    binary_metrics,
    label_metrics,
)
from keras_bert_d2l.models.text_inputs import Preprocessor, without_pandas
from keras_bert_d2l.types import ConfigDict, LayerOptions, Option, PathLike, Tensor

FEATURES = ("tokens", "segments", "valid_lens", "pred_positions")
PACKED_FEATURES = ("attention_mask", "example_ids", "position_ids", "cls_positions")
Encoded: TypeAlias = Tensor | dict[str, Tensor]  # a dictionary with the hidden states
Outputs: TypeAlias = tuple[Encoded, Tensor | None, Tensor | None]  # encoded, MLM, NSP


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTModel(BatchModel):
    """BERT with a masked-language-model head and a next-sentence head.

    Source: d2l.ai, section 15.8.6; Devlin et al. 2019. The defaults are the book's.

    Args:
        vocab_size: Size of the vocabulary, V; or a `BERTConfig`, which replaces all sizes.
        num_hiddens: Width of the encoder, D.
        ffn_num_hiddens: Width of the feed-forward networks.
        num_heads: Attention heads per block.
        num_blks: Number of Transformer blocks.
        dropout: Dropout rate after each sublayer.
        max_len: Maximum sequence length, in tokens.
        **options: The keyword arguments of `BERTConfig`; `name`, `dtype` and `trainable`, as for
            every Keras model.

    Call arguments:
        tokens: Token ids, int `(B, T)`; or a dictionary of the call arguments, such as a batch
            of a dataset.
        segments: Segment ids, int `(B, T)`: 0 for the first text and 1 for the second. `None`, or
            a dictionary without them: 0 for all tokens.
        valid_lens: Number of non-padding tokens in each row, `(B,)`. `None`: all tokens.
        pred_positions: Positions to predict, int `(B, P)`. `None`: no MLM output.
        training: Whether to apply dropout.
        cls_positions: Position of each packed example's `[CLS]`, int `(B, E)`. `None`: position 0.
        return_hidden_states: Whether to return the output of every block as well.
        **options: `attention_mask`, `example_ids` and `position_ids` of `BERTEncoder`.

    Returns:
        For positional arguments, the book's tuple: the encoded tokens `(B, T, D)`, or with
        `return_hidden_states` the dictionary of `BERTEncoder`; the MLM logits `(B, P, V)`, or
        `None` without `pred_positions`; and the NSP logits `(B, 2)`, or `(B, E, 2)` with
        `cls_positions`, or `None` with `next_sentence=False`. Column 1 of the NSP logits is
        "is next".
        For a dictionary, `{"mlm": (B, P, V), "nsp": (B, 2)}` without the outputs that are `None`,
        and with `"hidden_states"` if they are requested. If they are not, the last block computes
        only the tokens that the heads read. With `replaced_tokens=True`, there is also
        `"rtd": (B, T)`, a logit per token: its sigmoid is the probability that the token was
        replaced.

    Attributes:
        preprocessor: Converts strings to a batch of token ids; `None` without a `tokenizer`.
        missing_heads: Names of the heads, from `"pooler"`, `"mlm"`, `"nsp"` and `"rtd"`, that the
            model's checkpoint lacked, so their weights are random. Such heads are neither saved nor
            exported. Training a head with `fit` or `train_step` removes it from the set; after a
            training loop of your own, assign the new set.
        sparse: How `embed_sparse` pools the MLM logits, a `SparsePooling`.

    Raises:
        ValueError: An option or a value in a batch is out of range, or a batch has unknown or
            missing keys.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=1000))
    tokens = np.random.randint(0, 1000, (2, 8))
    batch = {"tokens": tokens, "segments": np.zeros((2, 8)), "pred_positions": [[1, 5], [6, 1]]}
    outputs = model({name: np.array(feature) for name, feature in batch.items()})
    assert outputs["mlm"].shape == (2, 2, 1000)
    assert outputs["nsp"].shape == (2, 2)
    ```
    """

    features = FEATURES
    sparse = SparsePooling()

    def __init__(
        self,
        vocab_size: int | BERTConfig,
        num_hiddens: int | None = None,
        ffn_num_hiddens: int | None = None,
        num_heads: int | None = None,
        num_blks: int | None = None,
        dropout: float | None = None,
        max_len: int = 1000,
        **options: Option,
    ) -> None:
        config, layer_options = BERTConfig.split_arguments(
            *(vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout, max_len),
            **options,
        )
        # Disable autocast: the book's loader yields float lengths, and bfloat16 rounds 257 to 256.
        super().__init__(autocast=False, **layer_options)
        self._add_layers(config)

    def _add_layers(self, config: BERTConfig, **given: keras.layers.Layer | None) -> None:
        """Set the layers, and create those of the configuration that are not given."""
        self.bert_config = config
        policy = self.dtype_policy
        encoder = given.get("encoder")
        self.encoder = encoder or BERTEncoder(**config.to_dict(), dtype=policy, name="encoder")
        self.hidden = given.get("pooler")
        if config.pooler and self.hidden is None:
            self.hidden = pooler_of(config, policy)
        of_heads: Any = {"initializer_range": config.initializer_range, "dtype": policy}
        self.mlm = given.get("mlm") or MaskLM(
            config.vocab_size,
            config.width_of_embeddings,
            token_embedding=self.encoder.token_embedding if config.tie_embeddings else None,
            mlm_head=config.mlm_head,
            initializer=config.initializer,
            num_tokens=config.num_tokens,
            **config.mlm_fields(),
            **of_heads,
            name="mlm",
        )
        self.nsp = given.get("nsp")
        if config.next_sentence and self.nsp is None:
            self.nsp = NextSentencePred(**of_heads, name="nsp")
        width = config.num_hiddens
        self.rtd = given.get("rtd")
        if config.replaced_tokens and self.rtd is None:
            of_heads |= {"activation": config.activation, "initializer": config.initializer}
            self.rtd = ReplacedTokenPred(width, **of_heads, name="rtd")
        # All widths are known, so create the weights now; they can then be counted or loaded.
        for layer, *shapes in (
            (self.encoder, (None, None)),
            (self.mlm, (None, None, width), (None, None)),
            (self.hidden, (None, width)),
            (self.nsp, (None, width)),
            (self.rtd, (None, None, width)),
        ):
            if layer is not None and not layer.built:
                layer.build(*shapes)
        self.built = True

    @classmethod
    def from_bert_config(cls, config: BERTConfig, **options: Unpack[LayerOptions]) -> Self:
        """Create a model from a `BERTConfig`, with Keras's `name` and `dtype` as options.

        Raises:
            ValueError: `config` is not a `BERTConfig`.
        """
        return cls(config, **options)

    @classmethod
    def from_pretrained(cls, path: PathLike, **options: Option) -> Self:
        """Load a checkpoint of any known format, without the head of a task.

        Args:
            path: The checkpoint, as for `load_pretrained`, also by name.
            **options: The other arguments of `load_pretrained`.

        Returns: the model, with the tokenizer attached.

        Raises:
            FileNotFoundError, ValueError: As for `load_pretrained`.

        Example:

        ```python
        import keras_bert_d2l as kb

        model = kb.BERTModel.from_pretrained("novels-small")
        print(kb.fill_mask(model, "the [MASK] of my text")[0][0].token)
        ```
        """
        load = pkgutil.resolve_name("keras_bert_d2l.checkpoints.loading:load_bert")
        loaded: Self = load(path, **options)
        return loaded

    @classmethod
    def from_layers(
        cls,
        encoder: BERTEncoder,
        *,
        mlm: MaskLM | None = None,
        nsp: NextSentencePred | None = None,
        pooler: keras.layers.Dense | None = None,
        rtd: ReplacedTokenPred | None = None,
    ) -> Self:
        """Create a model from layers, for example those of a Keras model of your own.

        The model shares the layers: training them there also changes them here. The heads that are
        not given are random, and listed in `missing_heads`.

        Args:
            encoder: The encoder.
            mlm: The masked-language-model head, which reads the encoded tokens.
            nsp: The next-sentence head. It reads the output of the pooler or, without a `pooler`,
                the encoded `[CLS]`.
            pooler: A dense layer with tanh (or the encoder's `pooler_activation`), as wide as the
                encoder. It reads the encoded `[CLS]`.
            rtd: The replaced-token head, which reads the encoded tokens.

        Raises:
            ValueError: An argument is not a layer of this kind, or has other sizes than `encoder`.

        Example:

        ```python
        import keras_bert_d2l as kb

        encoder = kb.BERTEncoder(100, 16, 32, num_heads=2, num_blks=1, dropout=0.1)
        mlm = kb.MaskLM(100, 16, token_embedding=encoder.token_embedding)
        model = kb.BERTModel.from_layers(encoder, mlm=mlm)
        assert model.missing_heads == {"pooler", "nsp"}
        ```
        """
        given = {"pooler": pooler, "mlm": mlm, "nsp": nsp, "rtd": rtd}
        config = check_type("encoder", encoder, BERTEncoder).config
        changes: ConfigDict = {} if pooler is None else {"pooler": True}
        if mlm is not None:
            sizes = (check_type("mlm", mlm, MaskLM).vocab_size, mlm.num_hiddens)
            expected = (config.vocab_size, config.width_of_embeddings)
            needed = f"of the encoder's sizes, MaskLM{expected}"
            check_that(sizes == expected, "mlm", needed, mlm, f"It is MaskLM{sizes}.")
            fields = config.mlm_fields() if mlm.mlm_head == "mlp" else {}  # of the hidden layer
            differ = [name for name, value in fields.items() if getattr(mlm, name) != value]
            needed = "like the encoder's configuration (`mlm_activation`, if it is set)"
            check_that(not differ, "mlm", needed, mlm, f"Change its {differ}.")
            is_tied = mlm.token_embedding is encoder.token_embedding
            needed = "untied, or tied to the token embedding of the encoder"
            check_that(is_tied or mlm.token_embedding is None, "mlm", needed, mlm)
            changes |= {"mlm_head": mlm.mlm_head, "tie_embeddings": is_tied}
            changes |= {"num_tokens": mlm.num_tokens}
        if pooler is not None and not is_pooler(pooler, config):
            kind = "NormalizedDense" if config.pooler_norm else "Dense"
            options = f"activation={config.pooler_activation!r}"
            options += ", use_bias=False" if config.bias_free else ""
            raise wrong("pooler", f"{kind}({config.num_hiddens}, {options})", pooler)
        if nsp is not None:
            check_type("nsp", nsp, NextSentencePred)
            changes |= {"next_sentence": True, "pooler": pooler is not None}
        if rtd is not None:
            check_type("rtd", rtd, ReplacedTokenPred)
            changes |= {"replaced_tokens": True}
        model = cls.__new__(cls)  # `__init__` would create all layers
        super(BERTModel, model).__init__(autocast=False, dtype=encoder.dtype_policy)
        model._add_layers(dataclasses.replace(config, **changes), encoder=encoder, **given)
        model.missing_heads = frozenset(name for name in model.usable_heads if not given[name])
        return model

    def call(
        self,
        tokens: Tensor | dict[str, Tensor],
        segments: Tensor | None = None,
        valid_lens: Tensor | None = None,
        pred_positions: Tensor | None = None,
        training: bool | None = None,
        cls_positions: Tensor | None = None,
        return_hidden_states: bool = False,
        **options: Tensor,
    ) -> Outputs | dict[str, Tensor]:
        if isinstance(tokens, dict):
            return self._named_logits(tokens, training, return_hidden_states)
        encoded = self.encoder(
            *(tokens, segments, valid_lens),
            training=training,
            return_hidden_states=return_hidden_states,
            **options,
        )
        encoded_X = encoded["encoded"] if return_hidden_states else encoded  # (B, T, D)
        cls_X = encoded_X[:, 0]  # (B, D)
        if cls_positions is not None:
            cls_X = gather_positions(encoded_X, cls_positions, "cls_positions")  # (B, E, D)
        mlm_Y_hat = None if pred_positions is None else self.mlm(encoded_X, pred_positions)
        return encoded, mlm_Y_hat, self._next_sentence(cls_X)

    def _named_logits(
        self, batch: dict[str, Tensor], training: bool | None, return_hidden_states: bool
    ) -> dict[str, Tensor]:
        """Return the logits of a batch, and the hidden states if requested, by their names."""
        check_keys(batch, (*FEATURES, *PACKED_FEATURES))
        if return_hidden_states or self.rtd or batch.get("pred_positions") is None:
            outputs: Any = self.call(
                **batch, training=training, return_hidden_states=return_hidden_states
            )
        else:
            outputs = self._logits_at_positions(training=training, **batch)
        logits = zip(("mlm", "nsp"), outputs[1:], strict=True)
        named = {name: of_head for name, of_head in logits if of_head is not None}
        if self.rtd is not None:
            named["rtd"] = self.rtd(outputs[0]["encoded"] if return_hidden_states else outputs[0])
        if not named:
            raise ValueError(
                "`pred_positions` is missing, and a model with next_sentence=False has no other "
                "output. Add the positions to predict to the batch."
            )
        if return_hidden_states:
            named["hidden_states"] = outputs[0]["hidden_states"]
        return named

    def _logits_at_positions(
        self, pred_positions: Tensor, cls_positions: Tensor | None = None, **batch: Tensor
    ) -> Outputs:
        """Return the tuple of `call`, with only those encoded tokens that the heads read."""
        check_positions("pred_positions", pred_positions, batch["tokens"])
        first = ops.zeros_like(pred_positions[:, :1]) if cls_positions is None else cls_positions
        check_positions("cls_positions", first, batch["tokens"])
        read = ops.concatenate([ops.cast(x, "int32") for x in (first, pred_positions)], axis=1)
        X = self.encoder(**batch, positions=read)  # (B, 1 + P, D), or (B, E + P, D)
        num_cls = ops.shape(first)[1]
        cls_X = X[:, 0] if cls_positions is None else X[:, :num_cls]
        return X, self.mlm(X[:, num_cls:]), self._next_sentence(cls_X)

    def _parts_for_lora(self) -> list[keras.layers.Layer]:
        if self.random_heads:
            raise ValueError(
                "`enable_lora` freezes the heads, but the checkpoint of this model lacked "
                f"{self.random_heads}, which are random. Train them first, or start from "
                "a checkpoint that has them."
            )
        parts = (self.encoder, self.hidden, self.mlm, self.nsp, self.rtd)
        return [part for part in parts if part]

    @property
    def preprocessor(self) -> Preprocessor | None:
        """Converts strings to token ids; see `Preprocessor`."""
        return None if self.tokenizer is None else Preprocessor(self, self.tokenizer)

    def plain(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return data without pandas."""
        return without_pandas(x), y, sample_weight

    @property
    def unread_layers(self) -> list[keras.layers.Layer]:
        """The pooler without the head that reads it, and the head that the rtd loss is without."""
        layers = [] if self.nsp or self.hidden is None else [self.hidden]
        loss = getattr(self, "loss", None)
        if self.rtd is not None and isinstance(loss, Mapping):
            layers += [x for name, x in (("mlm", self.mlm), ("rtd", self.rtd)) if name not in loss]
        return layers

    def num_classes(self, length: Tensor) -> dict[str, Tensor]:
        return {"mlm": self.bert_config.vocab_size, "nsp": 2, "rtd": 2}

    @property
    def usable_heads(self) -> dict[str, keras.layers.Layer]:
        """The layers of `"pooler"`, `"mlm"`, `"nsp"` and `"rtd"` that are not missing.

        A next-sentence head above a missing pooler is not usable either.
        """
        layers = {"pooler": self.hidden, "mlm": self.mlm, "nsp": self.nsp, "rtd": self.rtd}
        lost = self.missing_heads | ({"nsp"} if "pooler" in self.missing_heads else set())
        return {name: x for name, x in layers.items() if x is not None and name not in lost}

    def sparse_weights(
        self, encoded_X: Tensor, tokens: Tensor, segments: Tensor, valid_lens: Tensor
    ) -> Tensor:
        """Return the weight of every token of the vocabulary `(B, V)` for an encoded batch."""
        mask: Any = self.encoder.mask(tokens, valid_lens)
        return self.sparse(self.mlm, encoded_X, mask[:, 0])

    def _next_sentence(self, cls: Tensor) -> Tensor | None:
        if self.nsp is None:
            return None
        return self.nsp(cls if self.hidden is None else self.hidden(cls))

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        if self.rtd is not None:  # of ELECTRA's discriminator, which has no MLM head
            return Training({"rtd": WeightedBinaryCrossEntropy()}, {"rtd": binary_metrics("rtd_")})
        heads = ("mlm",) if self.nsp is None else ("mlm", "nsp")
        # Keras prefixes metric names with the head's name, unless there is only one head.
        prefix = "mlm_" if self.nsp is None else ""
        return Training(
            {head: WeightedCrossEntropy() for head in heads},
            {head: label_metrics(prefix) for head in heads},
        )

    def get_config(self) -> ConfigDict:
        base = super().get_config()
        return {
            **{name: base[name] for name in ("name", "dtype", "trainable") if name in base},
            **self.bert_config.to_dict(),
            "missing_heads": sorted(self.missing_heads),
            "sparse": dataclasses.asdict(self.sparse),
            **self.saved_state(),
        }

    @classmethod
    def from_config(cls, config: ConfigDict, custom_objects: ConfigDict | None = None) -> Self:
        config = dict(config)
        missing, sparse = config.pop("missing_heads", ()), config.pop("sparse", {})
        model = cls.from_saved(config, cls)
        model.missing_heads, model.sparse = frozenset(missing), SparsePooling(**sparse)
        return model


def checked_bert(bert: Any) -> Any:
    """Return the argument `bert` of a task model; raise `ValueError` unless it is a `BERTModel`."""
    advice = "Load one with `load_pretrained(path).model`, or use `BERTModel.from_layers(encoder)`."
    return check_type("bert", bert, BERTModel, advice)
