"""Pack the rows of a padded batch, so that a model spends little time on padding.

B examples, one per row before; R rows after, with T tokens and at most E examples each; P
predictions in the batch.
"""

import math
from typing import TypeAlias

import numpy as np

from keras_bert_d2l.data.pretraining.packing import pack

Arrays: TypeAlias = dict[str, np.ndarray]

_MAX_EXAMPLES = 8  # E
_SPARE = 1.06  # rows and predictions to allocate, relative to the first batch


class Repacking:
    """Puts several examples of a padded batch into each row; the losses stay the same.

    All batches get the shapes that the first one needs, and a little more, because a training step
    is compiled for each shape. A batch that needs even more gets larger shapes.

    Args:
        max_len: T, at least the length of the padded rows.

    Example:

    ```python
    import numpy as np
    from keras_bert_d2l.data.pretraining.repacking import Repacking

    features = {"tokens": np.array([[1, 7, 2, 0], [1, 8, 9, 2], [1, 2, 0, 0]])}
    features |= {"segments": np.zeros((3, 4), "int32"), "valid_lens": np.array([3, 4, 2])}
    features |= {"pred_positions": np.array([[1, 0], [1, 2], [0, 0]])}
    weights = {"mlm": np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), "nsp": np.ones(3)}
    labels = {"mlm": np.array([[5, 0], [6, 7], [0, 0]]), "nsp": np.array([1, 0, 1])}
    packed, labels, weights = Repacking(max_len=8)(features, labels, weights)
    assert packed["flat_positions"].shape == (1, 4)
    ```
    """

    def __init__(self, max_len: int) -> None:
        self.max_len = max_len
        self._sizes = (0, 0)  # R and P

    def __call__(
        self, features: Arrays, labels: Arrays, weights: Arrays
    ) -> tuple[Arrays, Arrays, Arrays]:
        """Pack a batch.

        Args:
            features: `tokens` and `segments`, int `(B, T)`; `valid_lens`, int `(B,)`; and
                `pred_positions`, int `(B, P)`.
            labels: `mlm`, int `(B, P)`; and `nsp`, int `(B,)`.
            weights: `mlm`, float `(B, P)`, 0 for padding; and `nsp`, float `(B,)`.

        Returns:
            A batch like those of `pretraining_dataset(rows="packed")`, except that
            `flat_positions` `(1, P)` counts the positions of the predictions over all rows; see
            `MaskLM`.
        """
        random = np.random.default_rng(0)  # the order of the rows does not matter
        lengths = features["valid_lens"]
        order, splits = pack(
            lengths, max_len=self.max_len, max_examples=_MAX_EXAMPLES, random=random
        )
        lengths, starts = lengths[order], splits[:-1]
        row = np.repeat(np.arange(len(starts)), np.diff(splits))  # of each example
        number = np.arange(len(order)) - starts[row]  # of each example in its row
        begin = np.cumsum(lengths) - lengths
        begin -= begin[starts][row]  # of each example in its row

        real_tokens = np.arange(features["tokens"].shape[1]) < lengths[:, None]
        example, position = np.nonzero(real_tokens)
        predicting, slot = np.nonzero(weights["mlm"][order])
        num_rows, num_predictions = self._allocate(len(starts), len(slot))

        def by_token(values: np.ndarray) -> np.ndarray:
            table = np.zeros((num_rows, self.max_len), np.int32)
            table[row[example], begin[example] + position] = values
            return table

        def by_example(values: np.ndarray) -> np.ndarray:
            table = np.zeros((num_rows, _MAX_EXAMPLES), values.dtype)
            table[row, number] = values
            return table

        def by_prediction(values: np.ndarray) -> np.ndarray:
            return np.pad(values, (0, num_predictions - len(values)))[np.newaxis]

        def predicted(values: np.ndarray) -> np.ndarray:
            return values[order][predicting, slot]

        row_begin = row * self.max_len + begin
        packed = {
            "tokens": by_token(features["tokens"][order][real_tokens]),
            "segments": by_token(features["segments"][order][real_tokens]),
            "valid_lens": np.maximum(np.bincount(row, lengths, num_rows), 1).astype(np.int32),
            "flat_positions": by_prediction(
                predicted(features["pred_positions"]) + row_begin[predicting]
            ),
            "example_ids": by_token(number[example] + 1),
            "position_ids": by_token(position),
            "cls_positions": by_example(begin),
        }
        labels, weights = (
            {"mlm": by_prediction(predicted(x["mlm"])), "nsp": by_example(x["nsp"][order])}
            for x in (labels, weights)
        )
        return packed, labels, weights

    def _allocate(self, num_rows: int, num_predictions: int) -> tuple[int, int]:
        """Return R and P, which leave room for larger batches."""
        rows, predictions = self._sizes
        if num_rows > rows or num_predictions > predictions:
            rows = max(rows, math.ceil(num_rows * _SPARE))
            predictions = max(predictions, math.ceil(num_predictions * _SPARE))
            self._sizes = rows, predictions
        return self._sizes
