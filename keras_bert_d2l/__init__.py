"""BERT for Keras, whole: from your own text to a served model."""

from keras_bert_d2l import _quiet as _quiet  # first: it imports TensorFlow in silence
from keras_bert_d2l.checkpoints.loading import Pretrained, load_pretrained, load_task
from keras_bert_d2l.checkpoints.opening import WeightSummary, inspect_checkpoint
from keras_bert_d2l.checkpoints.saving import convert_checkpoint, save_pretrained
from keras_bert_d2l.checkpoints.surgery import add_tokens, drop_tokens, extend_positions
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.pretraining.masking import Masking
from keras_bert_d2l.data.pretraining.tfrecords import read_tfrecords, write_tfrecords
from keras_bert_d2l.data.report.report import DataReport, data_report
from keras_bert_d2l.data.store.beam import build_store_with_beam
from keras_bert_d2l.data.store.building import TokenStore, build_store
from keras_bert_d2l.data.tasks.examples import Answer, QuestionExamples, TextExamples, WordExamples
from keras_bert_d2l.data.tasks.peek import peek
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.data.tasks.splitting import split_examples
from keras_bert_d2l.inference.evaluation.evaluation import Evaluation, evaluate, print_evaluation
from keras_bert_d2l.inference.pretraining.fill_mask import Prediction, fill_mask
from keras_bert_d2l.inference.pretraining.perplexity import Perplexity, pseudo_perplexity
from keras_bert_d2l.inference.pretraining.sentence_pairs import next_sentence_score
from keras_bert_d2l.inference.tasks.answers import FoundAnswer, answer
from keras_bert_d2l.inference.tasks.embeddings import Match, embed, similar
from keras_bert_d2l.inference.tasks.labels import (
    Classification,
    Regression,
    Tag,
    classify,
    regress,
    tag,
)
from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred
from keras_bert_d2l.layers.transformer import TransformerEncoderBlock
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.contrastive import ContrastiveLoss
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.tasks.heads import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.serving.client.client import ServingClient
from keras_bert_d2l.serving.export.audit import audit_saved_model
from keras_bert_d2l.serving.export.export import export_saved_model
from keras_bert_d2l.serving.onnx.export import export_onnx
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.coverage import Coverage, measure_coverage
from keras_bert_d2l.text.tokenizer.segments import get_tokens_and_segments
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.windows import answer_spans
from keras_bert_d2l.text.vocab.extending import extend_vocab
from keras_bert_d2l.text.vocab.vocab import Vocab, learn_vocab
from keras_bert_d2l.training.finetuning.files import finetune_files
from keras_bert_d2l.training.finetuning.finetune import FinetuningResult, finetune
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay
from keras_bert_d2l.training.pretraining.pretrain import pretrain

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "BERTAdamW",
    "BERTConfig",
    "BERTEncoder",
    "BERTModel",
    "Classification",
    "ContrastiveLoss",
    "Corpus",
    "Coverage",
    "DataReport",
    "Evaluation",
    "FinetuningResult",
    "FoundAnswer",
    "MaskLM",
    "Masking",
    "Match",
    "MultiHeadAttention",
    "NextSentencePred",
    "Perplexity",
    "Prediction",
    "Pretrained",
    "QuestionAnswerer",
    "QuestionExamples",
    "Regression",
    "SequenceClassifier",
    "SequenceRegressor",
    "ServingClient",
    "Tag",
    "TaskRows",
    "TextEmbedder",
    "TextExamples",
    "TokenClassifier",
    "TokenStore",
    "Tokenizer",
    "TransformerEncoderBlock",
    "Vocab",
    "WarmupLinearDecay",
    "WeightSummary",
    "WeightedCrossEntropy",
    "WordExamples",
    "add_tokens",
    "answer",
    "answer_spans",
    "audit_saved_model",
    "build_store",
    "build_store_with_beam",
    "classify",
    "convert_checkpoint",
    "data_report",
    "drop_tokens",
    "embed",
    "evaluate",
    "export_onnx",
    "export_saved_model",
    "extend_positions",
    "extend_vocab",
    "fill_mask",
    "finetune",
    "finetune_files",
    "get_tokens_and_segments",
    "inspect_checkpoint",
    "learn_vocab",
    "load_pretrained",
    "load_task",
    "measure_coverage",
    "next_sentence_score",
    "peek",
    "pretrain",
    "pretraining_dataset",
    "print_evaluation",
    "pseudo_perplexity",
    "read_examples",
    "read_tfrecords",
    "regress",
    "save_pretrained",
    "similar",
    "split_examples",
    "tag",
    "write_tfrecords",
]
