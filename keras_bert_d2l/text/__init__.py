"""Raw text in, token ids out.

`Corpus` streams documents of sentences from files, folders and the docstrings of installed
packages; `Vocab` holds the tokens and their ids, and `learn_vocab` makes one from a corpus;
`Tokenizer` turns strings into ids inside the TensorFlow graph, so that the same code runs in a
`tf.data` pipeline and in a served model. Nothing here knows a layer or a model.
"""
