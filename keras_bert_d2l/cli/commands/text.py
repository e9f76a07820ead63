"""Commands for raw text: vocabulary and token store."""

from pathlib import Path
from typing import Literal

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import (
    Corpus,
    Flag,
    Out,
    OutFolder,
    PositiveInt,
    one_or_many,
    takes_options,
)
from keras_bert_d2l.cli.input_output import check_output
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_VOCAB_SIZE,
    Layout,
    PretrainingOptions,
)


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
    """Learn a WordPiece vocabulary from text.

    The same text always produces the same file. `report` shows how well the vocabulary fits a token
    store.

    For example: `keras-bert-d2l vocab my_text/ --vocab-size 8000 --out vocab.txt`

    Args:
        out: Output file, with one token per line.
    """
    corpus = kb.Corpus.open(one_or_many(texts), layout=layout)
    check_output("out", out, inputs=corpus.files)
    print(f"Learning {vocab_size:,} tokens from {corpus.description}", flush=True)
    found = kb.learn_vocab(corpus, vocab_size, lowercase=lowercase)
    found.to_file(out)
    reason = ", because the text has no more repeated pieces" if len(found) < vocab_size else ""
    print(f"{len(found):,} tokens in {out}{reason}")


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
) -> None:
    """Tokenize text once into a token store for `pretrain`.

    If the command is stopped, run it again to resume. If the store is complete, it is verified.

    For example:

    - `keras-bert-d2l prepare books/ --vocab vocab.txt --out stores/books --workers 8`
    - `keras-bert-d2l pretrain stores/books --run-dir runs/books`

    Args:
        vocab: Vocabulary file (`vocab.txt` or `tokenizer.json`).
        compat: Reference tokenizer whose token ids to reproduce.
        workers: Number of processes; use at most one per CPU core.
        deduplicate: Discard copies of documents.
    """
    corpus = kb.Corpus.open(one_or_many(texts), layout=layout)
    tokenizer = kb.Tokenizer(kb.Vocab.from_file(vocab), lowercase=lowercase, compat=compat)
    was_there = kb.TokenStore.is_at(out)
    with stage("Tokenizing"):
        store = kb.build_store(corpus, tokenizer, out, deduplicate=deduplicate, workers=workers)
    with stage("Checking the token store"):
        store.verify()
    copies = f". Discarded duplicates: {store.num_duplicates:,}" if store.num_duplicates else ""
    print(
        f"{'Already complete' if was_there else 'Written'}: {store.num_tokens:,} tokens in "
        f"{store.num_sentences:,} sentences of {store.num_documents:,} documents, in "
        f"{out}{copies}"
    )
