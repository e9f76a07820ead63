"""Text: from raw files to token ids.

- `corpus` streams documents, each a list of sentences, from files, folders and the docstrings of
  installed packages.
- `vocab` maps tokens to ids, and learns or extends a vocabulary from a corpus.
- `tokenizer` turns strings into token ids inside the TensorFlow graph, so the same code runs in a
  `tf.data` pipeline and in a served model.

No module here imports a layer or a model.
"""
