"""Strings in memory or in a data set in, batches of token ids out, by a tokenizer that is given.

B batch, T tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert_d2l.config import BERTConfig


def is_dataset(x: Any) -> bool:
    """Tells whether `x` is a `tf.data.Dataset`."""
    import tensorflow as tf

    return isinstance(x, tf.data.Dataset)


def holds_text(x: Any) -> bool:
    """Tells whether the features `x` are strings: a list, an array, a tensor or a data set.

    Raises:
        ValueError: A list has nothing in it that could tell.
    """
    if is_dataset(x):
        import tensorflow as tf

        features = x.element_spec[0] if isinstance(x.element_spec, tuple) else x.element_spec
        return any(spec.dtype == tf.string for spec in tf.nest.flatten(features))
    if isinstance(x, Mapping):
        return any(holds_text(value) for value in x.values())
    if isinstance(x, list | tuple):
        for value in x:
            if not isinstance(value, list | tuple) or value:  # a text may have no words
                return holds_text(value)
        raise ValueError(f"There must be one text or more, with a word in it. Received: {x!r:.80}.")
    if isinstance(x, str | bytes):
        return True
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "US" or (x.dtype == object and holds_text(x.tolist()))
    return str(getattr(x, "dtype", "")) in ("string", "<dtype: 'string'>")


def as_tensors(x: Any) -> Any:
    """Returns strings as string tensors: lists of words as ragged ones, the rest dense."""
    import tensorflow as tf

    if isinstance(x, Mapping):
        return {name: as_tensors(value) for name, value in x.items()}
    if isinstance(x, tf.Tensor | tf.RaggedTensor):
        return x
    if isinstance(x, str | bytes):
        raise ValueError(f"Texts must be a list of strings. Received: the string {x!r:.80}.")
    if len(x) and isinstance(x[0], list | tuple):
        return tf.ragged.constant([list(words) for words in x], tf.string, ragged_rank=1)
    return tf.convert_to_tensor(list(x), tf.string)


def check_vocab_size(tokenizer: Any, config: BERTConfig) -> None:
    """Raises a `ValueError` where a tokenizer has not the tokens that the model was made for."""
    expected, received = config.vocab_size, len(tokenizer.vocab)
    if received != expected:
        raise ValueError(
            f"The tokenizer's vocabulary must have the {expected} tokens that the model was made "
            f"for. Received: a tokenizer with {received} tokens; use the model's own vocabulary."
        )


def batched(x: Any, y: Any, sample_weight: Any, batch_size: int, shuffle: bool) -> Any:
    """Returns a data set of batches of strings with their labels and weights, where there are."""
    import tensorflow as tf

    if isinstance(sample_weight, list | tuple):
        sample_weight = np.asarray(sample_weight)
    parts = [as_tensors(x)] + [part for part in (y, sample_weight) if part is not None]
    sizes = {_size(part) for part in tf.nest.flatten(parts)}
    if len(sizes) > 1:
        raise ValueError(
            f"Texts, labels and weights must be equally many. Received: {sorted(sizes)}."
        )
    if isinstance(y, tf.RaggedTensor):
        _check_word_counts(parts[0], y)
    dataset = tf.data.Dataset.from_tensor_slices(tuple(parts) if len(parts) > 1 else parts[0])
    if shuffle:
        dataset = dataset.shuffle(max(1, *sizes))
    return dataset.batch(batch_size)


def traced(text_batch: Callable[[Any], dict[str, Any]]) -> Any:
    """Returns a function that makes trimmed batches, and its graph once, which takes a second."""
    import tensorflow as tf

    def batch(texts: Any) -> dict[str, Any]:
        return trimmed(text_batch(texts))

    return tf.function(batch, reduce_retracing=True, autograph=False)


def tokenized(
    dataset: Any,
    text_batch: Callable[[Any], dict[str, Any]],
    features: Sequence[str],
    text_targets: Callable[..., tuple[Any, ...]],
) -> Any:
    """Returns a data set with the tokens of its batches of strings.

    Args:
        dataset: Batches of strings, alone or with labels and with weights.
        text_batch: Makes the features of the strings, and what else their labels need.
        features: The names of the features.
        text_targets: Makes the labels, and the weights where there are, of the strings, what
            `text_batch` returned, and the labels and weights of the strings.
    """
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert  # nothing to convert, which takes seconds
    def with_tokens(texts: Any, *rest: Any) -> Any:
        batch = text_batch(texts)
        of_model = {name: batch[name] for name in features}
        return (of_model, *text_targets(texts, batch, *rest)) if rest else of_model

    if isinstance(dataset.element_spec, tuple):
        mapped = dataset.map(with_tokens, num_parallel_calls=tf.data.AUTOTUNE)
    else:  # a dictionary is one argument
        mapped = dataset.map(lambda texts: with_tokens(texts), num_parallel_calls=tf.data.AUTOTUNE)
    return mapped.prefetch(tf.data.AUTOTUNE)


def trimmed(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tokenizer's batch, as long as its longest row."""
    import tensorflow as tf

    # 1 stands for a batch without a row.
    longest = tf.reduce_max(tf.concat([batch["valid_lens"], [1]], axis=0))
    return {name: x[:, :longest] if x.shape.rank == 2 else x for name, x in batch.items()}


def first_piece_labels(labels: Any, word_ids: Any, ignored: int) -> Any:
    """Gives the labels of words to the first token of each.

    Args:
        labels: int, ragged `(B, None)`, a label for each word.
        word_ids: The word of each token, -1 for none, int `(B, T)`.
        ignored: The label of all other tokens.

    Returns: int32 `(B, T)`.
    """
    import tensorflow as tf

    before = tf.pad(word_ids[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    is_first = (word_ids >= 0) & (word_ids != before)
    # One column more, so that a batch without a word has something to gather.
    dense = tf.pad(tf.cast(labels.to_tensor(ignored), tf.int32), [[0, 0], [0, 1]])
    by_token = tf.gather(dense, tf.maximum(word_ids, 0), batch_dims=1)
    return tf.where(is_first, by_token, ignored)


def _check_word_counts(words: Any, labels: Any) -> None:
    import tensorflow as tf

    if words.shape.rank != 2:
        raise ValueError(
            "Words must be a list of words for each text, or ragged strings (B, None). Received: "
            f"{words.dtype.name} of shape {words.shape}."
        )
    if not isinstance(words, tf.RaggedTensor):
        words = tf.RaggedTensor.from_tensor(words)
    of_words, of_labels = words.row_lengths().numpy(), labels.row_lengths().numpy()
    for row in np.flatnonzero(of_words != of_labels)[:1]:
        raise ValueError(
            f"Every word needs a label. Received: {of_words[row]} words but {of_labels[row]} "
            f"labels in text {row}."
        )


def _size(part: Any) -> int:
    import tensorflow as tf

    return int(part.nrows()) if isinstance(part, tf.RaggedTensor) else int(np.shape(part)[0])
