"""BERT for Keras, whole: from your own text to a served model."""

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred
from keras_bert_d2l.layers.transformer import TransformerEncoderBlock
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay

__version__ = "0.1.0"

__all__ = [
    "BERTAdamW",
    "BERTConfig",
    "BERTEncoder",
    "BERTModel",
    "MaskLM",
    "MultiHeadAttention",
    "NextSentencePred",
    "TransformerEncoderBlock",
    "WarmupLinearDecay",
    "WeightedCrossEntropy",
]
