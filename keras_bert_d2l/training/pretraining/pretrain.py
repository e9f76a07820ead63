"""`pretrain`: train a BERT on a corpus or a token store, and write a run folder."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.surgery import with_config
from keras_bert_d2l.checks import check_that, checked_max_len
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.store.building import cached_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.devices import device
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.replaced_tokens import ReplacedTokenDetection
from keras_bert_d2l.progress import showing_stages, stage
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.text.corpus import IN_MEMORY, Corpus, are_documents
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab, vocab_file_in
from keras_bert_d2l.text.vocab_learning import learn_vocab
from keras_bert_d2l.training.devices import (
    check_batch_size,
    choose_precision,
    distributed,
    is_first,
    make_strategy,
    num_replicas,
    prepare_jax,
    seeded,
)
from keras_bert_d2l.training.loop import compile_for_run
from keras_bert_d2l.training.optimization.optimizers import make_schedule
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_PRESET,
    DEFAULT_VOCAB_SIZE,
    PretrainingOptions,
)
from keras_bert_d2l.training.pretraining.trainer import Trainer
from keras_bert_d2l.training.run.callbacks import Printer, Verbose
from keras_bert_d2l.training.run.run_folder import RunFolder, opened_run
from keras_bert_d2l.types import ConfigDict, Option, PathLike, Say


class PretrainingResult(NamedTuple):
    """Result of `pretrain`.

    Attributes:
        model: The trained model with its tokenizer, which is also in `last/`.
        tokenizer: `model.tokenizer`.
        metrics: The metrics of each evaluation, including the one before the first step, as in
            `metrics.jsonl`.
    """

    model: BERTModel
    tokenizer: Tokenizer
    metrics: list[dict[str, float]]


def pretrain(
    corpus: Corpus | TokenStore | PathLike | Sequence[PathLike] | Sequence[Sequence[str]] | None,
    run_dir: PathLike,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Option,
) -> PretrainingResult:
    """Train a BERT on masked-token and next-sentence prediction.

    The run folder contains `run.yaml` (the options), `config.json`, `vocab.txt`, the checkpoints
    `best/` and `last/` for `load_pretrained`, the page `report.html`, `metrics.jsonl` and
    `tensorboard/`. The model is evaluated on held-out documents before the first step and then
    every `evaluate_every` steps. Each evaluation saves a checkpoint.

    Ctrl-C, SIGTERM and SIGHUP save the run and stop it after the current step; a second Ctrl-C
    stops it immediately. A run whose loss is not finite stops as well, and keeps its checkpoints.
    With `resume`, an interrupted or killed run continues from `last/` and ends with exactly the
    weights of an uninterrupted run.

    Args:
        corpus: The text: a path, several paths, a glob, `"docstrings"`, or a list of documents,
            each a list of sentences. Or a token store or its folder, which determines the
            vocabulary. With `resume`, it may be `None`, except for documents in memory.
        run_dir: The run folder. It must be new or empty, unless
            `resume` is set.
        resume: Continue the run in `run_dir` with its own options, or start it if there is none
            yet. With the text and all options, the same call therefore works at any time.
        callbacks: Additional Keras callbacks for `fit`.
        verbose: 0 for no output. Otherwise, a line per evaluation, and the progress: a bar in a
            terminal, and elsewhere a line every 30 seconds.
        **options: The fields of `PretrainingOptions`. `vocab` may also be a `Vocab`, and
            `bert_config` a `BERTConfig`.

    Returns: the model, its tokenizer and the metrics.

    Raises:
        ValueError: An option is unknown, out of range or contradicts another option, there is not
            enough text, the options or the text differ from those of the run to resume, or its
            files are damaged.
        FileExistsError: `run_dir` is not empty, and `resume` is not set.
        FileNotFoundError: The text, the vocabulary, the checkpoint or the run is missing.
        FloatingPointError: The loss is not finite.
        BlockingIOError: Another process is using the run.
        OSError: The run folder cannot be written, or the disk is full.
        RuntimeError: The Keras backend does not support `strategy` or `devices`.
        TrainingInterrupted: Ctrl-C, SIGTERM or SIGHUP was received. It is a `KeyboardInterrupt`.

    Example:

    ```python
    import pathlib

    import keras_bert_d2l as kb

    for number in range(20):  # for real use, a few megabytes of text
        text = f"The cat sat on mat {number}. The dog ran. It began to rain. We went home. " * 5
        pathlib.Path(f"story{number}.txt").write_text(text)
    options = {"vocab_size": 60, "preset": "tiny", "batch_size": 8, "held_out": 0.2}
    result = kb.pretrain("story*.txt", "runs/stories", steps=5, **options)
    kb.fill_mask(result.model, "the [MASK] sat")
    ```
    """
    PretrainingOptions.check_known(options)
    run, say = RunFolder(run_dir), Printer(verbose if is_first() else 0)
    given = _with_store_options(_plain(corpus, options, run))
    objects = {k: v for k, v in options.items() if isinstance(v, Vocab | BERTConfig)}
    opened = opened_run(run, PretrainingOptions, given, resume=resume, say=say)
    with (
        opened as (run, settings, is_resumed),
        distributed(settings.devices),
        showing_stages(bool(verbose) and is_first()),
    ):
        prepare_jax()
        if is_resumed:
            _check_objects(run, settings, objects)
        trainer = _make_trainer(corpus, run, settings, say, is_resumed, objects)
        if is_resumed:
            trainer.restore()
        else:
            trainer.create()
        trainer.train(callbacks)
        return PretrainingResult(trainer.result, trainer.model.tokenizer, run.metrics())


def _make_trainer(
    corpus: object,
    run: RunFolder,
    settings: PretrainingOptions,
    say: Printer,
    is_resumed: bool,
    objects: Mapping[str, Any],
) -> Trainer:
    """Prepare the text and the model of a run, without writing to its folder."""
    strategy = make_strategy(settings.strategy)
    check_batch_size(settings.batch_size, num_replicas(strategy))
    text = corpus if isinstance(corpus, Corpus | TokenStore) else _open(corpus, settings)
    say(f"Text: {text.description}")
    if (path := run.last if is_resumed else settings.init) is None:
        start = from_scratch(settings, text, say=say, **objects)
    else:
        with seeded(settings.seed):  # all processes must create the same model
            start = from_checkpoint(settings, path, verbose=not (say.is_silent or is_resumed))
    store = _token_store(text, start.tokenizer, settings, say)
    if settings.jit is None:
        # XLA pays off on a GPU. JAX compiles the step in any case. With several devices, TensorFlow
        # sums gradients in a way that XLA cannot compile.
        fits = settings.rows != "bucketed" and settings.strategy is None
        is_gpu = keras.backend.backend() == "tensorflow" and device().platform == "gpu"
        settings = dataclasses.replace(settings, jit=fits and is_gpu)
    if settings.precision == "auto":
        num_tokens = settings.batch_size * settings.max_len
        precision = choose_precision(start.config, num_tokens, jit=bool(settings.jit))
        settings = dataclasses.replace(settings, precision=precision)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = compiled_model(start, settings)
    say(f"Model: {model.count_params():,} weights, {settings.precision}")
    return Trainer(run, settings, model, store, say, num_replicas(strategy))


class Start(NamedTuple):
    """Starting point of a pretraining run. Without `weights`, they are random."""

    tokenizer: Tokenizer
    config: BERTConfig
    weights: list[np.ndarray] | None


def from_checkpoint(options: PretrainingOptions, path: PathLike, *, verbose: bool = True) -> Start:
    """Load the tokenizer, the architecture and the weights of a checkpoint or a run.

    Raises:
        FileNotFoundError: The checkpoint does not exist.
        ValueError: The checkpoint is damaged or has no vocabulary, it allows fewer than `max_len`
            tokens, or `lora` would freeze a head that it lacks.
    """
    model, tokenizer, config = load_pretrained(path, verbose=verbose)
    check_kind(model, BERTModel)
    if tokenizer is None:
        raise ValueError(
            f"The checkpoint {os.fspath(path)!r} has no vocabulary, which is needed to tokenize "
            "the text. Add its file, such as vocab.txt or tokenizer.json, or save the checkpoint "
            "with its tokenizer."
        )
    trained = _adapted(config, options)
    lost = model.missing_heads | (set() if config.next_sentence else {"pooler", "nsp"})
    if not trained.next_sentence:
        lost -= {"pooler", "nsp"}
    if options.lora is not None and lost:
        raise ValueError(
            f"`lora` freezes the heads, but the checkpoint {os.fspath(path)!r} lacks {sorted(lost)}"
            ", which would stay random. Pretrain without `lora`, use objective='none' if only the "
            "next-sentence head is missing, or start from a checkpoint that has them."
        )
    if trained != config:
        with seeded(options.seed):  # for the heads that the checkpoint lacks
            model = with_config(model, trained)
    return Start(tokenizer, trained, model.get_weights())


def from_scratch(
    options: PretrainingOptions,
    text: Corpus | TokenStore,
    *,
    say: Say,
    vocab: Vocab | None = None,
    bert_config: BERTConfig | None = None,
) -> Start:
    """Return the tokenizer and the architecture that the options or the given objects describe.

    A vocabulary is learned from the text if none is given. A token store determines the remaining
    options of the tokenizer.

    Raises:
        FileNotFoundError: A file named in the options is missing.
        ValueError: A file is damaged, the architecture allows fewer than `max_len` tokens, or it
            lacks the head that the objective trains.
    """
    if options.bert_config is None:
        bert_config = BERTConfig.preset(options.preset or DEFAULT_PRESET)
    elif bert_config is None:
        file = pathlib.Path(options.bert_config)
        is_native = read_json_object(file).get("format") == native.FORMAT
        bert_config = native.read_config(file)[0] if is_native else BERTConfig.from_json(file)
    config = _adapted(bert_config, options)
    if vocab is None:
        vocab = _vocab(options, text, say)
    stored: TokenizerOptions = text.tokenizer_options if isinstance(text, TokenStore) else {}
    if options.lowercase is not None:
        stored = {**stored, "lowercase": options.lowercase}
    tokenizer = Tokenizer(vocab, **stored)
    pad_id = vocab.pad_id if config.pad_id or vocab.kind != "wordpiece" else 0
    first = pad_id + 1 if config.first_position_id else 0  # as in fairseq
    ids: ConfigDict = {"vocab_size": len(vocab), "pad_id": pad_id, "first_position_id": first}
    return Start(tokenizer, dataclasses.replace(config, **ids), None)


def compiled_model(start: Start, options: PretrainingOptions) -> BERTModel | ReplacedTokenDetection:
    """Create and compile the model to train, with its tokenizer attached."""
    with seeded(options.seed):
        bert = BERTModel.from_bert_config(start.config, dtype=options.precision)
        if start.weights is not None:
            bert.set_weights(start.weights)
        options.add_lora(bert)
        bert.tokenizer = start.tokenizer
        model: BERTModel | ReplacedTokenDetection = bert
        if options.objective == "rtd":
            sizes = options.generator_width, options.generator_embeddings
            model = ReplacedTokenDetection(bert, *sizes)
    compile_for_run(model, options, make_schedule(options, *options.schedule_steps))
    return model


def _vocab(options: PretrainingOptions, text: Corpus | TokenStore, say: Say) -> Vocab:
    if options.vocab is not None:
        return Vocab.from_file(options.vocab)
    if isinstance(text, TokenStore):
        return text.tokenizer().vocab
    size = options.vocab_size or DEFAULT_VOCAB_SIZE
    say(f"Vocabulary: learning {size:,} tokens from the text")
    vocab = learn_vocab(text, size, lowercase=bool(options.lowercase))
    reason = ", because the text has no more repeated pieces" if len(vocab) < size else ""
    say(f"Vocabulary: {len(vocab):,} tokens{reason}")
    return vocab


def _adapted(config: BERTConfig, options: PretrainingOptions) -> BERTConfig:
    """Return the architecture with the dropout rates and the heads that the options ask for."""
    checked_max_len(options.max_len, 1, config.max_len)
    if options.dropout is not None:
        config = config.with_dropout(options.dropout)
    if options.attention_dropout is not None:
        config = dataclasses.replace(config, attention_dropout=options.attention_dropout)
    objective = options.objective or ("nsp" if config.next_sentence else "none")
    config = dataclasses.replace(config, replaced_tokens=objective == "rtd")
    if objective == "rtd":  # as in ELECTRA, so that transformers can load the model
        config = dataclasses.replace(config, mlm_activation="gelu", pooler_activation="gelu")
    if objective in ("none", "rtd"):  # the pooler would get no gradient
        return dataclasses.replace(config, next_sentence=False, pooler=False)
    if config.next_sentence:
        return config
    if options.init is not None:
        return dataclasses.replace(config, next_sentence=True, pooler=True)
    raise ValueError(
        f"objective={options.objective!r} trains the next-sentence head. Received: an "
        "architecture with next_sentence=False; use objective='none' or another architecture."
    )


def _plain(corpus: object, options: Mapping[str, Any], run: RunFolder) -> dict[str, Any]:
    """Return the options for `run.yaml`, with objects replaced by the files that the run writes."""
    plain = {**options, "corpus": corpus}
    if isinstance(corpus, Corpus):
        plain |= {"corpus": corpus.source, "layout": corpus.layout}
    if are_documents(corpus):
        plain["corpus"] = IN_MEMORY
    if isinstance(corpus, TokenStore):
        plain["corpus"] = corpus.directory
    for name, value in plain.items():
        if isinstance(value, Vocab):
            plain[name] = os.fspath(run.path / value.file_name)
        elif isinstance(value, BERTConfig):
            plain[name] = os.fspath(run.config_file)
    return plain


def _check_objects(
    run: RunFolder, settings: PretrainingOptions, objects: Mapping[str, Any]
) -> None:
    """Raise `ValueError` if a given vocabulary or architecture differs from the run to resume."""
    config = BERTConfig.from_json(run.config_file)
    own = {"vocab": Vocab.from_file(vocab_file_in(run.path)), "bert_config": config}
    for name, given in objects.items():
        if name == "bert_config":  # as when the run was created, see `from_scratch`
            of_vocab = ("vocab_size", "pad_id", "first_position_id")
            ids: Any = {one: getattr(config, one) for one in of_vocab}
            given = dataclasses.replace(_adapted(given, settings), **ids)
        if given != own[name]:
            raise ValueError(
                f"The run {run.name!r} has {name}={own[name]!r} and resumes with its own. "
                f"Received: {name}={given!r}; omit it."
            )


def _with_store_options(given: dict[str, Any]) -> dict[str, Any]:
    """Add the vocabulary and the casing of the token store, if there is one, to the options.

    Raises:
        ValueError: An option contradicts the store.
    """
    corpus = given["corpus"]
    if not isinstance(corpus, str | os.PathLike) or not TokenStore.is_at(corpus):
        return given
    store = TokenStore.open(corpus)
    for name in ("vocab_size", "layout"):
        value = given.get(name)
        check_that(value in (None, "auto"), name, "omitted, because the store has its own", value)
    if given.get("init") is not None:
        return given
    lowercase = store.tokenizer_options.get("lowercase")
    own = {"vocab": vocab_file_in(store.directory), "lowercase": lowercase}
    return given | {name: value for name, value in own.items() if given.get(name) is None}


def _token_store(
    text: Corpus | TokenStore, tokenizer: Tokenizer, settings: PretrainingOptions, say: Say
) -> TokenStore:
    """Return the token store of the text, after building it if necessary."""
    if isinstance(text, TokenStore):
        store = text
        store.check_tokenizer(tokenizer)
    else:
        say("Tokenizing the text, or reading its tokens from the cache")
        store = cached_store(text, tokenizer, settings.cache_dir)
    with stage("Checking the token store"):
        store.verify()
    say(
        f"Tokens: {store.num_tokens:,} in {store.num_sentences:,} sentences of "
        f"{store.num_documents:,} documents, {settings.held_out:.0%} of them held out"
    )
    return store


def _open(corpus: object, settings: PretrainingOptions) -> Corpus | TokenStore:
    if are_documents(corpus):
        return Corpus.open(corpus, layout=settings.layout)
    if settings.corpus == IN_MEMORY:
        raise ValueError("The text of this run was in memory. Pass the same documents as `corpus`.")
    source = settings.corpus if isinstance(settings.corpus, str) else list(settings.corpus)
    if isinstance(source, str) and TokenStore.is_at(source):
        return TokenStore.open(source)
    return Corpus.open(source, layout=settings.layout)
