"""Pretraining: a corpus or a token store in, the folder of a run with a trained model out."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import keras

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.store.building import cached_store
from keras_bert_d2l.data.store.manifest import VOCAB
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.training.pretraining.options import PretrainingArguments, PretrainingOptions
from keras_bert_d2l.training.pretraining.run_folder import RunFolder
from keras_bert_d2l.training.pretraining.start import compiled_model, from_checkpoint, from_scratch
from keras_bert_d2l.training.pretraining.trainer import Trainer
from keras_bert_d2l.training.strategies import check_batch_size, make_strategy, scope_of
from keras_bert_d2l.training.verbosity import Verbose, printer, verbosity


class PretrainingResult(NamedTuple):
    """What `pretrain` returns.

    Attributes:
        model: The trained model, as `last/` holds it.
        tokenizer: Its tokenizer.
        metrics: The figures of each evaluation, the one before the first step included; the lines
            of `metrics.jsonl`.
    """

    model: BERTModel
    tokenizer: Tokenizer
    metrics: list[dict[str, Any]]


def pretrain(
    corpus: Any,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Unpack[PretrainingArguments],
) -> PretrainingResult:
    """Trains a BERT on the masked tokens and next sentences of a text.

    The run folder gets `run.yaml` (the options), `config.json`, `vocab.txt`, the checkpoints
    `best/` and `last/`, which `load_pretrained` reads, `metrics.jsonl` and `tensorboard/`. The
    model is evaluated on held-out documents before the first step and then every `evaluate_every`
    steps, which Keras shows as an epoch; a checkpoint follows each time.

    Ctrl-C ends the run after the present step and saves it; a second Ctrl-C ends it at once. With
    `resume` a run that was stopped or killed goes on from `last/`, and ends with the weights that
    it would have had undisturbed.

    Args:
        corpus: The text: a path, several, a glob, or `"docstrings"`; or a token store, or the
            folder of one, with the vocabulary that it was made with. With `resume` it may be
            `None`.
        run_dir: The folder of the run, new or empty; with `resume` that of the run.
        resume: Whether to go on with the run in `run_dir`, with the options that it has.
        callbacks: Further Keras callbacks for `fit`.
        verbose: As in `keras.Model.fit`: `"auto"`, 0 (silent), 1 (progress bar) or 2 (a line for
            each evaluation).
        **options: The fields of `PretrainingOptions`. `vocab` may also be a `Vocab`, and
            `bert_config` a `BERTConfig`.

    Returns: the model, its tokenizer and the figures.

    Raises:
        ValueError: An option is unknown, out of its range or contradicts another one, the text
            does not suffice, or `resume` finds other options or a changed text.
        FileExistsError: `run_dir` holds anything, but `resume` is not set.
        FileNotFoundError: The text, the vocabulary, the checkpoint or the run is missing.
        OSError: The run folder cannot be written, or the disk is full.
        RuntimeError: The devices of `strategy` do not exist.
        TrainingInterrupted: A `KeyboardInterrupt`, after Ctrl-C.

    Example:

    ```python
    result = pretrain("books/*.txt", "runs/books", vocab_size=8000, preset="mini", steps=5000)
    fill_mask(result.model, result.tokenizer, "paris is the [MASK] of france")
    ```
    """
    PretrainingOptions.check_known(options)
    run, say = RunFolder(run_dir), printer(verbose)
    given = _plain(corpus, dict(options), run)
    objects: dict[str, Any] = {
        k: v for k, v in options.items() if isinstance(v, Vocab | BERTConfig)
    }
    if resume:
        settings = run.open()
        _check_same(settings, given, objects, run)
    else:
        run.check_new()
        settings = PretrainingOptions.from_dict(_with_those_of_store(given))
    strategy = make_strategy(settings.strategy, settings.tpu)
    check_batch_size(settings.batch_size, strategy)
    text = corpus if isinstance(corpus, Corpus | TokenStore) else _open(settings)
    say(f"Text: {text.description}")
    checkpoint = run.last if resume else settings.init
    if checkpoint is None:
        start = from_scratch(settings, text, say=say, **objects)
    else:
        start = from_checkpoint(settings, checkpoint, verbose=bool(verbose) and not resume)
    if isinstance(text, TokenStore):
        store = text
        store.check_tokenizer(start.tokenizer)
    else:
        say("Tokenising, unless the tokens are in the cache")
        store = cached_store(text, start.tokenizer, settings.cache_dir)
    say(
        f"Tokens: {store.num_tokens:,} in {store.num_sentences:,} sentences of "
        f"{store.num_documents:,} documents, {settings.held_out:.0%} of them held out"
    )
    with scope_of(strategy):
        model = compiled_model(start, settings)
    say(f"Model: {model.count_params():,} weights, {settings.precision}")
    trainer = Trainer(run, settings, model, start.tokenizer, store, say)
    if resume:
        trainer.restore()
    else:
        trainer.create()
    trainer.train(callbacks, verbosity(verbose))
    return PretrainingResult(model, start.tokenizer, run.metrics())


def _plain(corpus: Any, options: dict[str, Any], run: RunFolder) -> dict[str, Any]:
    """The options as `run.yaml` keeps them: for an object the file that the run writes it to."""
    plain = {**options, "corpus": corpus}
    if isinstance(corpus, Corpus):
        plain |= {"corpus": corpus.source, "layout": corpus.layout}
    if isinstance(corpus, TokenStore):
        plain["corpus"] = corpus.directory
    files = {Vocab: run.vocab_file, BERTConfig: run.config_file}
    return {name: files.get(type(value), value) for name, value in plain.items()}


def _check_same(
    settings: PretrainingOptions, given: dict[str, Any], objects: dict[str, Any], run: RunFolder
) -> None:
    """Raises `ValueError` for an option that is not the one of the run to be resumed."""
    given = {name: value for name, value in given.items() if value is not None}
    different = {
        k: v for k, v in given.items() if settings.normal_form(k, v) != getattr(settings, k)
    }
    vocab, config = objects.get("vocab"), objects.get("bert_config")
    if vocab is not None and vocab != Vocab.from_file(run.vocab_file):
        different["vocab"] = vocab
    if config is not None:
        own = BERTConfig.from_json(run.config_file)
        if dataclasses.replace(config, vocab_size=own.vocab_size) != own:
            different["bert_config"] = config
    if different:
        name, value = next(iter(different.items()))
        raise ValueError(
            f"The run {os.fspath(run.path)!r} has {name}={getattr(settings, name)!r} and goes on "
            f"with its own options. Received: {name}={value!r}; leave it out, or begin a new run "
            "in another folder."
        )


def _with_those_of_store(given: dict[str, Any]) -> dict[str, Any]:
    """The options, with the vocabulary and the case of the token store that is the corpus, if any.

    Raises:
        ValueError: An option says what the store has decided already.
    """
    corpus = given["corpus"]
    if not isinstance(corpus, str | os.PathLike) or not TokenStore.is_at(corpus):
        return given
    store = TokenStore.open(corpus)
    for name, default in (("vocab_size", None), ("layout", "auto")):
        value = given.get(name)
        if value not in (None, default):
            raise ValueError(
                f"The token store {os.fspath(corpus)!r} was made with a vocabulary and a layout. "
                f"Received: {name}={value!r} beside it; leave it out, or name the text instead."
            )
    if given.get("init") is not None:
        return given
    own = {
        "vocab": store.directory / VOCAB,
        "lowercase": store.tokenizer_options["lowercase"],
    }
    return given | {name: value for name, value in own.items() if given.get(name) is None}


def _open(settings: PretrainingOptions) -> Corpus | TokenStore:
    if isinstance(settings.corpus, str):
        if TokenStore.is_at(settings.corpus):
            return TokenStore.open(settings.corpus)
        return Corpus.open(settings.corpus, layout=settings.layout)
    for source in settings.corpus:
        if TokenStore.is_at(source):
            raise ValueError(
                f"A token store is the whole text of a run. Received: {source!r} and "
                f"{len(settings.corpus) - 1} more; name it alone, or the text it was made from."
            )
    return Corpus.open(list(settings.corpus), layout=settings.layout)
