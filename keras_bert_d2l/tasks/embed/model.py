"""TextEmbedder: one vector per text.

B batch, T tokens, D hidden width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import keras
import numpy as np

from keras_bert_d2l.checks import (
    check_bool,
    check_choice,
    check_integer,
    check_that,
    checked_max_len,
    shown,
    shown_names,
)
from keras_bert_d2l.layers.heads import precise_policy
from keras_bert_d2l.layers.pooling import Pooling, PoolingKind, Similarity, Step, unit
from keras_bert_d2l.models.batch_model import TextTokenizer
from keras_bert_d2l.models.bert import BERTModel, checked_bert
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.embedding_losses import ContrastiveLoss, RankingLoss, inner_loss
from keras_bert_d2l.models.pair_losses import CoSENTLoss, CosineLoss
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import FEATURES, Batch, Preprocessor
from keras_bert_d2l.types import Option, Tensor


class SingleTexts(Preprocessor):
    """Converts texts, each of which has its own vector, with a prompt before each."""

    model: "TextEmbedder"
    keys = ("texts",)
    form = "a list: put both texts of a pair next to each other, with the same label"

    @property
    def features(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.model.features

    def rows(self, texts: Any, prompt: str | None = None, **options: Any) -> Batch:
        """Return the rows of texts, as `Preprocessor` does.

        Args:
            texts: Strings, `(B,)`.
            prompt: The text to put before each of them. `None`: the default prompt of the model.
            **options: As for `Preprocessor.rows`.

        Returns: with `include_prompt=False` also `prompt_lens`, the number of first tokens that
            the pooling skips, int32 `(B,)`.
        """
        import tensorflow as tf

        prompt = self.model.prompt() if prompt is None else prompt
        batch = super().rows(tf.strings.join([prompt, texts]) if prompt else texts, **options)
        if self.model.include_prompt:
            return batch
        length = self.model.prompt_len(self.tokenizer, prompt, self.max_len())
        return {**batch, "prompt_lens": tf.zeros_like(batch["valid_lens"]) + length}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TextEmbedder(TaskModel):
    """Text encoder whose output vectors can be compared with each other.

    `fit`, `evaluate` and `predict` also take a list of texts, as in `SequenceClassifier`, but no
    pairs: every text has its own vector.

    Training moves texts of the same group close together. The labels are the groups: ids, or
    names in a list. For pairs of texts with the same meaning, use the index of the pair as the
    label of both texts, put one directly after the other, and compile with `RankingLoss()`. For
    pairs with scores, the labels are the scores, and the loss is `CosineLoss()` or `CoSENTLoss()`.
    These losses find pairs by their order, as `TripletLoss()` finds triplets, so `fit` then does
    not shuffle texts and arrays, and `batch_size` must not split a pair. Pass the pairs in random
    order, or fine-tune with `finetune`, which shuffles them.

    Source: Reimers and Gurevych 2019 (Sentence-BERT).

    Args:
        bert: The pretrained model.
        pooling: `"cls"` (the encoded `[CLS]`), `"last"` (the encoded `[SEP]`), or over all tokens
            `"mean"`, `"max"`, `"mean_sqrt_len"` (the sum divided by the square root of their
            number) or `"weighted_mean"` (by position). Or several, which are concatenated.
        normalize: Whether to scale vectors to length 1, so that their dot product is the cosine.
        max_len: Maximum number of tokens in a row for `long_texts="cut"`. `None`: that of `bert`.
        steps: What follows the pooling, in order, before `normalize`: `"normalize"`, or
            dense layers such as `{"units": 768, "activation": "tanh", "use_bias": True}`, whose
            activation is `"linear"`, `"tanh"`, `"gelu"`, `"relu"`, `"silu"` or `"sigmoid"`.
        prompts: Texts to put before each text, by name, such as `{"query": "query: "}`.
        default_prompt_name: The name of the prompt that is used by default. `None`: no prompt.
        include_prompt: Whether the tokens of a prompt count in the pooling.
        include_special: Whether `[CLS]` and `[SEP]` count in the pooling.
        similarity: How `similar` compares vectors: `"cosine"`, `"dot"`, or the negative distances
            `"euclidean"` and `"manhattan"`.
        truncate_dim: Number of first elements of each vector that `embed` and exports return, for
            models trained with the Matryoshka loss. `None`: all.
        **options: `long_texts`, as in `SequenceClassifier`, for the vectors of windows;
            `tokenizer`, which converts strings to batches; and `name`.

    Call arguments: As for `SequenceClassifier`.

    Returns: Vectors `(B, E)`, where E is D without dense steps. Labels are int `(B,)`; a text with
        a negative label has no group.

    Raises:
        ValueError: `pooling`, a step or `similarity` is unknown, `max_len` or `truncate_dim` is out
            of range, or there is no prompt of the default name.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good fine bad poor film".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    embedder = kb.TextEmbedder(bert, tokenizer=kb.Tokenizer(vocab))
    embedder.compile(kb.BERTAdamW(2e-5))
    texts = ["a good film", "a fine film", "a bad film", "a poor film"]
    embedder.fit(texts, [0, 0, 1, 1], batch_size=4, shuffle=False)
    ```
    """

    task = "embed"
    preprocessing = SingleTexts
    command = "embed --file FILE"
    outputs = ("embedding",)
    fields = (
        *("pooling", "normalize", "steps", "prompts", "default_prompt_name", "include_prompt"),
        *("include_special", "similarity", "truncate_dim", "long_texts", "max_len"),
    )
    has_head = False
    labels_are = "groups"

    def __init__(
        self,
        bert: BERTModel,
        pooling: PoolingKind | Sequence[PoolingKind] = "mean",
        *,
        normalize: bool = True,
        max_len: int | None = None,
        steps: Sequence[Step] = (),
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        include_prompt: bool = True,
        include_special: bool = True,
        similarity: Similarity = "cosine",
        truncate_dim: int | None = None,
        **options: Option,
    ) -> None:
        bert = checked_bert(bert)
        head = Pooling(
            pooling,
            normalize=check_bool("normalize", normalize),
            steps=steps,
            include_special=check_bool("include_special", include_special),
            dtype=precise_policy(bert),
            name="head",
        )
        super().__init__(bert, head=head, **options)
        self.pooling, self.normalize, self.steps = head.pooling, normalize, head.steps
        self.include_special = include_special
        self.include_prompt = check_bool("include_prompt", include_prompt)
        is_right = include_prompt or self.long_texts == "cut"
        check_that(is_right, "include_prompt", "True with windows of `long_texts`", include_prompt)
        are_texts = prompts is None or isinstance(prompts, Mapping)
        are_texts = are_texts and all(isinstance(x, str) for x in (prompts or {}).values())
        check_that(are_texts, "prompts", "texts by names, such as {'query': 'query: '}", prompts)
        self.prompts = dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.prompt()
        self.similarity = check_choice("similarity", similarity, get_args(Similarity))
        if truncate_dim is not None:
            check_integer("truncate_dim", truncate_dim, 1)
        self.truncate_dim = truncate_dim
        if max_len is not None:
            checked_max_len(max_len, 3, self.bert_config.max_len)
        self.max_len = max_len

    @property
    def max_row_len(self) -> int:
        longest = super().max_row_len
        return self.max_len or longest if self.long_texts == "cut" else longest

    @property
    def features(self) -> tuple[str, ...]:  # type: ignore[override]
        return FEATURES if self.include_prompt else (*FEATURES, "prompt_lens")

    @property
    def embedding_width(self) -> int:
        """Number of elements of the vectors that `embed` and exports return."""
        width: int = self.head.width(self.bert_config.num_hiddens)
        return min(width, self.truncate_dim or width)

    def prompt(self, name: str | None = None) -> str:
        """Return the text to put before texts.

        Source: `encode`, `encode_query` and `encode_document` of sentence-transformers 6.2.

        Args:
            name: The name of a prompt. `None`: the default prompt. For `"query"` and
                `"document"`, an empty text if the model has no prompt of this name.

        Raises:
            ValueError: There is no prompt of this name.
        """
        prompts = {"query": "", "document": "", **self.prompts}
        name = self.default_prompt_name if name is None else name
        if name is None:
            return ""
        if name not in prompts:
            raise ValueError(
                f"A prompt's name must be one of {shown_names(prompts)}. Received: {shown(name)}. "
                "Add it to the `prompts` of the model, or pass the text of the prompt."
            )
        return prompts[name]

    def prompt_len(self, tokenizer: TextTokenizer, prompt: str, max_len: int) -> int:
        """Return the number of first tokens in a row that belong to `[CLS]` and a prompt."""
        if not prompt:
            return 0
        import tensorflow as tf

        with tf.init_scope():  # a number also where the texts are in a graph
            number = int(tokenizer.tokenize([prompt]).row_lengths()[0])
        return 1 + min(number, max_len - 2)

    def head_outputs(
        self, encoded_X: Tensor, is_token: Tensor | None = None, prompt_lens: Tensor | None = None
    ) -> Tensor:
        return self.head(encoded_X, is_token, prompt_lens)

    def answer(self, logits: Tensor) -> dict[str, Tensor]:
        return {"embedding": logits[:, : self.embedding_width]}

    def over_windows(self, *arguments: Any) -> Tensor:
        vectors = super().over_windows(*arguments)
        return unit(vectors) if self.normalize else vectors

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(ContrastiveLoss(), None)

    @property
    def is_order_free(self) -> bool:
        return self._rows_together == 1

    @property
    def _rows_together(self) -> int:
        """Number of successive texts that the loss compares."""
        loss = inner_loss(self.loss)
        return getattr(loss, "rows_together", 3 if hasattr(loss, "compares_rows") else 1)

    def _check_order(self, y: Any, batch_size: int, shuffle: bool) -> None:
        """Raise `ValueError` unless the texts of each pair stay together."""
        if y is None or self.is_order_free:
            return
        y = np.asarray(y).reshape(len(y), -1)[:, 0]
        inner, number = inner_loss(self.loss), self._rows_together
        loss = type(inner).__name__
        expected, advice = f"False for {loss}", "Omit it, and pass the pairs in random order."
        check_that(not shuffle, "shuffle", f"{expected}, which finds pairs by order", True, advice)
        in_a_pair = y >= 0 if isinstance(inner, RankingLoss) else np.ones(len(y), bool)
        labels = y[in_a_pair]
        pairs = labels[: len(labels) // number * number].reshape(-1, number)[:, :2]
        kind = "pairs" if number == 2 else "triplets"
        received = f"{len(labels)} texts in {kind}" if len(labels) % number else ""
        for first, second in pairs[pairs[:, 0] != pairs[:, 1]][:1]:
            received = f"the labels {first} and {second} for one pair"
        if received:
            raise ValueError(
                "The two texts of a pair must follow each other and have the same label for "
                f"{loss}. Received: {received}. Reorder the texts and their labels."
            )
        if (np.cumsum(in_a_pair)[batch_size - 1 :: batch_size] % number).any():
            raise ValueError(
                f"`batch_size` must not split a pair for {loss}. Received: "
                f"batch_size={batch_size}. Use a multiple of 2 for pairs, or of 3 for triplets, "
                "and put the texts of each pair next to each other."
            )

    def label_ids(self, y: object) -> Tensor:
        if not isinstance(y, list | tuple | np.ndarray):
            return y
        y, loss = np.asarray(y), inner_loss(self.loss)
        if isinstance(loss, CosineLoss | CoSENTLoss) or hasattr(loss, "compares_rows"):
            most, kind = float(np.finfo("float32").max), "numbers"
            if isinstance(loss, CosineLoss):
                most, kind = 1.0, "numbers from -1 to 1"
            is_right = np.abs(y) <= most if y.dtype.kind in "biuf" else np.zeros(y.shape, bool)
            _check_labels(y, is_right, f"{kind} for {type(loss).__name__}")
            return y
        if y.dtype.kind in "USO":
            return np.unique(y, return_inverse=True)[1]
        if isinstance(loss, ContrastiveLoss):
            is_right = np.isfinite(y) & (y == np.floor(y))
            advice = "For scores, compile with CosineLoss()."
            _check_labels(y, is_right, "whole numbers, which identify groups", advice)
        return y


def _check_labels(y: np.ndarray, is_right: np.ndarray, kind: str, advice: str = "") -> None:
    for index in np.argwhere(~is_right)[:1]:
        label = y[tuple(index)]
        label = label.item() if isinstance(label, np.generic) else label
        raise ValueError(
            f"`labels` must be {kind}. Received: {shown(label)} at index {index[0]}. "
            f"{advice}".rstrip()
        )
