"""Commands from raw text to a pretrained model: `quickstart`, `vocab`, `prepare`, `pretrain`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l import quickstart as demo
from keras_bert_d2l.cli.arguments import (
    Config,
    Corpus,
    Flag,
    OptionalOut,
    Out,
    OutFolder,
    PositiveInt,
    Resume,
    RunDir,
    panel,
    run_folder,
    takes_options,
)
from keras_bert_d2l.cli.input_output import check_output
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_VOCAB_SIZE,
    EXCLUSIVE,
    RECIPES,
    Layout,
    PretrainingOptions,
    VocabKind,
)
from keras_bert_d2l.types import Option

_TOKENS_AT_ONCE = 1 << 22  # whose occurrences are counted


def quickstart(
    *,
    steps: PositiveInt = demo.DEFAULT_STEPS,
    run_dir: Path = demo.RUNS,
    out: Out = demo.SAVED_MODELS,
) -> None:
    """Run the whole workflow in minutes, from text to SavedModel.

    Learns a vocabulary from the docstrings of the installed tensorflow, keras and numpy, pretrains
    a small BERT on them and exports it as a SavedModel, which then predicts two masked words.
    Nothing is downloaded. The answers are the same on all machines, up to rounding, with the same
    versions of these packages.

    Args:
        steps: Number of training steps.
        run_dir: Folder for the vocabulary and the numbered runs.
        out: Folder for the numbered versions of the exported model.
    """
    print("Importing TensorFlow", flush=True)
    demo.run(steps=steps, run_dir=run_dir, out=out)


@takes_options(PretrainingOptions, {"Text": "vocab_size layout"})
def vocab(
    texts: Corpus,
    /,
    *,
    out: OptionalOut = None,
    kind: VocabKind = "wordpiece",
    vocab_size: int = DEFAULT_VOCAB_SIZE,
    lowercase: Annotated[bool | None, Parameter(negative="--cased", group=panel("Text"))] = None,
    layout: Layout = "auto",
) -> None:
    """Learn a vocabulary from text.

    The same text always produces the same file.

    For example:

    - `keras-bert-d2l vocab my_text/ --vocab-size 8000 --out vocab.txt`
    - `keras-bert-d2l vocab my_text/ --kind bpe --out tokenizer.json`
    - `keras-bert-d2l pretrain my_text/ --vocab tokenizer.json --run-dir runs/bpe`

    Args:
        out: Output file. [default: vocab.txt, or tokenizer.json for bpe and unigram]
        kind: WordPiece, as in BERT; byte-level BPE, as in RoBERTa and ModernBERT; or Unigram, as in
            XLM-R and ALBERT. The last two need the extra `vocab`.
        lowercase: Lowercase the text and strip accents, or keep case and accents. [default:
            lowercase for wordpiece, cased for bpe and unigram]
    """
    corpus = kb.Corpus.open(texts, layout=layout)
    out = out or Path("vocab.txt" if kind == "wordpiece" else "tokenizer.json")
    suffixes = () if kind == "wordpiece" else (".json",)
    check_output("out", out, inputs=corpus.files, suffixes=suffixes)
    print(f"Learning {vocab_size:,} tokens from {corpus.description}", flush=True)
    found = kb.learn_vocab(corpus, vocab_size, lowercase=lowercase, kind=kind)
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
    corpus = kb.Corpus.open(texts, layout=layout)
    tokenizer = kb.Tokenizer(kb.Vocab.from_file(vocab), lowercase=lowercase, compat=compat)
    was_there = kb.TokenStore.is_at(out)
    with stage("Tokenizing"):
        store = kb.build_store(corpus, tokenizer, out, deduplicate=deduplicate, workers=workers)
    with stage("Checking the token store"):
        store.verify()
    unknown = _share(store, tokenizer.vocab.unk_id)
    copies = f". Discarded duplicates: {store.num_duplicates:,}" if store.num_duplicates else ""
    print(
        f"{'Already complete' if was_there else 'Written'}: {store.num_tokens:,} tokens in "
        f"{store.num_sentences:,} sentences of {store.num_documents:,} documents "
        f"({unknown:.2%} unknown words), in {out}{copies}"
    )


def _share(store: "kb.TokenStore", token: int) -> float:
    """Return the share of a token in a store, of which a part is in memory at a time."""
    starts = range(0, store.num_tokens, _TOKENS_AT_ONCE)
    counts = ((store.tokens[n : n + _TOKENS_AT_ONCE] == token).sum() for n in starts)
    return int(sum(counts)) / store.num_tokens


@takes_options(
    PretrainingOptions,
    {
        "Text": "vocab vocab_size lowercase layout cache_dir",
        "Model": "preset bert_config init dropout attention_dropout",
        "Examples": "objective generator_width generator_embeddings masking mask_rate "
        "final_mask_rate mask_replace_prob rows short_seq_prob",
        "Training": "recipe steps minutes batch_size micro_batches remat max_len short_steps "
        "short_len causal_steps optimizer learning_rate schedule warmup_steps "
        "decay_steps weight_decay seed held_out evaluate_every",
        "Trainable weights": "lora lora_alpha lora_layers",
        "Devices": "precision jit strategy devices",
    },
)
def pretrain(
    *texts: Annotated[str, Parameter(name="TEXT")],
    run_dir: RunDir = None,
    resume: Resume = None,
    config: Config = None,
    **options: Option,
) -> None:
    """Pretrain a BERT on masked tokens and next sentences.

    The run folder contains `run.yaml` (the options), `config.json`, `vocab.txt`, the checkpoints
    `best/` and `last/`, `report.html` (curves and predictions, to open in a browser),
    `metrics.jsonl` and TensorBoard logs. Ctrl-C saves the run and prints the command that resumes
    it.

    For example:

    - `keras-bert-d2l pretrain my_text/ --run-dir runs/mine --steps 20000`
    - `keras-bert-d2l pretrain my_text/ --run-dir runs/hour --minutes 60 --short-steps 0.5`
    - `keras-bert-d2l pretrain my_store/ --run-dir runs/mine --masking whole_word`
    - `keras-bert-d2l pretrain "news/*.txt.gz" --run-dir runs/news --init runs/mine`
    - `keras-bert-d2l pretrain --config runs/mine/run.yaml --run-dir runs/again --seed 1`
    - `keras-bert-d2l pretrain --resume runs/mine`

    Args:
        texts: Text files, folders or globs (also .gz, .xz), or the word "docstrings"; or a token
            store from `prepare`.
    """
    given: dict[str, Any] = {"corpus": None}
    if config is not None:
        given |= PretrainingOptions.read_yaml(config)
        # A recipe takes precedence over the file, and so does an option over those it excludes.
        given |= RECIPES.get(options.get("recipe"), {})
        for names in EXCLUSIVE:
            if not options.keys().isdisjoint(names):
                for name in set(names) - options.keys() - {"init"}:
                    given.pop(name, None)
    if texts:
        given["corpus"] = texts[0] if len(texts) == 1 else list(texts)
    given |= options
    from keras_bert_d2l.training.devices import join

    join()
    kb.pretrain(run_dir=run_folder(run_dir, resume), resume=resume is not None, **given)
