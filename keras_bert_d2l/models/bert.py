"""BERTModel: the encoder and its two pretraining heads as one `keras.Model`.

B batch, T tokens, P predicted positions, D hidden width, V vocabulary.
"""

from typing import Any, Self

import keras

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred
from keras_bert_d2l.layers.initializers import dense_initializer
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.metrics import weighted_metrics as _metrics

FEATURES = ("tokens", "segments", "valid_lens", "pred_positions")


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTModel(keras.Model):
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
        tokens: Token ids, int `(B, T)`; or a dictionary of the four call arguments, as a data set
            yields it.
        segments: Segment ids, int `(B, T)`.
        valid_lens: Tokens of each row that are not padding, `(B,)`; `None`: all.
        pred_positions: Positions to predict, int `(B, P)`; `None`: no prediction.
        training: Whether dropout acts.

    Returns:
        For positional arguments the book's tuple: the encoded tokens `(B, T, D)`, the MLM logits
        `(B, P, V)` or `None`, and the NSP logits `(B, 2)`, whose column 1 is "is next".
        For a dictionary: `{"mlm": (B, P, V), "nsp": (B, 2)}`, without `"mlm"` where it holds no
        `pred_positions`.

    Example:

    ```python
    model = BERTModel.from_bert_config(BERTConfig.preset("mini", vocab_size=len(vocab)))
    model.compile(optimizer=BERTAdamW(1e-3))
    model.fit(pretraining_dataset(corpus, tokenizer, batch_size=32), shuffle=False)
    ```
    """

    built: bool  # of keras.Model

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
        of_encoder = {k: v for k, v in config.to_dict().items() if k != "tie_embeddings"}
        self.encoder = BERTEncoder(**of_encoder, dtype=policy, name="encoder")
        self.hidden = keras.layers.Dense(
            num_hiddens,
            activation="tanh",
            kernel_initializer=dense_initializer(config.initializer),
            dtype=policy,
            name="hidden",
        )
        self.mlm = MaskLM(
            vocab_size,
            num_hiddens,
            token_embedding=self.encoder.token_embedding if config.tie_embeddings else None,
            layer_norm_epsilon=config.layer_norm_epsilon,
            activation=config.activation,
            initializer=config.initializer,
            dtype=policy,
            name="mlm",
        )
        self.nsp = NextSentencePred(dtype=policy, name="nsp")
        # Every width is known here: the weights exist at once, to be counted, loaded or shown.
        self.build({name: _shape(name) for name in FEATURES})

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
        self.hidden.build((None, width))
        self.mlm.build((None, None, width), (None, None))
        self.nsp.build((None, width))
        self.built = True

    def call(
        self,
        tokens: Any,
        segments: Any = None,
        valid_lens: Any = None,
        pred_positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        if isinstance(tokens, dict):
            _, mlm_Y_hat, nsp_Y_hat = self._forward(**_features(tokens), training=training)
            return {"nsp": nsp_Y_hat} if mlm_Y_hat is None else {"mlm": mlm_Y_hat, "nsp": nsp_Y_hat}
        if segments is None:
            raise ValueError(
                "`segments` is missing: call the model with (tokens, segments, valid_lens, "
                "pred_positions), or with one dictionary of these."
            )
        return self._forward(tokens, segments, valid_lens, pred_positions, training=training)

    def _forward(
        self,
        tokens: Any,
        segments: Any,
        valid_lens: Any = None,
        pred_positions: Any = None,
        training: bool | None = None,
    ) -> tuple[Any, Any, Any]:
        encoded_X = self.encoder(tokens, segments, valid_lens, training=training)
        mlm_Y_hat = None if pred_positions is None else self.mlm(encoded_X, pred_positions)
        nsp_Y_hat = self.nsp(self.hidden(encoded_X[:, 0, :]))  # position 0 is [CLS]
        return encoded_X, mlm_Y_hat, nsp_Y_hat

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
            loss = {"mlm": WeightedCrossEntropy(), "nsp": WeightedCrossEntropy()}
            if metrics is None and weighted_metrics is None:
                weighted_metrics = {"mlm": _metrics(), "nsp": _metrics()}
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def export(
        self,
        filepath: Any,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Exports as `keras.Model.export`, from token ids to logits.

        Without an `input_signature` the inputs are int32 and have the names of a batch; Keras
        would make them floats called `args_0`. `export_saved_model` writes a model for strings.
        """
        if input_signature is None:
            specs = {
                name: keras.InputSpec(shape=_shape(name), dtype="int32", name=name)
                for name in FEATURES
            }
            input_signature = [specs]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras skips this for a model that overrides `compile`; the arguments it has kept are
        # those of `keras.Model.compile`, so that they serve here too.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def get_config(self) -> dict[str, Any]:
        base = {
            k: v for k, v in super().get_config().items() if k in ("name", "dtype", "trainable")
        }
        return {**base, **self.bert_config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        return cls(**config)


def _shape(feature: str) -> tuple[None, ...]:
    return (None,) if feature == "valid_lens" else (None, None)


def _features(batch: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(batch) - set(FEATURES))
    missing = [name for name in ("tokens", "segments") if name not in batch]
    if unknown or missing:
        wrong = f"the unknown key {unknown[0]!r}" if unknown else f"no {missing[0]!r}"
        raise ValueError(
            f"A batch for BERTModel has the keys {FEATURES}, of which the last two may be left "
            f"out. Received {wrong} in {sorted(batch)}."
        )
    return batch
