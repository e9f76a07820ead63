"""Amount of padding for each row layout on a corpus.

Compares three kinds of examples at three lengths: the book's (two consecutive sentences, dropped
if too long), Google's (sentences collected until they fill a row), and Google's with a tenth of
them shortened. `saved` is the factor by which a model processes fewer tokens than with padded
rows. Prints one JSON line for each.
"""

import argparse
import json
import tempfile

import numpy as np

from keras_bert_d2l.data.buckets import bucket
from keras_bert_d2l.data.pretraining.packing import ROWS, Rows, bucket_lengths, pack
from keras_bert_d2l.data.pretraining.pairs import NUM_SPECIALS, ExampleOptions, make_examples
from keras_bert_d2l.data.store.building import cached_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

LENGTHS = (64, 128, 512)
SHORT = {"google": 0.0, "google, 10 % short": 0.1}


def book_lengths(store: TokenStore, max_len: int) -> np.ndarray:
    """Return the lengths of all pairs of consecutive sentences, as in the book."""
    sentences = np.diff(store.sentence_offsets)
    pairs = sentences[:-1] + sentences[1:] + NUM_SPECIALS
    pairs = np.delete(pairs, store.document_offsets[1:-1] - 1)  # pairs across documents
    return pairs[pairs <= max_len]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="a file or a folder of text")
    parser.add_argument("--vocab", required=True, help="a vocab.txt")
    parser.add_argument("--layout", default="auto", help="layout of the text; see Corpus.open")
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus, layout=arguments.layout)
    tokenizer = Tokenizer(Vocab.from_file(arguments.vocab))
    with tempfile.TemporaryDirectory() as folder:
        store = cached_store(corpus, tokenizer, folder)
        for max_len in LENGTHS:
            examples = {"book": book_lengths(store, max_len)}
            for name, short_seq_prob in SHORT.items():
                settings = ExampleOptions(max_len=max_len, short_seq_prob=short_seq_prob)
                examples[name] = make_examples(store, settings, epoch=0).lengths()
            for name, lengths in examples.items():
                report(name, lengths, max_len, arguments.batch_size)


def padding_share(
    lengths: np.ndarray,
    *,
    rows: Rows,
    max_len: int,
    batch_size: int,
) -> float:
    """Return the share of padding in the rows of shuffled examples.

    Args:
        lengths: int `(N,)`, tokens per example, at most `max_len`.
        rows: `"padded"`, `"packed"` or `"bucketed"`.
        max_len: Tokens per row.
        batch_size: Rows per batch, at most N. Examples that do not fill a batch are skipped.
    """
    random = np.random.default_rng(0)
    lengths = random.permutation(lengths)
    if rows == "packed":
        most = max(8, max_len // 16)
        _, splits = pack(lengths, max_len=max_len, max_examples=most, random=random)
        return float(1 - lengths.sum() / (max_len * (len(splits) - 1)))
    lengths = lengths[: len(lengths) // batch_size * batch_size]
    if rows == "bucketed":
        lengths = lengths[bucket(lengths, batch_size=batch_size, random=random)]
        sizes = bucket_lengths(lengths, batch_size=batch_size, max_len=max_len)
        return float(1 - lengths.sum() / (batch_size * sizes.sum()))
    return float(1 - lengths.mean() / max_len)


def report(name: str, lengths: np.ndarray, max_len: int, batch_size: int) -> None:
    shares = {
        rows: padding_share(lengths, rows=rows, max_len=max_len, batch_size=batch_size)
        for rows in ROWS
    }
    for rows, share in shares.items():
        line = {
            "examples": name,
            "max_len": max_len,
            "count": len(lengths),
            "rows": rows,
            "padding": round(float(share), 4),
            "saved": round(float((1 - share) / (1 - shares["padded"])), 3),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
