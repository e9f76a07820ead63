"""Options of a pretraining run."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from keras_bert_d2l.checks import at_least, check_positive, check_share, wrong
from keras_bert_d2l.training.options import (
    CheckpointName,
    Devices,
    FilePath,
    LoraOptions,
    Positive,
    Precision,
    Rate,
    Share,
    StepOptions,
    absolute_path,
    number,
)

Layout = Literal["auto", "lines", "prose", "wikitext"]
Strategy = Literal["mirrored"]
MaskingName = Literal["token", "whole_word", "ngram", "span"]  # masking.STRATEGIES
Objective = Literal["nsp", "sop", "none", "rtd"]  # pairs.OBJECTIVES, and rtd
Sharing = Literal["shared", "disentangled"]
Rows = Literal["auto", "padded", "packed", "bucketed"]  # data.pretraining.packing.ROWS, and auto
VocabKind = Literal["wordpiece", "bpe", "unigram"]  # text.vocab_learning.VocabKind
PositiveShare = Annotated[float, functools.partial(check_positive, most=1), number]
RecipeName = Literal["modern"]
RECIPES: Mapping[object, Mapping[str, object]] = {
    "modern": {
        "optimizer": "muon",
        "schedule": "wsd",
        "mask_rate": 0.3,
        "final_mask_rate": 0.15,
        "dropout": 0.0,
    }
}
"""The options that a recipe sets."""
# Options of which at most one may be set.
EXCLUSIVE = (
    *(("init", name) for name in ("vocab", "vocab_size", "lowercase", "preset", "bert_config")),
    ("vocab", "vocab_size"),
    ("minutes", "steps"),
    ("minutes", "evaluate_every"),
    ("bert_config", "preset"),
    ("strategy", "devices"),
)
DEFAULT_PRESET, DEFAULT_VOCAB_SIZE = "mini", 8000
PARTS = 10_000  # of a budget in time, which count as steps
MIN_LEN = 5  # data.pretraining.pairs.MIN_LEN, without importing TensorFlow

_SHORTER = 8  # `max_len` is this many times `short_len`, by default
_ROUNDING = 1e-9  # 0.29 * 100 is slightly below 29
_STEPS_OR_SHARES = ("warmup_steps", "decay_steps", "short_steps", "causal_steps")
_DEFAULT_STEPS = 10_000
_WARMUP_SHARE = 0.1  # fraction of the steps
_MASK_STAGES = 4  # each has batches of another shape, for which TensorFlow traces the step again
_NUM_INTERVALS = 20  # evaluations per run, unless the interval would exceed this many steps:
_LONGEST_INTERVAL = 500


def _one_source(name: str, value: object) -> str:
    from keras_bert_d2l.text.corpus import IN_MEMORY

    return str(value) if value in ("docstrings", IN_MEMORY) else absolute_path(name, value)


def _sources(name: str, value: object) -> str | tuple[str, ...]:
    if isinstance(value, list | tuple) and value:
        return tuple(_one_source(name, one) for one in value)
    return _one_source(name, value)


def _steps_or_share(name: str, value: object) -> int | float:
    found = number(name, value)
    if found < 0 or (found >= 1 and found % 1):
        raise wrong(name, "a number of steps, or a share of the run below 1", value)
    return found if 0 < found < 1 else int(found)


def _preset(name: str, value: str) -> str:
    from keras_bert_d2l.config import BERTConfig

    BERTConfig.preset(value)
    return value


class Phase(NamedTuple):
    """Consecutive steps of a run that train on batches of the same shape.

    Attributes:
        start: The first step, counted from 0.
        end: The step after the last one.
        batch_size: Rows per batch, B.
        max_len: Tokens per row, T.
        mask_rate: Share of the tokens to predict.
        causal: Whether every token is predicted from the tokens before it, instead of masked
            tokens. The mask rate is then unused.
    """

    start: int
    end: int
    batch_size: int
    max_len: int
    mask_rate: float
    causal: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(StepOptions, LoraOptions):
    """Options of a pretraining run.

    Args:
        corpus: Training text: one or more paths, or `"docstrings"`; see `Corpus.open`. Or the
            folder of a token store, which comes with its vocabulary and casing, so that neither
            `vocab_size` nor `layout` may be given.
        layout: Structure of the text: one sentence per line with blank lines between documents,
            running prose, or WikiText headings; auto detects it.
        vocab: Vocabulary file: `vocab.txt`, or `tokenizer.json` of byte-level BPE or Unigram. By
            default, a vocabulary of WordPiece is learned from the text.
        vocab_size: Size of the vocabulary to learn. Defaults to 8000.
        lowercase: Lowercase the text and strip accents, or keep case and accents. Only for
            WordPiece: a `tokenizer.json` decides this itself. Defaults to lowercase.
        preset: Architecture by name: d2l, tiny, mini, small, medium, base or large. Defaults to
            mini.
        bert_config: Architecture from the `config.json` of a run or a checkpoint of this package,
            instead of a preset. The size of the actual vocabulary replaces its vocabulary size.
        init: Checkpoint, run, or name on the Hugging Face Hub to start from, including its
            vocabulary and architecture.
        dropout: Dropout rate after each sublayer, of the attention weights and of the embeddings,
            instead of the rates of the architecture. 0 suits texts that the model reads only a few
            times (Geiping and Goldstein 2023).
        attention_dropout: Dropout rate of the attention weights. 0 is recommended for long runs and
            required for flash attention. Defaults to `dropout`, or the rate of the architecture.
        recipe: Defaults of several options. modern: optimizer muon, schedule wsd, mask_rate 0.3,
            final_mask_rate 0.15 and dropout 0. Options that are given take precedence.
        steps: Total number of optimizer steps. Defaults to 10000.
        minutes: Time for the training, instead of a number of steps, including evaluations but not
            the preparation of the text. The run measures its speed in the first ten steps and plans
            the others.
        batch_size: Rows per batch, over all devices. With packed rows, a batch has the same
            number of examples in fewer rows.
        max_len: Maximum number of tokens per row.
        short_steps: Steps at the start, or share of the run, that train on shorter rows, with the
            same number of tokens per batch. The model learns word order sooner; Devlin et al. 2019,
            appendix A.2, train nine tenths of their steps this way.
        short_len: Tokens per row during the short steps, a divisor of `max_len`. Defaults to an
            eighth of `max_len`.
        causal_steps: Steps at the start, or share of the run, that predict every token from the
            tokens before it. The later steps on masked tokens then learn faster (Gisserot-Boukhlef
            et al. 2025). They take more time and memory. Requires objective none.
        objective: Objective in addition to masked tokens: predict whether the second text follows
            the first (nsp), predict their order (sop), or none. A model trained with none has no
            next-sentence head and no pooler, and one trained with nsp or sop gets them if it lacks
            them. With rtd, a small generator predicts the masked tokens, and the model detects
            which tokens it has replaced; the model then has no MLM head (Clark et al. 2020,
            ELECTRA). Defaults to nsp, or none for a checkpoint without this head.
        generator_width: Width of the generator of objective rtd as a share of that of the model,
            rounded to whole attention heads.
        generator_embeddings: Whether generator and model have the same token embedding (shared, as
            in ELECTRA), or the model adds its own to that of the generator (disentangled, as in
            DeBERTaV3; He et al. 2021).
        masking: Unit to mask: a token, a whole word, an n-gram of up to 3 words, or a span of up to
            10 words.
        mask_rate: Share of the tokens to predict. Held-out text is always evaluated with 0.15.
        final_mask_rate: Share of the tokens to predict in the last of four stages of equal length;
            the first predicts `mask_rate`. Many predictions per row help at the start, few at the
            end (Wettig et al. 2022; Yang et al. 2023). Defaults to `mask_rate`.
        mask_replace_prob: Share of the predicted tokens that [MASK] replaces. Random tokens replace
            half of the others, and half are kept. 1 suits models that only predict tokens at
            [MASK], as fill-mask and grammar do (Wettig et al. 2022; Huebner et al. 2021,
            BabyBERTa). Held-out text is masked in the same way.
        rows: How examples fill rows: one example per row (padded), several per row if they fit
            (packed), or batches of similar length (bucketed, not with XLA). By default
            (auto), rows are packed if that saves at least 5% of the tokens, counting padding.
        short_seq_prob: Fraction of the examples that are shortened to a random length.
        warmup_steps: Steps, or share of the run, during which the learning rate rises from 0.
        decay_steps: Steps, or share of the run, at the end during which the learning rate of
            `schedule` wsd falls. Defaults to a fifth.
        precision: Keras dtype policy. By default (auto), a short measurement at the start decides
            between float32 and mixed_bfloat16. mixed_float16 is for older GPUs.
        jit: Compile the training step with XLA. By default, this is done on a GPU, for batches of
            one shape. JAX compiles in any case.
        strategy: Devices to train on with TensorFlow: all GPUs of this machine (mirrored).
            Defaults to one device.
        devices: With the JAX backend, divide each batch over all devices (data).
            Defaults to one device, or in several processes to all their devices.
        held_out: Fraction of the documents held out for evaluation.
        evaluate_every: Steps between evaluations. Each evaluation saves a checkpoint. Defaults to a
            twentieth of `steps`, at most 500. With `minutes`, up to ten evaluations take at most a
            tenth of the time.
        cache_dir: Folder for the tokenized text. Defaults to the user's cache folder.
        **options: The fields of `StepOptions` and `LoraOptions`. `lora` requires `init`.

    Raises:
        ValueError: An option has an invalid value, or two options contradict each other.
    """

    command: ClassVar[str] = "pretrain"

    corpus: Annotated[str | tuple[str, ...], _sources]
    layout: Layout = "auto"
    vocab: FilePath | None = None
    vocab_size: Annotated[int, at_least(10)] | None = None
    lowercase: bool | None = None
    preset: Annotated[str, _preset] | None = None
    bert_config: FilePath | None = None
    init: CheckpointName | None = None
    dropout: Rate | None = None
    attention_dropout: Rate | None = None
    recipe: RecipeName | None = None
    steps: Annotated[int, at_least(1)] | None = None
    minutes: Positive | None = None
    batch_size: Annotated[int, at_least(1)] = 64
    max_len: Annotated[int, at_least(MIN_LEN)] = 128
    short_steps: Annotated[float, _steps_or_share] = 0
    short_len: Annotated[int, at_least(MIN_LEN)] | None = None
    causal_steps: Annotated[float, _steps_or_share] = 0
    objective: Objective | None = None
    generator_width: PositiveShare = 0.25
    generator_embeddings: Sharing = "shared"
    masking: MaskingName = "token"
    mask_rate: Share = 0.15
    final_mask_rate: Share | None = None
    mask_replace_prob: PositiveShare = 0.8
    rows: Rows = "auto"
    short_seq_prob: Annotated[float, functools.partial(check_share, ends=True), number] = 0.0
    learning_rate: Positive = 1e-3
    warmup_steps: Annotated[float, _steps_or_share] = _WARMUP_SHARE
    decay_steps: Annotated[float, _steps_or_share] | None = None
    precision: Precision = "auto"
    strategy: Strategy | None = None
    devices: Devices | None = None
    held_out: Share = 0.05
    evaluate_every: Annotated[int, at_least(1)] | None = None
    cache_dir: FilePath | None = None

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> Self:
        recipe = cls.normal_form("recipe", options.get("recipe"))
        return super().from_dict({**RECIPES.get(recipe, {}), **options})

    def __post_init__(self) -> None:
        super().__post_init__()
        for names in EXCLUSIVE:
            self._check_exclusive(*names)
        self._set_defaults()
        rule = "`lora` freezes the weights that the run starts from, so it requires `init`."
        self._check(self.lora is None or self.init is not None, rule, "lora", "init")
        rule = "XLA would compile each length of rows='bucketed': use rows='packed'."
        self._check(not (self.rows == "bucketed" and self.jit), rule, "rows", "jit")
        has_decay = self.decay_steps is None or self.schedule == "wsd"
        generator = self.generator_width, self.generator_embeddings
        is_used = self.objective == "rtd" or generator == (0.25, "shared")
        rule = "`generator_width` and `generator_embeddings` require objective='rtd'."
        self._check(is_used, rule, "generator_width", "generator_embeddings", "objective")
        rule = "`lora` freezes the heads, so it requires another objective than 'rtd'."
        self._check(not (self.lora and self.objective == "rtd"), rule, "lora", "objective")
        rule = "`decay_steps` requires schedule='wsd'."
        self._check(has_decay, rule, "decay_steps", "schedule")
        self._check_steps()

    @property
    def total_steps(self) -> int:
        """The number of steps, or with `minutes` the number of parts of the budget."""
        return PARTS if self.steps is None else self.steps

    def num_steps(self, name: str) -> int:
        """Return an option that is a number of steps or a share, as a number of `total_steps`."""
        value: int | float = getattr(self, name) or 0
        if isinstance(value, float):
            value = math.floor(value * self.total_steps + _ROUNDING)
        return value

    @property
    def schedule_steps(self) -> tuple[int, int, int | None]:
        """The steps of the warm-up and of the run, and those of the decay, if they are given."""
        decay = None if self.decay_steps is None else self.num_steps("decay_steps")
        return self.num_steps("warmup_steps"), self.total_steps, decay

    @property
    def steps_between_evaluations(self) -> int:
        """The number of steps between evaluations; with `minutes`, the budget decides."""
        return self.evaluate_every or min(
            math.ceil(self.total_steps / _NUM_INTERVALS), _LONGEST_INTERVAL
        )

    def _check_steps(self) -> None:
        total = self.total_steps
        for name in _STEPS_OR_SHARES:
            is_share = self.minutes is None or (getattr(self, name) or 0) < 1
            rule = f"With `minutes`, `{name}` must be a share of the run below 1."
            self._check(is_share, rule, name, "minutes")
        warmup, causal, decay = map(self.num_steps, ("warmup_steps", "causal_steps", "decay_steps"))
        is_below = warmup < total
        self._check(is_below, "`warmup_steps` must be below `steps`.", "warmup_steps", "steps")
        if self.short_len is not None:
            is_used = bool(self.short_steps)
            rule = "`short_len` requires `short_steps`: set both or neither."
            self._check(is_used, rule, "short_len", "short_steps")
            is_divisor = self.short_len < self.max_len and self.max_len % self.short_len == 0
            rule = f"`short_len` must be a divisor of `max_len`, of at least {MIN_LEN} tokens."
            self._check(is_divisor and self.short_len >= MIN_LEN, rule, "short_len", "max_len")
        is_at_most = self.num_steps("short_steps") <= total
        self._check(is_at_most, "`short_steps` must be at most `steps`.", "short_steps", "steps")
        is_alone = not self.causal_steps or self.objective == "none"
        rule = "`causal_steps` requires objective='none', because [CLS] sees no text then."
        self._check(is_alone, rule, "causal_steps", "objective")
        rule = "`causal_steps` must be below `steps`, because these steps do not train [MASK]."
        self._check(causal < total, rule, "causal_steps", "steps")
        rule = "`warmup_steps` and `decay_steps` together must not exceed the run."
        self._check(decay <= total - warmup, rule, "warmup_steps", "decay_steps", "steps")

    def _set_defaults(self) -> None:
        if self.init is None:
            if self.vocab is None and self.vocab_size is None:
                self._set("vocab_size", DEFAULT_VOCAB_SIZE)
            if self.bert_config is None and self.preset is None:
                self._set("preset", DEFAULT_PRESET)
            if self.lowercase is None and not (self.vocab or "").endswith(".json"):
                self._set("lowercase", True)
        if self.short_steps and self.short_len is None:
            self._set("short_len", self.max_len // _SHORTER)
        if self.minutes is None and self.steps is None:
            self._set("steps", _DEFAULT_STEPS)

    def phases(self) -> list[Phase]:
        """Return the phases of the run, in order. With `minutes`, they count parts as steps."""
        steps, short_steps = self.total_steps, self.num_steps("short_steps")
        stages = range(_MASK_STAGES if self._mask_rate_fall else 0)
        starts = {math.ceil(steps * stage / _MASK_STAGES) for stage in stages}
        bounds = sorted(starts | {0, steps, short_steps, self.num_steps("causal_steps")})
        return [self._phase(start, end) for start, end in itertools.pairwise(bounds)]

    @property
    def _mask_rate_fall(self) -> float:
        return self.mask_rate - (self.final_mask_rate or self.mask_rate)

    def _phase(self, start: int, end: int) -> Phase:
        max_len = self.max_len
        if self.short_len is not None and start < self.num_steps("short_steps"):
            max_len = self.short_len
        share = (_MASK_STAGES * start // self.total_steps) / (_MASK_STAGES - 1)  # of the fall
        rate = self.mask_rate - share * self._mask_rate_fall
        causal = start < self.num_steps("causal_steps")
        return Phase(start, end, self.batch_size * self.max_len // max_len, max_len, rate, causal)
