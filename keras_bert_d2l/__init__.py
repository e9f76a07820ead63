"""BERT for Keras, whole: from your own text to a served model."""

from keras_bert_d2l import _quiet as _quiet  # first: it imports TensorFlow in silence
from keras_bert_d2l.checkpoints.native import Pretrained, load_pretrained, save_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.dataset import pretraining_dataset
from keras_bert_d2l.inference.fill_mask import Prediction, fill_mask
from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred
from keras_bert_d2l.layers.transformer import TransformerEncoderBlock
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.serving.export import export_saved_model
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.segments import get_tokens_and_segments
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab, learn_vocab
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay
from keras_bert_d2l.training.pretraining import pretrain

__version__ = "0.1.0"

__all__ = [
    "BERTAdamW",
    "BERTConfig",
    "BERTEncoder",
    "BERTModel",
    "Corpus",
    "MaskLM",
    "MultiHeadAttention",
    "NextSentencePred",
    "Prediction",
    "Pretrained",
    "Tokenizer",
    "TransformerEncoderBlock",
    "Vocab",
    "WarmupLinearDecay",
    "WeightedCrossEntropy",
    "export_saved_model",
    "fill_mask",
    "get_tokens_and_segments",
    "learn_vocab",
    "load_pretrained",
    "pretrain",
    "pretraining_dataset",
    "save_pretrained",
]
