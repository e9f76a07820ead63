"""Pretraining on replaced tokens: a generator replaces tokens, and a discriminator finds them.

B batch, T tokens, P predicted positions, V vocabulary.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import without_initialization
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.models.batch_model import BatchModel
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import (
    LogitAUC,
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
    binary_metrics,
    label_metrics,
)
from keras_bert_d2l.types import ConfigDict, Tensor

_WEIGHT = 50.0  # of the discriminator's loss


class ReplacedTokenDetection(BatchModel):
    """A generator and a discriminator that learn together.

    The generator is a smaller BERT that predicts masked tokens. A token drawn from its prediction
    replaces each of them. The discriminator reads the result and tells for every token whether it
    differs from the original. Its loss has 50 times the weight of the generator's, and no gradient
    reaches the generator through the drawn tokens.

    Source: Clark et al. 2020 (ELECTRA), section 3; He et al. 2021 (DeBERTaV3), section 3.

    Args:
        discriminator: The model to pretrain, with `replaced_tokens=True`.
        width: Width of the generator as a share of that of the discriminator. It has a whole number
            of attention heads, at least one.
        embeddings: `"shared"`: both have the same token embedding, which learns from both losses
            (ELECTRA). `"disentangled"`: the discriminator adds a table of its own to that of the
            generator, which only learns from the generator's loss (DeBERTaV3).

    Call arguments:
        batch: The features of a `BERTModel`, and `originals`, int `(B, P)`: the tokens at the
            positions to predict before they were masked. Positions of 0 are unused.

    Returns: `"mlm"`, the logits of the generator, `(B, P, V)`, and with `originals` also `"rtd"`,
        those of the discriminator, `(B, T)`, and `"replaced"`, the labels of the latter.
    """

    def __init__(
        self, discriminator: BERTModel, width: float = 0.25, embeddings: str = "shared"
    ) -> None:
        policy = discriminator.dtype_policy
        super().__init__(autocast=False, dtype=policy)
        self.bert_config = discriminator.bert_config
        discriminator.missing_heads = frozenset({"mlm"})  # it is not trained
        self.encoder = discriminator.encoder
        table: Any = self.encoder.token_embedding
        config = generator_config(self.bert_config, width)
        shared = table if embeddings == "shared" else None
        encoder = BERTEncoder(config, token_embedding=shared, dtype=policy, name="encoder")
        self.generator = BERTModel.from_layers(encoder)
        self.generator.missing_heads = frozenset()
        self.discriminator = discriminator
        if shared is None:
            encoder.token_embedding.embeddings.assign(table.embeddings)
            table.embeddings.assign(0 * table.embeddings)
            # Not tracked, because the table belongs to the generator.
            self.encoder.__dict__["base_embedding"] = encoder.token_embedding
        self.seed_generator = keras.random.SeedGenerator(name="seed_generator")
        self.tokenizer = self.generator.tokenizer = discriminator.tokenizer
        self.built = True

    @property
    def unread_layers(self) -> list[keras.layers.Layer]:
        """The MLM head of the discriminator."""
        return [self.discriminator.mlm]

    def trained(self) -> BERTModel:
        """Return the discriminator as a model of its own."""
        base = self.encoder.base_embedding
        if base is None:
            return self.discriminator
        with without_initialization():
            model = BERTModel.from_bert_config(self.bert_config, dtype=self.dtype_policy)
        model.set_weights(self.discriminator.get_weights())
        table: Any = model.encoder.token_embedding
        table.embeddings.assign(table.embeddings + ops.convert_to_tensor(base.embeddings))
        model.missing_heads, model.tokenizer = self.discriminator.missing_heads, self.tokenizer
        return model

    def call(self, batch: dict[str, Tensor], training: bool | None = None) -> dict[str, Tensor]:
        features = dict(batch)
        originals = features.pop("originals", None)
        outputs = self.generator(features, training=training)
        if originals is None:
            return outputs
        logits = ops.stop_gradient(ops.cast(outputs["mlm"], "float32"))
        rows = ops.reshape(logits, (-1, self.bert_config.vocab_size))  # (B P, V)
        seed = self.seed_generator if training else 0  # all evaluations draw alike
        drawn = keras.random.categorical(rows, 1, dtype="int32", seed=seed)
        drawn = ops.reshape(drawn, ops.shape(originals))  # (B, P)
        tokens, replaced = replace_tokens(
            features["tokens"], features.pop("pred_positions"), drawn, originals
        )
        found = self.discriminator({**features, "tokens": tokens}, training=training)
        return {"mlm": outputs["mlm"], "rtd": found["rtd"], "replaced": replaced}

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(
            {"mlm": WeightedCrossEntropy(), "rtd": WeightedBinaryCrossEntropy()},
            {"mlm": label_metrics(), "rtd": [*binary_metrics(), LogitAUC(name="auc")]},
            {"mlm": 1.0, "rtd": _WEIGHT},
        )

    def compute_loss(
        self, x: Tensor = None, y: Tensor = None, y_pred: Tensor = None, *rest: Any, **options: Any
    ) -> Tensor:
        return super().compute_loss(x, *_labeled(y, y_pred), *rest, **options)

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor = None
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = super().compute_metrics(x, *_labeled(y, y_pred), sample_weight)
        return found


def _labeled(y: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
    """Return labels and logits, with the labels of the discriminator in their place."""
    logits = dict(y_pred)
    replaced = logits.pop("replaced", None)
    return y if replaced is None else {**y, "rtd": replaced}, logits


def replace_tokens(
    tokens: Tensor, positions: Tensor, drawn: Tensor, originals: Tensor
) -> tuple[Tensor, Tensor]:
    """Put the drawn tokens at their positions, and compare the result with the original.

    Args:
        tokens: Masked tokens, int `(B, T)`.
        positions: The predicted positions, int `(B, P)`. Position 0 stands for none.
        drawn: The tokens to put there, int `(B, P)`.
        originals: The original ones, int `(B, P)`.

    Returns: the tokens, and 1 for those that differ from the original, else 0, int `(B, T)`.
    """
    places = ops.arange(ops.shape(tokens)[1], dtype="int32")
    positions = ops.cast(positions, "int32")[..., None]
    is_there = ops.logical_and(positions == places, positions > 0)  # (B, P, T)

    def placed(values: Tensor) -> Tensor:
        found = ops.sum(ops.where(is_there, ops.cast(values, "int32")[..., None], 0), axis=1)
        return ops.where(ops.any(is_there, axis=1), found, ops.cast(tokens, "int32"))

    new = placed(drawn)
    return new, ops.cast(new != placed(originals), "int32")


def generator_config(config: BERTConfig, share: float) -> BERTConfig:
    """Return the architecture of the generator for one of a discriminator.

    Its embeddings have the width of those of the discriminator.
    """
    heads = max(1, round(config.num_heads * share))
    fields: ConfigDict = {"num_heads": heads, "replaced_tokens": False}
    fields |= {"mlm_head": "mlp", "tie_embeddings": True}
    for name in ("num_hiddens", "ffn_num_hiddens"):
        fields[name] = getattr(config, name) * heads // config.num_heads
    width = config.width_of_embeddings
    fields["embedding_width"] = None if width == fields["num_hiddens"] else width
    return dataclasses.replace(config, **fields)
