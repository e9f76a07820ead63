"""Set up the tokenizer, architecture and optional initial weights of a pretraining run."""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.surgery import with_config
from keras_bert_d2l.checks import check_row_len
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.text.vocab_learning import learn_vocab
from keras_bert_d2l.training.devices import seeded
from keras_bert_d2l.training.loop import compile_for_run
from keras_bert_d2l.training.optimization.optimizers import make_schedule
from keras_bert_d2l.training.pretraining.options import (
    DEFAULT_PRESET,
    DEFAULT_VOCAB_SIZE,
    PretrainingOptions,
)
from keras_bert_d2l.types import ConfigDict, PathLike


class Start(NamedTuple):
    """Starting point of a pretraining run.

    Attributes:
        tokenizer: The tokenizer.
        config: The architecture.
        weights: Initial weights for `Model.set_weights`. `None` means random weights.
    """

    tokenizer: Tokenizer
    config: BERTConfig
    weights: list[np.ndarray] | None


def from_checkpoint(options: PretrainingOptions, path: PathLike, *, verbose: bool = True) -> Start:
    """Load the tokenizer, the architecture and the weights of a checkpoint or a run.

    Args:
        options: The options of the new run.
        path: The checkpoint, as for `load_pretrained`.
        verbose: Print a description of the checkpoint. Missing heads are always reported.

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
    trained = adapted(config, options)
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
    say: Callable[[str], None],
    vocab: Vocab | None = None,
    bert_config: BERTConfig | None = None,
) -> Start:
    """Return the tokenizer and the architecture that the options describe.

    Args:
        options: The options.
        text: A corpus, from which a vocabulary is learned if none is given, or a token store,
            which determines the remaining tokenizer options.
        say: Called with each message to print.
        vocab: The vocabulary, if it was passed as an object instead of a path.
        bert_config: The architecture, if it was passed as an object instead of a path.

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
    config = adapted(bert_config, options)
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


def compiled_model(start: Start, options: PretrainingOptions) -> BERTModel:
    """Create and compile the model to train, with its tokenizer attached."""
    with seeded(options.seed):
        model = BERTModel.from_bert_config(start.config, dtype=options.precision)
        if start.weights is not None:
            model.set_weights(start.weights)
        options.add_lora(model)
    model.tokenizer = start.tokenizer
    compile_for_run(model, options, make_schedule(options, *options.schedule_steps))
    return model


def _vocab(
    options: PretrainingOptions, text: Corpus | TokenStore, say: Callable[[str], None]
) -> Vocab:
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


def adapted(config: BERTConfig, options: PretrainingOptions) -> BERTConfig:
    """Return the architecture with the dropout rates and the heads that the options ask for."""
    check_row_len(options.max_len, config.max_len)
    if options.dropout is not None:
        config = config.with_dropout(options.dropout)
    if options.attention_dropout is not None:
        config = dataclasses.replace(config, attention_dropout=options.attention_dropout)
    objective = options.objective or ("nsp" if config.next_sentence else "none")
    if objective == "none":  # the pooler would get no gradient
        return dataclasses.replace(config, next_sentence=False, pooler=False)
    if config.next_sentence:
        return config
    if options.init is not None:
        return dataclasses.replace(config, next_sentence=True, pooler=True)
    raise ValueError(
        f"objective={options.objective!r} trains the next-sentence head. Received: an "
        "architecture with next_sentence=False; use objective='none' or another architecture."
    )
