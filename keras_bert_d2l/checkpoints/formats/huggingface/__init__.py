"""Read and write Hugging Face checkpoints, with or without a task head."""

from keras_bert_d2l.checkpoints.formats.huggingface.folder import describe, recognizes, write

__all__ = ["describe", "recognizes", "write"]
