"""`keras-bert-d2l vocab`."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Corpus, Out, one_or_many, takes_options
from keras_bert_d2l.cli.input_output import check_output
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_VOCAB_SIZE,
    Layout,
    PretrainingOptions,
)

_HELD_OUT, _ENOUGH = 20, 100  # every 20th of at least 100 documents is held out


@takes_options(PretrainingOptions, {"Text": "vocab_size lowercase layout"})
def vocab(
    texts: Corpus,
    /,
    *,
    out: Out = Path("vocab.txt"),
    vocab_size: int = DEFAULT_VOCAB_SIZE,
    lowercase: bool = True,
    layout: Layout = "auto",
) -> None:
    """Learn a WordPiece vocabulary from text. The same text always produces the same file.

    With at least 100 documents, every 20th is held out to measure the coverage of the vocabulary.

    For example: `keras-bert-d2l vocab my_text/ --vocab-size 8000 --out vocab.txt`

    Args:
        out: Output file, with one token per line.
    """
    corpus = kb.Corpus.open(one_or_many(texts), layout=layout)
    check_output("out", out, inputs=corpus.files)
    print(f"Learning {vocab_size:,} tokens from {corpus.description}", flush=True)
    is_enough = sum(1 for _ in itertools.islice(corpus, _ENOUGH)) == _ENOUGH
    learned = _part(corpus, held_out=False) if is_enough else corpus
    found = kb.learn_vocab(learned, vocab_size, lowercase=lowercase)
    found.to_file(out)
    reason = ", because the text has no more repeated pieces" if len(found) < vocab_size else ""
    print(f"{len(found):,} tokens in {out}{reason}")
    measured = _part(corpus, held_out=True) if is_enough else corpus
    with stage("Measuring its coverage"):
        coverage = kb.measure_coverage(measured, kb.Tokenizer(found, lowercase=lowercase))
    print(f"{'Held-out documents' if is_enough else 'Training text'}: {coverage}")


def _part(corpus: "kb.Corpus", *, held_out: bool) -> Iterator[list[str]]:
    for number, document in enumerate(corpus, 1):
        if (number % _HELD_OUT == 0) == held_out:
            yield document
