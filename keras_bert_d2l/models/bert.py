"""BERTModel: the encoder and its two pretraining heads as one `keras.Model`.

B batch, T tokens, P predicted positions, E examples in a packed row, D hidden width,
V vocabulary.
"""

from typing import Any, Self

import keras

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.attention import block_diagonal_mask, joint_mask
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred, gather_positions
from keras_bert_d2l.layers.initializers import dense_initializer
from keras_bert_d2l.models import features
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.metrics import weighted_metrics as _metrics

FEATURES = ("tokens", "segments", "valid_lens", "pred_positions")
PACKED_FEATURES = ("attention_mask", "example_ids", "position_ids", "cls_positions")


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTModel(features.BatchModel):
    """BERT with the masked-language-model and next-sentence heads.

    Source: d2l.ai, section 15.8.6; Devlin et al. 2019. The defaults are the book's; the options
    are the fields of `BERTConfig`.

    Args:
        vocab_size: Size of the vocabulary, V.
        num_hiddens: Width of the encoder, D.
        ffn_num_hiddens: Width of the feed-forward layers.
        num_heads: Attention heads per block.
        num_blks: Number of Transformer blocks.
        dropout: Rate of the dropout after each sublayer.
        max_len: Longest sequence.
        **options: The keyword fields of `BERTConfig`, and `name`, `dtype`, `trainable` of Keras.

    Call arguments:
        tokens: Token ids, int `(B, T)`; or a dictionary of the call arguments, as a data set
            yields it.
        segments: Segment ids, int `(B, T)`.
        valid_lens: Tokens of each row that are not padding, `(B,)`; `None`: all.
        pred_positions: Positions to predict, int `(B, P)`; `None`: no prediction.
        training: Whether dropout acts.
        attention_mask: Tokens that may be attended to, `(B, T)` or `(B, T, T)`, bool or numbers;
            a token must count here and in `valid_lens`.
        example_ids: Of a row packed with several examples the number of each token's example,
            int `(B, T)`, from 1; 0 for padding. Tokens attend to their own example alone.
        position_ids: Row of the position embedding for each token, int `(B, T)`.
        cls_positions: Where each packed example's `[CLS]` is, int `(B, E)`; `None`: at 0.

    Returns:
        For positional arguments the book's tuple: the encoded tokens `(B, T, D)`, the MLM logits
        `(B, P, V)` or `None`, and the NSP logits `(B, 2)`, whose column 1 is "is next"; with
        `cls_positions` `(B, E, 2)`, and `None` with `next_sentence=False`.
        For a dictionary: `{"mlm": (B, P, V), "nsp": (B, 2)}`, without what is `None`.

    Example:

    ```python
    model = BERTModel.from_bert_config(BERTConfig.preset("mini", vocab_size=len(vocab)))
    model.compile(optimizer=BERTAdamW(1e-3))
    model.fit(pretraining_dataset(corpus, tokenizer, batch_size=32), shuffle=False)
    ```
    """

    features = FEATURES

    def __init__(
        self,
        vocab_size: int,
        num_hiddens: int,
        ffn_num_hiddens: int,
        num_heads: int,
        num_blks: int,
        dropout: float,
        max_len: int = 1000,
        **options: Any,
    ) -> None:
        base = {
            name: options.pop(name) for name in ("name", "dtype", "trainable") if name in options
        }
        # Lengths arrive as floats from the book's loader; autocast would round 257 to 256.
        super().__init__(autocast=False, **base)
        config = BERTConfig.from_dict(
            {
                "vocab_size": vocab_size,
                "num_hiddens": num_hiddens,
                "ffn_num_hiddens": ffn_num_hiddens,
                "num_heads": num_heads,
                "num_blks": num_blks,
                "dropout": dropout,
                "max_len": max_len,
                **options,
            }
        )
        self.bert_config = config
        policy = self.dtype_policy
        self.encoder = BERTEncoder(**config.of_encoder(), dtype=policy, name="encoder")
        self.hidden = self._pooler() if config.pooler else None
        self.mlm = MaskLM(
            vocab_size,
            num_hiddens,
            token_embedding=self.encoder.token_embedding if config.tie_embeddings else None,
            mlm_head=config.mlm_head,
            layer_norm_epsilon=config.layer_norm_epsilon,
            layer_norm=config.layer_norm,
            activation=config.activation,
            initializer=config.initializer,
            dtype=policy,
            name="mlm",
        )
        self.nsp = NextSentencePred(dtype=policy, name="nsp") if config.next_sentence else None
        # Every width is known here: the weights exist at once, to be counted, loaded or shown.
        self.build({name: features.shape(name) for name in FEATURES})

    def _pooler(self) -> keras.layers.Dense:
        return keras.layers.Dense(
            self.bert_config.num_hiddens,
            activation="tanh",
            kernel_initializer=dense_initializer(self.bert_config.initializer),
            dtype=self.dtype_policy,
            name="hidden",
        )

    @classmethod
    def from_bert_config(cls, config: BERTConfig, **kwargs: Any) -> Self:
        """Returns a new model of the given architecture; `kwargs`: Keras's `name` and `dtype`."""
        return cls(**config.to_dict(), **kwargs)

    def build(
        self,
        tokens_shape: Any,
        segments_shape: Any = None,
        valid_lens_shape: Any = None,
        pred_positions_shape: Any = None,
    ) -> None:
        if self.built:
            return
        width = self.bert_config.num_hiddens
        self.encoder.build((None, None))
        self.mlm.build((None, None, width), (None, None))
        for layer in (self.hidden, self.nsp):
            if layer is not None:
                layer.build((None, width))
        self.built = True

    def call(
        self,
        tokens: Any,
        segments: Any = None,
        valid_lens: Any = None,
        pred_positions: Any = None,
        training: bool | None = None,
        attention_mask: Any = None,
        example_ids: Any = None,
        position_ids: Any = None,
        cls_positions: Any = None,
    ) -> Any:
        if isinstance(tokens, dict):
            features.check_keys(tokens, (*FEATURES, *PACKED_FEATURES))
            _, mlm_Y_hat, nsp_Y_hat = self._forward(**tokens, training=training)
            outputs = {"mlm": mlm_Y_hat, "nsp": nsp_Y_hat}
            outputs = {name: logits for name, logits in outputs.items() if logits is not None}
            if not outputs:
                raise ValueError(
                    "`pred_positions` is missing, and a model with next_sentence=False has no "
                    "other output: put the positions to predict into the batch."
                )
            return outputs
        if segments is None:
            raise ValueError(
                "`segments` is missing: call the model with (tokens, segments, valid_lens, "
                "pred_positions), or with one dictionary of these."
            )
        return self._forward(
            tokens,
            segments,
            valid_lens,
            pred_positions,
            attention_mask=attention_mask,
            example_ids=example_ids,
            position_ids=position_ids,
            cls_positions=cls_positions,
            training=training,
        )

    def _forward(
        self,
        tokens: Any,
        segments: Any,
        valid_lens: Any = None,
        pred_positions: Any = None,
        *,
        attention_mask: Any = None,
        example_ids: Any = None,
        position_ids: Any = None,
        cls_positions: Any = None,
        training: bool | None = None,
    ) -> tuple[Any, Any, Any]:
        if example_ids is not None:
            attention_mask = joint_mask(attention_mask, block_diagonal_mask(example_ids))
        encoded_X = self.encoder(
            tokens,
            segments,
            valid_lens,
            training=training,
            attention_mask=attention_mask,
            position_ids=position_ids,
        )
        mlm_Y_hat = None if pred_positions is None else self.mlm(encoded_X, pred_positions)
        return encoded_X, mlm_Y_hat, self._next_sentence(encoded_X, cls_positions)

    def _next_sentence(self, encoded_X: Any, cls_positions: Any) -> Any:
        if self.nsp is None:
            return None
        if cls_positions is None:
            cls = encoded_X[:, 0, :]
        else:
            cls = gather_positions(encoded_X, keras.ops.cast(cls_positions, "int32"))
        return self.nsp(cls if self.hidden is None else self.hidden(cls))

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Configures training as `keras.Model.compile`, with the right losses as the default.

        Without a `loss` the model trains by the sum of the weighted MLM and NSP cross entropies;
        without metrics the log holds the cross entropy and the accuracy of both, exact over the
        data set.
        """
        if loss is None:
            heads = ("mlm",) if self.nsp is None else ("mlm", "nsp")
            loss = {head: WeightedCrossEntropy() for head in heads}
            if metrics is None and weighted_metrics is None:
                # Keras puts the head's name before the metric's, unless there is one head alone.
                prefix = "mlm_" if self.nsp is None else ""
                weighted_metrics = {head: _metrics(prefix) for head in heads}
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        base = {
            k: v for k, v in super().get_config().items() if k in ("name", "dtype", "trainable")
        }
        return {**base, **self.bert_config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        return cls(**config)
