"""`keras-bert-d2l prepare`."""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import (
    Corpus,
    Flag,
    OutFolder,
    PositiveInt,
    one_or_many,
    takes_options,
)
from keras_bert_d2l.files import url
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import Layout, PretrainingOptions

if TYPE_CHECKING:
    from keras_bert_d2l.data.store.token_store import TokenStore


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
    print(f"{'Already complete' if was_there else 'Written'}: {_summary(store, out)}")


def _summary(store: "TokenStore", out: Path) -> str:
    return (
        f"{store.num_tokens:,} tokens in {store.num_sentences:,} sentences of "
        f"{store.num_documents:,} documents, in {url(out) or out}"
        f"{f'. Discarded duplicates: {store.num_duplicates:,}' if store.num_duplicates else ''}"
    )
