"""Commands for raw text: vocabulary, token store and data report."""

import functools
import itertools
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import (
    Corpus,
    Flag,
    OptionalOut,
    Out,
    OutFolder,
    PositiveInt,
    one_or_many,
    takes_options,
)
from keras_bert_d2l.cli.input_output import check_output
from keras_bert_d2l.files import url
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_VOCAB_SIZE,
    Layout,
    PretrainingOptions,
)

if TYPE_CHECKING:
    from rich.text import Text

    from keras_bert_d2l.data.report.measures import Word
    from keras_bert_d2l.data.store.token_store import TokenStore

_HELD_OUT, _ENOUGH = 20, 100  # every 20th of at least 100 documents is held out
_SHOWN = 3  # number of examples shown
_STYLES = {
    "special": "dim",
    "masked": "bold white on red",
    "replaced": "bold black on yellow",
    "kept": "bold black on green",
}


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


@takes_options(PretrainingOptions, {"Text": "lowercase layout"})
def prepare(
    texts: Corpus,
    /,
    *,
    out: OutFolder,
    vocab: Path,
    lowercase: bool = True,
    layout: Layout = "auto",
    compat: Literal["google", "huggingface"] = "google",
    workers: PositiveInt = 1,
    deduplicate: Flag = False,
    beam: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
) -> None:
    """Tokenize text once into a token store, for fast random access by `pretrain`.

    If the command is stopped, run it again to resume. If the store is complete, it is verified.

    For example:

    - `keras-bert-d2l prepare books/ --vocab vocab.txt --out stores/books --workers 8`
    - `keras-bert-d2l pretrain stores/books --run-dir runs/books`

    Args:
        vocab: Vocabulary file (`vocab.txt`).
        compat: Reference tokenizer whose token ids to reproduce.
        workers: Number of processes; use at most one per CPU core.
        deduplicate: Discard copies of documents.
        beam: Tokenize on many machines with Apache Beam. The value contains the runner options,
            such as "--runner=FlinkRunner --flink_master=host:8081". Requires
            `keras-bert-d2l[beam]`, and all workers need access to the text and the output folder.
    """
    if beam is not None and workers > 1:
        raise ValueError(
            "With --beam, set the number of workers in the runner options, for example "
            "--direct_num_workers. "
            f"Received: --workers {workers}; remove it."
        )
    corpus = kb.Corpus.open(one_or_many(texts), layout=layout)
    tokenizer = kb.Tokenizer(kb.Vocab.from_file(vocab), lowercase=lowercase, compat=compat)
    was_there = kb.TokenStore.is_at(out)
    build: Callable[..., TokenStore] = functools.partial(kb.build_store, workers=workers)
    if beam is not None:
        build = functools.partial(kb.build_store_with_beam, pipeline_options=shlex.split(beam))
    with stage("Tokenizing"):
        store = build(corpus, tokenizer, out, deduplicate=deduplicate)
    with stage("Checking the token store"):
        store.verify()
    print(f"{'Already complete' if was_there else 'Written'}: {_store_summary(store, out)}")


def _store_summary(store: "TokenStore", out: Path) -> str:
    return (
        f"{store.num_tokens:,} tokens in {store.num_sentences:,} sentences of "
        f"{store.num_documents:,} documents, in {url(out) or out}"
        f"{f'. Discarded duplicates: {store.num_duplicates:,}' if store.num_duplicates else ''}"
    )


@takes_options(PretrainingOptions, {"Examples": "max_len masking objective short_seq_prob seed"})
def data_report(
    store: Path,
    /,
    *,
    out: OptionalOut = None,
    **examples: Any,
) -> None:
    """Preview tokenized text as the model sees it: lengths, padding, masks and unknown words.

    For example:
    `keras-bert-d2l data-report stores/books --out report.html --masking whole_word`

    Args:
        store: Token store folder, as written by `prepare`.
        out: Also write the report to this HTML file.
    """
    check_output("out", out, suffixes=[".html"])
    from rich.console import Console
    from rich.text import Text

    from keras_bert_d2l.data.report.report import report_page
    from keras_bert_d2l.data.tasks.peek import grouped_table
    from keras_bert_d2l.files import write_text

    opened = kb.TokenStore.open(store)
    with stage("Reading the token store"):
        found = kb.data_report(opened, opened.tokenizer(), **examples)
    if out is not None:
        write_text(out, report_page(found))
    console = Console()
    console.print(grouped_table(str(found.store.directory), found.groups().items()))
    console.print(_legend(), "")
    for example in found.examples[:_SHOWN]:
        console.print(Text.assemble(*map(_styled, example.words)), "")
    if out is not None:
        print(f"Full report: {out}")


def _legend() -> "Text":
    from rich.text import Text

    masked, replaced, kept = ((kind, _STYLES[kind]) for kind in ("masked", "replaced", "kept"))
    return Text.assemble(
        "Examples. A token to predict is followed by the original in parentheses. It is ",
        *(masked, ", ", replaced, " by a random token, or ", kept, "."),
    )


def _styled(word: "Word") -> "Text":
    from rich.text import Text

    space = " " if word.starts_word else ""
    text = word.seen if word.kind in ("text", "special") else f"{word.seen}({word.original})"
    return Text.assemble(space, (text, _STYLES.get(word.kind, "")))
