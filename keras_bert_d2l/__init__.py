"""BERT for Keras, whole: from your own text to a served model."""

from keras_bert_d2l import _quiet as _quiet  # first: it imports TensorFlow in silence
from keras_bert_d2l.checkpoints.pretrained import (
    Pretrained,
    WeightSummary,
    convert_checkpoint,
    inspect_checkpoint,
    load_pretrained,
    save_pretrained,
)
from keras_bert_d2l.checkpoints.surgery import add_tokens, drop_tokens, extend_positions
from keras_bert_d2l.checkpoints.tasks import load_task
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.dataset import pretraining_dataset
from keras_bert_d2l.data.masking import Masking
from keras_bert_d2l.data.report import DataReport, data_report
from keras_bert_d2l.data.store import TokenStore, build_store
from keras_bert_d2l.data.tfrecords import read_tfrecords, write_tfrecords
from keras_bert_d2l.inference.fill_mask import Prediction, fill_mask
from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred
from keras_bert_d2l.layers.transformer import TransformerEncoderBlock
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.tasks import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.serving.audit import audit_saved_model
from keras_bert_d2l.serving.export import export_saved_model
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.coverage import Coverage, measure_coverage
from keras_bert_d2l.text.extending import extend_vocab
from keras_bert_d2l.text.segments import get_tokens_and_segments
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab, learn_vocab
from keras_bert_d2l.text.windows import answer_spans
from keras_bert_d2l.training.finetuning import FinetuningResult, finetune
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay
from keras_bert_d2l.training.pretraining import pretrain

__version__ = "0.1.0"

__all__ = [
    "BERTAdamW",
    "BERTConfig",
    "BERTEncoder",
    "BERTModel",
    "Corpus",
    "Coverage",
    "DataReport",
    "FinetuningResult",
    "MaskLM",
    "Masking",
    "MultiHeadAttention",
    "NextSentencePred",
    "Prediction",
    "Pretrained",
    "QuestionAnswerer",
    "SequenceClassifier",
    "SequenceRegressor",
    "TextEmbedder",
    "TokenClassifier",
    "TokenStore",
    "Tokenizer",
    "TransformerEncoderBlock",
    "Vocab",
    "WarmupLinearDecay",
    "WeightSummary",
    "WeightedCrossEntropy",
    "add_tokens",
    "answer_spans",
    "audit_saved_model",
    "build_store",
    "convert_checkpoint",
    "data_report",
    "drop_tokens",
    "export_saved_model",
    "extend_positions",
    "extend_vocab",
    "fill_mask",
    "finetune",
    "get_tokens_and_segments",
    "inspect_checkpoint",
    "learn_vocab",
    "load_pretrained",
    "load_task",
    "measure_coverage",
    "pretrain",
    "pretraining_dataset",
    "read_tfrecords",
    "save_pretrained",
    "write_tfrecords",
]
