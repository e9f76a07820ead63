"""Read and write presets of KerasHub: BERT and its relatives."""

from keras_bert_d2l.checkpoints.formats.kerashub.folder import FILES, describe, recognizes, write
from keras_bert_d2l.checkpoints.formats.kerashub.tokenizers import read_tokenizer

__all__ = ["FILES", "describe", "read_tokenizer", "recognizes", "write"]
