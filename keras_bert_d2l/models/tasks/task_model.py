"""TaskModel: base class of the task models.

B batch, T tokens, D hidden width, C labels.
"""

import functools
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias, get_args

import keras
import numpy as np

from keras_bert_d2l.checks import check_choice, check_positive, check_that
from keras_bert_d2l.config import BERTConfig, check_field
from keras_bert_d2l.layers.heads import TextPooling, dense_head, precise_policy
from keras_bert_d2l.layers.kernels.fusion import Dropout
from keras_bert_d2l.layers.pooling import Pooling, PoolingKind
from keras_bert_d2l.models import partial_training
from keras_bert_d2l.models.batch_model import TextTokenizer, check_keys
from keras_bert_d2l.models.bert import BERTModel, checked_bert
from keras_bert_d2l.models.tasks.text_model import TextModel
from keras_bert_d2l.models.tasks.windows import LONG_TEXTS, LongTexts, longest_row, over_windows
from keras_bert_d2l.models.text_inputs import FEATURES, Batch
from keras_bert_d2l.types import ConfigDict, Option, PathLike, Tensor

CalibrationRow: TypeAlias = tuple[np.ndarray, np.ndarray]
"""The logits of the decisions of a row, `(n, C)`, and their labels, `(n,)`, or 0 and 1 `(n, C)`."""


class TaskModel(TextModel):
    """Base class of the task models: a BERT encoder with the head of a task.

    A subclass defines `default_training`, and overrides what its inputs and labels need.

    The model shares the encoder, and the pooler if the task needs it, with `bert`: training or
    freezing them here also trains or freezes them there. A batch is a dictionary of `tokens`,
    `segments` and `valid_lens`. With a tokenizer, `fit`, `evaluate` and `predict` also take
    strings; see each task.

    `call` also takes an `attention_mask`, `(B, T)` or `(B, T, T)`, and, with
    `return_hidden_states=True` or `return_attention=True`, returns a dictionary: the task's result
    is its `"output"`, and the rest is as in `BERTEncoder`. With these arguments, rows are not split
    into windows, whatever `long_texts` is. A mask `(B, T, T)` does not say which tokens are
    padding: the mean of `pooling="mean"` then needs `valid_lens`.

    Args:
        bert: The pretrained model.
        head: The layer that computes the outputs, or the number of outputs for a new dense layer.
        dropout: Dropout rate before the head. `None`: the `dropout` of `bert`.
        pooling: What the head of a task for whole texts reads: `"cls"`, the pooler's output for
            `[CLS]`, or `"mean"`, the mean of the encoded tokens. `None`: `"cls"` if `bert` has a
            trained pooler, otherwise `"mean"`.
        long_texts: `"cut"` truncates texts that are too long. `"mean"` and `"max"` split them into
            windows that overlap by a third, and pool the outputs of at most 8 windows.
        tokenizer: Converts strings to batches. `None`: the tokenizer of `bert`, if it has one.
        temperature: Divisor of the logits in all probabilities; see `calibrate`.
        name: Name of the model.

    Attributes:
        encoder: The encoder of `bert`.
        hidden: The pooler of `bert`, or `None` if the task does not use it. With `pooler_norm`,
            all tasks with a head use it.
        pooling: What the head reads, `"cls"` or `"mean"`; `None` if it reads every token.
        mean: The layer that computes the mean for `pooling="mean"`, or `None`.
        head: The output layer of the task.
        bert_config: The architecture of `bert`.
        tokenizer: The tokenizer, which can be set later. A `.keras` file and `save_pretrained`
            keep it.
        preprocessor: Converts strings with it; `None` without one.

    Raises:
        ValueError: `bert` does not have one BERT, it has no pooler for `pooling="cls"`, or the
            task does not support `long_texts`.

    Example:

    ```python
    import keras
    import keras_bert_d2l as kb

    @keras.saving.register_keras_serializable("my_tasks")
    class Regressor(kb.TaskModel):
        task, pools, labels_are = "age", True, "scores"

        def default_training(self, class_weights):
            return keras.losses.MeanSquaredError(), None, None

    bert = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = Regressor(bert, head=1)
    model.compile("adam")
    ```
    """

    task = ""  # its name for `read_examples` and `finetune`
    command = "predict FILE"  # the command that uses the model
    outputs: tuple[str, ...] = ("logits",)  # what is served
    features = FEATURES
    fields: tuple[str, ...] = ()  # arguments, besides `bert`, that define the architecture
    has_token_labels = False  # whether every token has a label
    pools = False  # whether a head with weights reads one vector per text
    pooling: PoolingKind | tuple[PoolingKind, ...] | None = None
    has_head = True  # whether the head has weights
    ranks = False  # whether it scores texts for a query, as a `CrossEncoder` does
    is_task = True

    def __init__(
        self,
        bert: BERTModel,
        *,
        head: keras.layers.Layer | int,
        dropout: float | None = 0.0,
        pooling: TextPooling | None = None,
        long_texts: LongTexts = "cut",
        tokenizer: TextTokenizer = None,
        temperature: float = 1.0,
        name: str | None = None,
    ) -> None:
        bert = checked_bert(bert)
        # Disable autocast: lengths may be floats, and bfloat16 would round 257 to 256.
        super().__init__(autocast=False, dtype=bert.dtype_policy, name=name)
        self.bert_config = bert.bert_config
        is_right = "temperature" in self.calibrated or temperature == 1
        check_that(is_right, "temperature", f"1 for a {type(self).__name__}", temperature)
        self.temperature = check_positive("temperature", temperature)
        dropout = self.bert_config.dropout if dropout is None else dropout
        self.dropout_rate = check_field("dropout", dropout)
        possible = LONG_TEXTS if "long_texts" in self.fields else LONG_TEXTS[:1]
        self.long_texts = check_choice("long_texts", long_texts, possible)
        self.encoder = bert.encoder
        self.hidden = self.mean = None
        if self.pools:
            self.pooling = _pooling(pooling, bert)
            if self.pooling == "cls":
                self.hidden = bert.hidden
            else:
                policy = precise_policy(bert)
                self.mean = Pooling("mean", normalize=False, dtype=policy, name="mean")
        elif pooling is not None:
            raise ValueError(
                f"`pooling` is for tasks of whole texts. Received: pooling={pooling!r} for a "
                f"{type(self).__name__}; omit it."
            )
        if self.bert_config.pooler_norm and self.has_head:  # applies to all that the head reads
            self.hidden = bert.hidden
        head = dense_head(bert, head) if isinstance(head, int) else head
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = head  # after the other layers: the order of the weights depends on it
        self.tokenizer = bert.tokenizer if tokenizer is None else tokenizer
        for layer in filter(None, (self.mean, self.dropout, self.head)):
            layer.build((None, bert.bert_config.num_hiddens))
        self.built = True

    def call(
        self,
        tokens: Tensor | Batch,
        segments: Tensor | None = None,
        valid_lens: Tensor | None = None,
        training: bool | None = None,
        attention_mask: Tensor | None = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        of_task: Mapping[str, Tensor] = {}
        if isinstance(tokens, Mapping):
            check_keys(tokens, (*self.features, "attention_mask"))
            segments, valid_lens = tokens.get("segments"), tokens.get("valid_lens")
            of_task = {name: x for name, x in tokens.items() if name in self.features[3:]}
            attention_mask, tokens = tokens.get("attention_mask"), tokens["tokens"]
        segments = keras.ops.zeros_like(tokens) if segments is None else segments
        of_windows = self.long_texts != "cut" and attention_mask is None
        if of_windows and not (return_hidden_states or return_attention):
            encode = functools.partial(self.encoder.__call__, training=training)
            return self.over_windows(encode, tokens, segments, valid_lens)
        encoded = self.encoder(
            *(tokens, segments, valid_lens),
            training=training,
            attention_mask=attention_mask,
            return_hidden_states=return_hidden_states,
            return_attention=return_attention,
        )  # (B, T, D), or a dictionary that contains it
        states = encoded if isinstance(encoded, Mapping) else {"encoded": encoded}
        is_token = self.is_token(tokens, valid_lens, attention_mask)
        output = self.head_outputs(states["encoded"], is_token, **of_task)
        return {**states, "output": output} if isinstance(encoded, Mapping) else output

    def is_token(
        self, tokens: Tensor, valid_lens: Tensor | None, attention_mask: Tensor | None = None
    ) -> Tensor | None:
        """Return which tokens are not padding, bool `(B, T)`; `None` if there is no padding."""
        # A mask with one entry per query and key does not say which tokens are padding.
        of_pairs = attention_mask is not None and len(attention_mask.shape) == 3
        mask = self.encoder.mask(tokens, valid_lens, None if of_pairs else attention_mask)
        return None if mask is None else mask[:, 0]

    @property
    def reads_first(self) -> bool:
        """Whether the head reads only the first token, so that the last block needs no others."""
        return self.pools and self.pooling == "cls"

    def head_outputs(self, encoded_X: Tensor, is_token: Tensor | None = None) -> Tensor:
        """Return the outputs for encoded tokens `(B, T, D)`, of which some may be padding."""
        X = encoded_X
        if self.mean is not None:
            X = self.mean(encoded_X, is_token)
        elif self.reads_first:
            X = encoded_X[:, 0, :]
        if self.hidden is not None:
            X = self.hidden(X)
        return self.head(self.dropout(X))  # Keras passes `training` on to the dropout

    def answer(self, logits: Tensor) -> dict[str, Tensor]:
        """Return what the outputs of rows mean, as named tensors `(B, ...)`.

        Python functions, `export_saved_model`, `export_onnx` and servers all answer so. It is
        written with `keras.ops`.

        Args:
            logits: The outputs, `(B, ...)`.
        """
        return {self.outputs[0]: logits}

    def decisions(self, rows: Sequence[CalibrationRow]) -> CalibrationRow:
        """Return the probability of each decision, and whether it is right; see `Decisions`."""
        logits, labels = map(np.concatenate, zip(*rows, strict=True))
        found = {name: np.asarray(x) for name, x in self.answer(logits).items()}
        if labels.ndim == 2:
            return found["scores"].ravel(), labels.ravel() > 0
        chosen = found["id"] if "id" in found else found["index"]
        return found["score"], chosen == labels

    def negative_log_likelihood(self, rows: Sequence[CalibrationRow]) -> Callable[[float], float]:
        """Return minus the log-likelihood of labels, as a function of the temperature."""
        logits, labels = map(np.concatenate, zip(*rows, strict=True))
        if labels.ndim == 2:
            above = np.stack([0 * logits, np.where(labels > 0, -logits, logits)], axis=-1)
        else:
            above = logits - np.take_along_axis(logits, labels[:, None], axis=1)
        above = above.astype("float64")
        return lambda temperature: float(np.logaddexp.reduce(above / temperature, axis=-1).sum())

    @property
    def max_row_len(self) -> int:
        """Maximum number of tokens in the row of a single text. For pairs, it is `max_len`."""
        return longest_row(self.bert_config.max_len, self.long_texts)

    def over_windows(
        self,
        encoder: Callable[..., Tensor],
        tokens: Tensor,
        segments: Tensor,
        valid_lens: Tensor | None,
    ) -> Tensor:
        """Return the outputs of rows of any length, pooled over windows as `long_texts` says."""

        def run(*batch: Tensor) -> Tensor:
            return self.head_outputs(encoder(*batch), self.is_token(batch[0], batch[2]))

        max_len = self.bert_config.max_len
        return over_windows(run, tokens, segments, valid_lens, max_len, self.long_texts)

    def freeze_encoder(self, num_blks: int | None = None) -> None:
        """Freeze the encoder, or its lower part.

        Call it before `compile`. It makes the remaining blocks trainable, even if they were frozen
        before, and does not change the head and the pooler.

        Args:
            num_blks: Number of blocks to freeze, starting with the lowest, in addition to the
                embeddings. `None`: the complete encoder.

        Raises:
            ValueError: `num_blks` is out of range, or the encoder has LoRA.
        """
        total = self.bert_config.num_blks
        frozen = check_choice("num_blks", total if num_blks is None else num_blks, range(total + 1))
        is_right = not self.bert_config.shared_blocks or frozen in (0, total)
        expected = f"0 or {total} with shared_blocks=True, whose blocks have the same weights"
        check_that(is_right, "num_blks", expected, num_blks)
        partial_training.freeze_lower_part(self.encoder, frozen)

    @classmethod
    def from_pretrained(
        cls, path: PathLike, *, verify: bool = True, verbose: bool = True, **options: Option
    ) -> Self:
        """Load a checkpoint of any known format as a model of this task.

        A checkpoint of the same task is loaded with its head. For a BERT without a task, and for a
        checkpoint of the same task with other labels, the encoder is loaded (and the pooler, if
        the task uses it); the head is initialized at random, and this is reported. A `TextEmbedder`
        has the pooling that a folder of sentence-transformers defines. A head whose class the files
        do not name is that of this task.

        Args:
            path: The checkpoint, as for `load_pretrained`, also by name.
            verify: As for `load_pretrained`.
            verbose: As for `load_pretrained`.
            **options: The arguments of the class other than `bert`, for example `labels`. For a
                checkpoint of the same task, they may be omitted; otherwise they must match it,
                except that other `labels` create a new head. Labels that the checkpoint calls
                `LABEL_0`, `LABEL_1` and so on, or whose names are not valid, get the given names.

        Returns: the model, with the tokenizer attached.

        Raises:
            FileNotFoundError: There is no checkpoint, or one of its files is missing.
            ValueError: The checkpoint has a different task or different options, is damaged, or is
                a BERT that does not support the task.

        Example:

        ```python
        import keras_bert_d2l as kb

        model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=100))
        kb.save_pretrained(model, "checkpoints/tiny")
        labels = ["bad", "good"]
        classifier = kb.SequenceClassifier.from_pretrained("checkpoints/tiny", labels=labels)
        ```
        """
        load = pkgutil.resolve_name("keras_bert_d2l.checkpoints.loading:load_task")
        loaded: Self = load(cls, path, verify=verify, verbose=verbose, **options).model
        return loaded

    def task_config(self) -> ConfigDict:
        """Return the arguments, besides `bert`, that define the model, as plain JSON values."""
        values = {
            name: self.dropout_rate if name == "dropout" else getattr(self, name)
            for name in self.fields
        }
        fitted = {name: getattr(self, name) for name in self.calibrated}
        values |= {name: x for name, x in fitted.items() if x != self.calibrated[name]}
        return {name: _plain(value) for name, value in values.items()}

    def get_config(self) -> ConfigDict:
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "bert_config": self.bert_config.to_dict(),
            **self.saved_state(),
            **self.task_config(),
        }

    @classmethod
    def from_config(cls, config: ConfigDict, custom_objects: ConfigDict | None = None) -> Self:
        config = dict(config)
        architecture = BERTConfig.from_dict(config.pop("bert_config"))
        dtype = keras.saving.deserialize_keras_object(config.pop("dtype"))
        bert = BERTModel.from_bert_config(architecture, dtype=dtype)
        return cls.from_saved(config, functools.partial(cls, bert))


def _plain(value: Any) -> Any:
    """Return a value of JSON: lists for tuples, and dictionaries that Keras does not track."""
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _pooling(pooling: TextPooling | None, bert: BERTModel) -> TextPooling:
    """Return what the head reads; raise `ValueError` if `bert` does not have it."""
    if pooling is None:
        return "cls" if "pooler" in bert.usable_heads else "mean"
    if check_choice("pooling", pooling, get_args(TextPooling)) == "cls" and bert.hidden is None:
        raise ValueError(
            '`pooling="cls"` needs a BERT with a pooler. Received: a model with pooler=False. Use '
            '`pooling="mean"`.'
        )
    return pooling
