"""Text: from raw files to token ids.

- `corpus` streams documents, each a list of sentences, from files, folders and the docstrings of
  installed packages.
- `vocab` holds the tokens and their ids. It learns a vocabulary from a corpus, or extends one.
- `tokenizer` turns strings into token ids inside the TensorFlow graph, so the same code runs in a
  `tf.data` pipeline and in a served model.

No module here imports a layer or a model.
"""
