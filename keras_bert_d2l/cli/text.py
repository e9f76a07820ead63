"""Commands on text."""

import itertools
import pathlib
from collections.abc import Iterator
from typing import Annotated

import typer

from keras_bert_d2l.cli.options import LayoutOption, Texts, open_corpus
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.coverage import measure_coverage
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.learning import learn_vocab

_HELD_OUT, _ENOUGH = 20, 100  # every 20th document is not learned from, where there are 100


def make_vocab(
    texts: Texts,
    out: Annotated[
        pathlib.Path, typer.Option("--out", "-o", help="File to write, one token a line.")
    ] = pathlib.Path("vocab.txt"),
    size: Annotated[int, typer.Option(min=6, help="Tokens in the vocabulary.")] = 8000,
    cased: Annotated[
        bool, typer.Option("--cased", help="Keep capitals and accents.  [default: lowered]")
    ] = False,
    layout: LayoutOption = None,
) -> None:
    """Learns a WordPiece vocabulary from text. The same text gives the same file.

    Of 100 documents or more each 20th is not learned from: how well the vocabulary covers these
    is told at the end.

    Example: `keras-bert-d2l vocab my_text/ --size 8000 --out vocab.txt`
    """
    corpus = open_corpus(texts, layout)
    typer.echo(f"Learning {size:,} tokens from {corpus.description}")
    is_enough = sum(1 for _ in itertools.islice(corpus, _ENOUGH)) == _ENOUGH
    learned = _part(corpus, held_out=False) if is_enough else corpus
    vocab = learn_vocab(learned, size, lowercase=not cased)
    vocab.to_file(out)
    typer.echo(f"{len(vocab):,} tokens in {out}")
    measured = _part(corpus, held_out=True) if is_enough else corpus
    coverage = measure_coverage(measured, Tokenizer(vocab, lowercase=not cased))
    name = "Documents that were not learned from" if is_enough else "The text learned from"
    typer.echo(f"{name}: {coverage}")


def _part(corpus: Corpus, *, held_out: bool) -> Iterator[list[str]]:
    for number, document in enumerate(corpus, 1):
        if (number % _HELD_OUT == 0) == held_out:
            yield document
