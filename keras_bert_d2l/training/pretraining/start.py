"""What a run begins with: options or a checkpoint in, a tokenizer, an architecture, weights out."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_bert_d2l.checkpoints.checks import check_bert
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.weights.transfer import named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer, TokenizerOptions
from keras_bert_d2l.text.vocab.learning import learn_vocab
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_PRESET,
    DEFAULT_VOCAB_SIZE,
    PretrainingOptions,
)
from keras_bert_d2l.training.pretraining.run_folder import checkpoint_folder
from keras_bert_d2l.training.seeding import seeded


class Start(NamedTuple):
    """What a run begins with.

    Attributes:
        tokenizer: Makes the token ids.
        config: The architecture.
        weights: Those to go on from, as `Model.set_weights` takes them; `None`: new ones.
    """

    tokenizer: Tokenizer
    config: BERTConfig
    weights: list[Any] | None


def from_checkpoint(
    options: PretrainingOptions, path: str | os.PathLike[str], *, verbose: bool = True
) -> Start:
    """Returns the tokenizer, the architecture and the weights of a checkpoint or a run.

    Args:
        options: The options.
        path: The checkpoint, in any format, or the run.
        verbose: Whether to print what was found; missing heads are always told.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: It is damaged or has no vocabulary, `max_len` is too long for it, or it has not
            the head that the objective needs.
    """
    folder = checkpoint_folder(path)
    model, tokenizer, config = load_pretrained(folder, verbose=verbose)
    check_bert(model)
    if tokenizer is None:
        raise ValueError(
            f"The checkpoint {os.fspath(folder)!r} has no vocabulary, without which no text can be "
            "read: save it with `save_pretrained(model, path, tokenizer)`."
        )
    _check_length(options, config)
    trained = _for_objective(options, config)
    if trained != config:
        model = _part_of(model, trained)
    return Start(tokenizer, trained, model.get_weights())


def from_scratch(
    options: PretrainingOptions,
    text: Corpus | TokenStore,
    *,
    say: Callable[[str], None],
    vocab: Vocab | None = None,
    bert_config: BERTConfig | None = None,
) -> Start:
    """Returns the tokenizer and the architecture that the options describe.

    Args:
        options: The options.
        text: A corpus to learn a vocabulary from, where none is given; or a token store, whose
            further options the tokenizer takes.
        say: Called with what is about to be done.
        vocab: The vocabulary that `options.vocab` stands for, if it is at hand.
        bert_config: The architecture that `options.bert_config` stands for, if it is at hand.

    Raises:
        FileNotFoundError: A file that the options name is missing.
        ValueError: Such a file is damaged, `max_len` is too long for the architecture, or that has
            not the head that the objective needs.
    """
    if options.bert_config is None:
        bert_config = BERTConfig.preset(options.preset or DEFAULT_PRESET)
    elif bert_config is None:
        bert_config = BERTConfig.from_json(options.bert_config)
    _check_length(options, bert_config)
    if vocab is None:
        vocab = _vocab(options, text, say)
    further: TokenizerOptions = text.tokenizer_options if isinstance(text, TokenStore) else {}
    further = {**further, "lowercase": bool(options.lowercase)}
    tokenizer = Tokenizer(vocab, **further)
    config = dataclasses.replace(bert_config, vocab_size=len(vocab))
    return Start(tokenizer, _for_objective(options, config), None)


def _vocab(
    options: PretrainingOptions, text: Corpus | TokenStore, say: Callable[[str], None]
) -> Vocab:
    if options.vocab is not None:
        return Vocab.from_file(options.vocab)
    if isinstance(text, TokenStore):
        return text.tokenizer().vocab
    size = options.vocab_size or DEFAULT_VOCAB_SIZE
    say(f"Vocabulary: learning {size:,} tokens from the text")
    return learn_vocab(text, size, lowercase=bool(options.lowercase))


def _for_objective(options: PretrainingOptions, config: BERTConfig) -> BERTConfig:
    """The architecture with the heads that the objective trains, and no others."""
    if options.objective == "none":  # no loss would reach the pooler
        return dataclasses.replace(config, next_sentence=False, pooler=False)
    if options.objective is not None and not config.next_sentence:
        raise ValueError(
            f"objective={options.objective!r} trains the next-sentence head. Received: an "
            "architecture with next_sentence=False; use objective='none', or another architecture."
        )
    return config


def _part_of(model: BERTModel, config: BERTConfig) -> BERTModel:
    """A model with fewer heads and the same weights."""
    part = BERTModel.from_bert_config(config)
    weights = named_weights(model)
    for name, weight in named_weights(part).items():
        weight.assign(weights[name])
    return part


def _check_length(options: PretrainingOptions, config: BERTConfig) -> None:
    """Raises `ValueError` for rows that are longer than the architecture allows."""
    if options.max_len > config.max_len:
        raise ValueError(
            f"`max_len` must be at most {config.max_len}, the longest sequence of the model. "
            f"Received: max_len={options.max_len}."
        )


def compiled_model(start: Start, options: PretrainingOptions) -> BERTModel:
    """Returns the model to train, with its optimizer."""
    with seeded(options.seed):
        model = BERTModel.from_bert_config(start.config, dtype=options.precision)
    if start.weights is not None:
        model.set_weights(start.weights)
    schedule = WarmupLinearDecay(
        options.learning_rate, options.warmup_steps or 0, total_steps=options.steps
    )
    model.compile(
        optimizer=BERTAdamW(schedule, weight_decay=options.weight_decay), jit_compile=options.jit
    )
    model.optimizer.build(model.trainable_variables)
    return model
