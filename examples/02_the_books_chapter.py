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
import tempfile

import keras
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l import book as d2l


def write_docstrings_as_wikitext(folder: pathlib.Path, num_paragraphs: int = 500) -> None:
    """Write docstrings in WikiText format: one paragraph per line, spaces around punctuation."""
    print("Reading docstrings ...", flush=True)
    with open(folder / "wiki.train.tokens", "w", encoding="utf-8") as file:
        for document in itertools.islice(kb.Corpus.open("docstrings"), num_paragraphs):
            words = [re.findall(r"\w+|[^\w\s]", sentence.rstrip(".")) for sentence in document]
            file.write(" . ".join(" ".join(sentence) for sentence in words) + " .\n")


def main(data_dir: pathlib.Path) -> None:
    # 15.8.4: join two texts into one input sequence
    tokens, segments = d2l.get_tokens_and_segments(["a", "crane", "flies"], ["he", "left"])
    print(tokens, segments, sep="\n")

    # 15.9: sentence pairs, masking, padding
    batch_size, max_len = 128, 64
    train_iter, vocab = d2l.load_data_wiki(batch_size, max_len, data_dir)
    print("Shapes of a batch:", *(tensor.shape for tensor in next(iter(train_iter))))
    print("Vocabulary size:", len(vocab))

    # 15.10.1: train a small BERT for 100 steps
    net = d2l.BERTModel(
        len(vocab), num_hiddens=128, ffn_num_hiddens=256, num_heads=2, num_blks=2, dropout=0.2
    )
    optimizer = keras.optimizers.Adam(1e-3)  # the book's 1e-4 is too low for 100 steps
    d2l.train_bert(train_iter, net, len(vocab), d2l.try_all_gpus(), 100, optimizer=optimizer)

    # 15.10.2: encode the same word in two contexts
    encoded_text = d2l.get_bert_encoding(net, ["a", "crane", "is", "flying"], vocab=vocab)
    tokens_a, tokens_b = ["a", "crane", "driver", "came"], ["he", "just", "left"]
    encoded_pair = d2l.get_bert_encoding(net, tokens_a, tokens_b, vocab=vocab)
    print("Shapes:", encoded_text.shape, encoded_pair.shape)
    print("crane, flying: ", encoded_text[0, 2, :3].numpy())
    print("crane, driving:", encoded_pair[0, 2, :3].numpy())

    # Unlike the book's model, this one can be trained, evaluated and saved with Keras.
    loss = net.evaluate(train_iter.take(5).map(d2l.to_keras_batch), return_dict=True)
    print("MLM loss on five batches, without dropout:", round(loss["mlm_cross_entropy"], 3))


if __name__ == "__main__":
    tf.get_logger().setLevel("ERROR")
    if len(sys.argv) > 1:
        main(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            write_docstrings_as_wikitext(pathlib.Path(temporary))
            main(pathlib.Path(temporary))
