"""Moving averages of the weights, which are evaluated and saved instead of the weights."""

from collections.abc import Mapping

import keras


class Averages(keras.callbacks.Callback):
    """Callback that trains the weights, but evaluates and saves their moving averages.

    The optimizer has `use_ema`. Except during the steps of an epoch, the model has the averages,
    and the optimizer has the weights in their place. The state of a run therefore contains both.

    Put it first, because other callbacks save the model.

    Args:
        model: The compiled model with its initial weights. Its optimizer must be built.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        optimizer = model.optimizer
        self.optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # float16 scales losses
        self.optimizer.use_ema = False
        for weight, average in self._pairs():
            average.assign(keras.ops.copy(weight))  # with JAX, `fit` frees the weight

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._swap()
        self.optimizer.use_ema = True

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self.end_steps()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self.end_steps()  # after an epoch without an evaluation

    def end_steps(self) -> None:
        """Give the model its averages after the last step before it is saved or evaluated."""
        if self.optimizer.use_ema:
            self.optimizer.use_ema = False  # otherwise, `fit` overwrites the weights at its end
            self._swap()

    def _pairs(self) -> list[tuple[keras.Variable, keras.Variable]]:
        averages = self.optimizer._model_variables_moving_average
        return list(zip(self.optimizer._trainable_variables, averages, strict=True))

    def _swap(self) -> None:
        for weight, average in self._pairs():
            value = keras.ops.convert_to_numpy(weight).copy()
            weight.assign(average)
            average.assign(value)
