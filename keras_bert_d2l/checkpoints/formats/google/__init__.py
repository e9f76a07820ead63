"""Read and write google-research/bert checkpoints."""

from keras_bert_d2l.checkpoints.formats.google.folder import describe, recognizes, write
from keras_bert_d2l.checkpoints.formats.google.optimizer import restore_optimizer

__all__ = ["describe", "recognizes", "restore_optimizer", "write"]
