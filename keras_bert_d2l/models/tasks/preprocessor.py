"""Preprocessor: from strings and labels to what a task model takes.

B texts, R rows, T tokens.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras

from keras_bert_d2l.checks import is_in_graph
from keras_bert_d2l.models.batch_model import TextTokenizer, check_vocab_size
from keras_bert_d2l.models.tasks.text_inputs import Batch, Texts, check_sizes, flat, single_or_pairs
from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    from keras_bert_d2l.models.tasks.text_model import TextModel

FEATURES = ("tokens", "segments", "valid_lens")


class Preprocessor:
    """Converts strings to token ids, as `fit`, `predict` and exports of a task model do.

    A task model with a tokenizer has one, `model.preprocessor`. It works eagerly, in a
    `tf.function` and in `tf.data.Dataset.map`, after batching. In a graph, labels must be ids.

    Args:
        model: The task model, which says how long rows may be.
        tokenizer: Converts strings to token ids.
        max_len: Maximum number of tokens in a row. `None`: that of the model.

    Call arguments:
        x: Strings `(B,)`, `{"texts": ..., "texts_b": ...}` for pairs, or what else `fit` of the
            model takes.
        y: Labels, as for `fit`.
        sample_weight: Weights, `(B,)`.

    Returns: a batch `{"tokens": (R, T), "segments": (R, T), "valid_lens": (R,)}`, int32. With
        labels, the tuple of the batch and the labels, and with weights also of these. R is B,
        unless long texts are split into several rows.

    Raises:
        ValueError: The strings or the labels are not what the model takes.

    Example:

    ```python
    import keras_bert_d2l as kb
    import tensorflow as tf

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    model = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=kb.Tokenizer(vocab))
    model.preprocessor(["what a film"])["tokens"]
    dataset = tf.data.Dataset.from_tensor_slices((["what a film", "a bore"], [1, 0]))
    for batch, labels in dataset.batch(2).map(model.preprocessor):
        print(batch["tokens"].shape, labels)
    ```
    """

    keys: tuple[str, ...] = ("texts", "texts_b")  # of strings in a dictionary

    def __init__(
        self, model: "TextModel", tokenizer: TextTokenizer, max_len: int | None = None
    ) -> None:
        self.model, self.tokenizer, self._max_len = model, tokenizer, max_len
        self._traced: Callable[[Texts], Batch] | None = None

    def max_len(self, num_texts: int = 1) -> int:
        """Return the maximum number of tokens in the row of one text, or of the 2 of a pair."""
        if self._max_len is not None:
            return self._max_len
        return self.model.max_row_len if num_texts == 1 else self.model.bert_config.max_len

    def __call__(self, x: Any, y: Any = None, sample_weight: Tensor | None = None) -> Any:
        texts = x
        parts = keras.tree.flatten(x)
        if any(is_in_graph(getattr(part, "flat_values", part)) for part in parts):
            batch = self._rows_of(texts)
        else:
            check_vocab_size(self.tokenizer, self.model.bert_config)
            x, y, sample_weight = self.model.plain(x, y, sample_weight)
            texts = self.checked(x, y)
            check_sizes([texts, *(part for part in (y, sample_weight) if part is not None)])
            batch = self._traced_rows(texts)
        rest = [part for part in (y, sample_weight) if part is not None]
        features = {name: batch[name] for name in FEATURES}
        return (features, *self.targets(texts, batch, *rest)) if rest else features

    def of_equal_length(self, x: Any) -> Batch:
        """Return the batch of a call in a graph, padded to the maximum length."""
        batch = self._rows_of(x)
        return self.padded({name: batch[name] for name in FEATURES}, self.max_len(len(self.keys)))

    def padded(self, batch: Batch, length: Any) -> Batch:
        """Pad the features of a batch whose rows have at most `length` tokens."""
        import tensorflow as tf

        rank = batch["tokens"].shape.rank
        more = [[0, 0]] * (rank - 1) + [[0, length - tf.shape(batch["tokens"])[-1]]]
        pad_id = {"tokens": self.tokenizer.vocab.pad_id}
        return {
            name: tf.pad(x, more, constant_values=pad_id.get(name, 0))
            if x.shape.rank == rank
            else x
            for name, x in batch.items()
        }

    def checked(self, x: Any, y: Tensor | None = None) -> Texts:
        """Convert in-memory strings to tensors; raise `ValueError` if the task cannot use them."""
        return single_or_pairs(x)

    def rows(self, *texts: Any, **options: Any) -> Batch:
        """Return the rows of texts, or of pairs of texts, `(B, T)`; T is that of the longest row.

        Args:
            *texts: Strings, `(B,)` each.
            **options: `truncation`, as for `Tokenizer`; other ones in subclasses.

        Returns: also `num_tokens`, the number of tokens of each text or pair before it was
            truncated, `(B,)`.
        """
        sides = [self.tokenizer.tokenize(side) for side in texts]
        num_tokens = sum(side.row_lengths() for side in sides)
        num_tokens += self.tokenizer.vocab.num_added(len(sides))
        max_len = self.max_len(len(sides))
        batch = self.tokenizer.frame(*sides, max_len=max_len, pad=False, **options)
        return {**batch, "num_tokens": num_tokens}

    def targets(
        self, texts: Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the labels, and the weights if any, that belong to the rows `batch`."""
        return labels, *weights

    def _rows_of(self, texts: Texts) -> Batch:
        """Return the `rows` of string tensors, or of a dictionary of them."""
        sides = texts if isinstance(texts, Mapping) else {self.keys[0]: texts}
        needed = set(self.keys) - {"texts_b"}
        if not needed <= set(sides) <= set(self.keys):
            raise ValueError(
                f"A batch of strings for a {type(self.model).__name__} has the keys "
                f"{list(self.keys)}. Received: the keys {sorted(sides)}."
            )
        if any(side.shape.rank == 0 for side in sides.values()):
            raise ValueError(
                "A preprocessor converts batches. Received: single strings. Batch the dataset "
                "first: `dataset.batch(32).map(model.preprocessor)`."
            )
        return self.rows(*(flat(sides[name]) for name in self.keys if name in sides))

    def _traced_rows(self, texts: Texts) -> Batch:
        """Return rows from a graph, which is traced once because that takes a second."""
        import tensorflow as tf

        if self._traced is None:
            self._traced = tf.function(self._rows_of, reduce_retracing=True, autograph=False)
        return self._traced(texts)
