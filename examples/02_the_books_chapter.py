"""Run sections 15.8 to 15.10 of Dive into Deep Learning with the book's own function names.

    python examples/02_the_books_chapter.py path/to/wikitext-2   # the book's corpus
    python examples/02_the_books_chapter.py                      # installed docstrings

Takes a few minutes on a laptop CPU. Every `d2l.` name below is from the book and takes the same
arguments as in the book.
"""

import itertools
import pathlib
import re
import sys

import keras
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l import book as d2l

tf.get_logger().setLevel("ERROR")


# %% The corpus
def write_docstrings_as_wikitext(folder: pathlib.Path, num_paragraphs: int = 500) -> pathlib.Path:
    """Write docstrings in WikiText format: one paragraph per line, spaces around punctuation."""
    print("Reading docstrings ...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "wiki.train.tokens", "w", encoding="utf-8") as file:
        for document in itertools.islice(kb.Corpus.open("docstrings"), num_paragraphs):
            words = [re.findall(r"\w+|[^\w\s]", sentence.rstrip(".")) for sentence in document]
            file.write(" . ".join(" ".join(sentence) for sentence in words) + " .\n")
    return folder


is_given = len(sys.argv) > 1
folder = pathlib.Path(sys.argv[1] if is_given else "runs/docstrings_as_wikitext")
data_dir = folder if is_given else write_docstrings_as_wikitext(folder)

# %% 15.8.4 Join two texts into one input sequence
tokens, segments = d2l.get_tokens_and_segments(["a", "crane", "flies"], ["he", "left"])
print(tokens, segments, sep="\n")

# %% 15.9 Sentence pairs, masking, padding
batch_size, max_len = 128, 64
train_iter, vocab = d2l.load_data_wiki(batch_size, max_len, data_dir)
print("Shapes of a batch:", *(tensor.shape for tensor in next(iter(train_iter))))
print("Vocabulary size:", len(vocab))

# %% 15.10.1 Train a small BERT for 100 steps
net = d2l.BERTModel(
    len(vocab), num_hiddens=128, ffn_num_hiddens=256, num_heads=2, num_blks=2, dropout=0.2
)
optimizer = keras.optimizers.Adam(1e-3)  # the book's 1e-4 is too low for 100 steps
d2l.train_bert(train_iter, net, len(vocab), d2l.try_all_gpus(), 100, optimizer=optimizer)

# %% 15.10.2 Encode the same word in two contexts
encoded_text = d2l.get_bert_encoding(net, ["a", "crane", "is", "flying"], vocab=vocab)
tokens_a, tokens_b = ["a", "crane", "driver", "came"], ["he", "just", "left"]
encoded_pair = d2l.get_bert_encoding(net, tokens_a, tokens_b, vocab=vocab)
print("Shapes:", encoded_text.shape, encoded_pair.shape)
print("crane, flying: ", encoded_text[0, 2, :3].numpy())
print("crane, driving:", encoded_pair[0, 2, :3].numpy())

# %% Evaluate the model with Keras, which the book's own class cannot do
loss = net.evaluate(train_iter.take(5).map(d2l.to_keras_batch), return_dict=True)
print("MLM loss on five batches, without dropout:", round(loss["mlm_cross_entropy"], 3))
