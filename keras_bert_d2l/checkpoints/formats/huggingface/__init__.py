"""Hugging Face's checkpoints, with or without the head of a task."""

from keras_bert_d2l.checkpoints.formats.huggingface.folder import describe, recognizes, write

__all__ = ["describe", "recognizes", "write"]
