"""Raw text in, token ids out.

`Corpus` streams documents of sentences from files, folders and the docstrings of installed
packages; `Vocab` holds the tokens and their ids, `learn_vocab` makes one from a corpus,
`extend_vocab` adds to one, and `measure_coverage` says how well it fits a text; `Tokenizer` turns
strings into ids inside the TensorFlow graph, so that the same code runs in a `tf.data` pipeline and
in a served model. Nothing here knows a layer or a model.
"""
