"""The options of a pretraining run: arguments or a `run.yaml` in, one checked record out."""

import dataclasses
import math
import os
from typing import Any, Literal, NamedTuple, Self, get_args

import yaml

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_text
from keras_bert_d2l.training.option_records import (
    absolute_path,
    check_integer,
    check_known,
    number,
    out_of_range,
    read_yaml,
)

Layout = Literal["auto", "lines", "prose", "wikitext"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Strategy = Literal["mirrored", "tpu"]
MaskingName = Literal["token", "whole_word", "ngram", "span"]  # data.masking.STRATEGIES
Objective = Literal["nsp", "sop", "none"]  # data.pairs.OBJECTIVES
Rows = Literal["padded", "packed", "bucketed"]  # data.packing.ROWS
DEFAULT_PRESET, DEFAULT_VOCAB_SIZE = "mini", 8000
MIN_LEN = 5  # data.pretraining.pairs.MIN_LEN, without importing TensorFlow

_SHORTER = 8  # times, by default
_WARMUP_SHARE = 0.1  # of the steps
_NUM_INTERVALS = 20  # evaluations of a run, unless its intervals would be longer than this:
_LONGEST_INTERVAL = 500
# Smallest values; None beside them stands for a default that depends on other options.
_INTEGERS = {"steps": 1, "batch_size": 1, "max_len": MIN_LEN, "short_steps": 0, "seed": 0}
_OPTIONAL_INTEGERS = {"vocab_size": 6, "warmup_steps": 0, "evaluate_every": 1, "short_len": MIN_LEN}
_NUMBERS = ("learning_rate", "weight_decay", "held_out", "short_seq_prob")
_CHOICES = (
    ("layout", Layout, False),
    ("precision", Precision, False),
    ("strategy", Strategy, True),
    ("masking", MaskingName, False),
    ("objective", Objective, True),
    ("rows", Rows, False),
)
_PATHS = ("vocab", "bert_config", "init", "cache_dir")
_HEADER = "# The options of this run, as `keras-bert-d2l pretrain --config` reads them.\n"


class Phase(NamedTuple):
    """Steps of a run that train on batches of one shape.

    Attributes:
        start: The first step, counted from 0.
        end: The step after the last one.
        batch_size: Rows in a batch, B.
        max_len: Tokens in a row, T.
    """

    start: int
    end: int
    batch_size: int
    max_len: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions:
    """Everything that decides what a pretraining run does.

    Args:
        corpus: The text: a path, several, or `"docstrings"`; see `Corpus.open`. Or the folder of a
            token store, which has its vocabulary and its case, so that neither `vocab_size` nor
            `layout` may be given.
        layout: How the text is divided into sentences and documents; see `Corpus.open`.
        vocab: A `vocab.txt`. `None`: learned from the corpus.
        vocab_size: Size of the vocabulary to learn, V. `None`: 8000.
        lowercase: Whether the vocabulary is of lowered words. `None`: yes.
        preset: Name of an architecture, see `BERTConfig.preset`. `None`: `"mini"`.
        bert_config: A `config.json` with the architecture, instead of a preset; its `vocab_size`
            gives way to that of the vocabulary.
        init: A checkpoint to go on from. Its vocabulary and architecture hold, so that none of
            the six options above, but `corpus` and `layout`, may be given.
        steps: Optimizer steps of the whole run.
        batch_size: Rows in a batch, B, over all devices together.
        max_len: Tokens in a row, T; at most the architecture's `max_len`.
        short_steps: Steps at the start that train on shorter rows, from which word order is learned
            sooner; also the first phase of Devlin et al. 2019, appendix A.2 (128 tokens for nine
            tenths of the steps, then 512).
        short_len: Tokens in such a row, a divisor of `max_len`. A batch has so many more of them
            that it holds as many tokens. `None`: an eighth of `max_len`.
        objective: What is learned beside masked tokens: `"nsp"` (next sentence), `"sop"` (sentence
            order) or `"none"`, for which the model is made without the next-sentence head and the
            pooler. `None`: `"nsp"`, or `"none"` where the architecture has no such head.
        masking: Which tokens are masked: `"token"`, `"whole_word"`, `"ngram"` or `"span"`; see
            `Masking`.
        rows: `"padded"`: an example in each row. `"packed"`: several where they fit. `"bucketed"`:
            batches of about one length, as long as their longest row; neither for XLA nor for a
            TPU, which would compile each length.
        short_seq_prob: Share of the examples that are made shorter, by a random length.
        learning_rate: At the end of the warm-up; from there it falls linearly to 0.
        warmup_steps: Steps in which the learning rate rises from 0. `None`: a tenth of `steps`.
        weight_decay: Of `BERTAdamW`.
        seed: Decides the first weights, the dropout, the pairs, their order and the masks.
        precision: Keras's dtype policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`.
        jit: Whether the step is compiled by XLA.
        strategy: `None` (one device), `"mirrored"` (all GPUs of this machine) or `"tpu"`.
        tpu: Name of the TPU, for `strategy="tpu"`. `None`: the one of this machine.
        held_out: Share of the documents that is kept for evaluation, in (0, 1).
        evaluate_every: Steps from one evaluation, with its checkpoint, to the next. `None`: a
            twentieth of `steps`, at most 500.
        cache_dir: Folder for the tokenised corpus. `None`: in the user's cache folder.

    Raises:
        ValueError: An option is of the wrong type or out of its range, or two contradict.
    """

    corpus: str | tuple[str, ...]
    layout: Layout = "auto"
    vocab: str | None = None
    vocab_size: int | None = None
    lowercase: bool | None = None
    preset: str | None = None
    bert_config: str | None = None
    init: str | None = None
    steps: int = 10_000
    batch_size: int = 64
    max_len: int = 128
    short_steps: int = 0
    short_len: int | None = None
    objective: Objective | None = None
    masking: MaskingName = "token"
    rows: Rows = "padded"
    short_seq_prob: float = 0.0
    learning_rate: float = 1e-3
    warmup_steps: int | None = None
    weight_decay: float = 0.01
    seed: int = 0
    precision: Precision = "float32"
    jit: bool = False
    strategy: Strategy | None = None
    tpu: str | None = None
    held_out: float = 0.05
    evaluate_every: int | None = None
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        for name in ("corpus", *_PATHS, *_NUMBERS):
            self._set(name, normal_form(name, getattr(self, name)))
        for name, smallest in {**_INTEGERS, **_OPTIONAL_INTEGERS}.items():
            value = getattr(self, name)
            if value is not None or name in _INTEGERS:
                check_integer(name, value, smallest)
        for name, optional in (("jit", False), ("lowercase", True)):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (optional and value is None):
                raise out_of_range(name, value, "true or false")
        for name in ("preset", "tpu"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise out_of_range(name, value, "a name")
        self._check_values()
        self._check_combinations()
        self._set_defaults()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # a frozen record that completes itself

    def _check_values(self) -> None:
        for name, kind, optional in _CHOICES:
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed and not (optional and value is None):
                raise out_of_range(name, value, f"one of {allowed}")
        if self.preset is not None:
            BERTConfig.preset(self.preset)
        for name, fits, meaning in (
            ("learning_rate", self.learning_rate > 0, "above 0"),
            ("weight_decay", self.weight_decay >= 0, "at least 0"),
            ("held_out", 0 < self.held_out < 1, "in (0, 1)"),
            ("short_seq_prob", 0 <= self.short_seq_prob <= 1, "in [0, 1]"),
        ):
            if not fits:
                raise out_of_range(name, getattr(self, name), meaning)
        if self.warmup_steps is not None and self.warmup_steps >= self.steps:
            raise ValueError(
                "`warmup_steps` must be below `steps`. Received: "
                f"warmup_steps={self.warmup_steps}, steps={self.steps}."
            )

    def _check_combinations(self) -> None:
        if self.init is not None:
            for name in ("vocab", "vocab_size", "lowercase", "preset", "bert_config"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        "`init` goes on with the vocabulary and the architecture of its "
                        f"checkpoint, {self.init!r}. Received: {name}={getattr(self, name)!r} "
                        "beside it; leave one of the two out."
                    )
        for first, second in (("vocab", "vocab_size"), ("bert_config", "preset")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ValueError(
                    f"`{first}` and `{second}` say the same thing in two ways. Received: "
                    f"{first}={getattr(self, first)!r} and {second}={getattr(self, second)!r}; "
                    "leave one of the two out."
                )
        if self.short_len is not None:
            if not self.short_steps:
                raise ValueError(
                    "`short_len` is for the first `short_steps` steps. Received: short_len="
                    f"{self.short_len}, short_steps=0; set both or none."
                )
            if self.max_len % self.short_len or self.short_len == self.max_len:
                raise ValueError(
                    "`short_len` must be a divisor of `max_len`, so that batches hold equally many "
                    f"tokens. Received: short_len={self.short_len}, max_len={self.max_len}."
                )
        if self.short_steps > self.steps:
            raise ValueError(
                "`short_steps` must be at most `steps`. Received: short_steps="
                f"{self.short_steps}, steps={self.steps}."
            )
        if self.rows == "bucketed" and (self.jit or self.strategy == "tpu"):
            raise ValueError(
                "rows='bucketed' gives batches of many lengths, each of which would be compiled "
                f"anew. Received: rows='bucketed' with jit={self.jit}, strategy={self.strategy!r}; "
                "use rows='packed'."
            )
        if self.tpu is not None and self.strategy != "tpu":
            raise ValueError(
                f"`tpu` names the machine for strategy='tpu'. Received: tpu={self.tpu!r} and "
                f"strategy={self.strategy!r}."
            )

    def _set_defaults(self) -> None:
        if self.init is None:
            if self.vocab is None and self.vocab_size is None:
                self._set("vocab_size", DEFAULT_VOCAB_SIZE)
            if self.bert_config is None and self.preset is None:
                self._set("preset", DEFAULT_PRESET)
            if self.lowercase is None:
                self._set("lowercase", True)
        if self.short_steps and self.short_len is None:
            if self.max_len % _SHORTER or self.max_len < _SHORTER * MIN_LEN:
                raise ValueError(
                    f"`short_len` is a whole 1/{_SHORTER} of `max_len` unless it is set, and at "
                    f"least {MIN_LEN}. Received: max_len={self.max_len}; set `short_len`."
                )
            self._set("short_len", self.max_len // _SHORTER)
        if self.warmup_steps is None:
            self._set("warmup_steps", int(_WARMUP_SHARE * self.steps))
        if self.evaluate_every is None:
            interval = math.ceil(self.steps / _NUM_INTERVALS)
            self._set("evaluate_every", min(interval, _LONGEST_INTERVAL))

    def phases(self) -> list[Phase]:
        """Returns the stretches of the run in which the rows are equally long, in their order."""
        whole = Phase(self.short_steps, self.steps, self.batch_size, self.max_len)
        if self.short_len is None:
            return [whole]
        rows = self.batch_size * self.max_len // self.short_len
        return [Phase(0, self.short_steps, rows, self.short_len), whole]

    @classmethod
    def from_dict(cls, options: dict[str, Any]) -> Self:
        """Returns the record of a dictionary of options.

        Raises:
            ValueError: An option is unknown, of the wrong type or out of its range, or `corpus`
                is missing.
        """
        check_known(options, cls)
        return cls(**{"corpus": None, **options})

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Writes the options to a YAML file, whole or not at all."""
        fields = dataclasses.asdict(self)
        if isinstance(self.corpus, tuple):
            fields["corpus"] = list(self.corpus)
        text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
        write_text(path, _HEADER + text)


def read_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads some or all options from a YAML file.

    Returns: the options that the file sets, by name; their values are not checked yet.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not YAML, is no mapping, or has an unknown option.
    """
    return read_yaml(path, PretrainingOptions)


def normal_form(name: str, value: Any) -> Any:
    """Returns the value of an option as the record keeps it: absolute paths, numbers as floats.

    Raises:
        ValueError: The value is no path or no number where the option is one.
    """
    if name == "corpus":
        return _corpus(value)
    if name in _PATHS and value is not None:
        return absolute_path(name, value)
    return number(name, value) if name in _NUMBERS else value


def _corpus(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, list | tuple) and value:
        return tuple(_one_source(one) for one in value)
    return _one_source(value)


def _one_source(value: Any) -> str:
    if value is None:
        raise ValueError("`corpus` is missing: name the text to train on.")
    return value if value == "docstrings" else absolute_path("corpus", value)
