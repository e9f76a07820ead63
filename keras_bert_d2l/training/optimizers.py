"""BERT's optimizer and its learning-rate schedule, as serializable Keras objects."""

import re
from collections.abc import Iterable
from typing import TypedDict, Unpack

import keras
from keras import ops

from keras_bert_d2l.types import Tensor

# Names of the weights without weight decay: biases and the layer normalization parameters.
_NOT_DECAYED = ("bias", "gamma", "beta")
_IN_A_BLOCK = re.compile(r"(?:^|/)encoder/blk_(\d+)/")
_OF_EMBEDDINGS = re.compile(
    r"(?:^|/)encoder/(?:token_embedding|segment_embedding|pos_embedding|embedding_ln)(?:/|$)"
)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to a peak, then falls linearly to zero.

    Source: Devlin et al. 2019, appendix A.2; google-research/bert, optimization.py.

    Args:
        peak: Learning rate at the end of the warm-up.
        warmup_steps: Number of warm-up steps. If positive, the first step has the rate 0.
        total_steps: Step at which the rate reaches 0.
        decay_from_start: Start the linear decay at step 0 instead of at the peak. Google's code
            does this, so its rate drops by `peak * warmup_steps / total_steps` after the warm-up.

    Raises:
        ValueError: `warmup_steps` is negative or not below `total_steps`.

    Example:

    ```python
    import keras_bert_d2l as kb

    schedule = kb.WarmupLinearDecay(1e-3, warmup_steps=100, total_steps=1000)
    schedule(50)  # 0.0005
    ```
    """

    def __init__(
        self, peak: float, warmup_steps: int, total_steps: int, *, decay_from_start: bool = False
    ) -> None:
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. Received: "
                f"warmup_steps={warmup_steps}, total_steps={total_steps}."
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.decay_from_start = decay_from_start

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")
        rise = step / max(1, self.warmup_steps)
        first = 0 if self.decay_from_start else self.warmup_steps
        fall = ops.maximum(0.0, (self.total_steps - step) / (self.total_steps - first))
        return self.peak * ops.where(step < self.warmup_steps, rise, fall)

    def get_config(self) -> dict[str, float | bool]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "decay_from_start": self.decay_from_start,
        }


class OptimizerOptions(TypedDict, total=False):
    """Keyword arguments that `BERTAdamW` passes to `keras.optimizers.Optimizer`."""

    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTAdamW(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, as used to train BERT.

    It differs from `keras.optimizers.AdamW` in three ways. Epsilon is added after the bias
    correction, as in PyTorch (Keras adds it before, which changes most weights after one step).
    The gradient is clipped by its global norm *after* the replicas' gradients are summed. Biases
    and layer normalization have no weight decay.

    Source: Loshchilov and Hutter 2019; google-research/bert, optimization.py, whose
    `AdamWeightDecayOptimizer` has no bias correction.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Fraction of a weight that is subtracted, per unit of learning rate.
        beta_1: Exponential decay rate of the first moment.
        beta_2: Exponential decay rate of the second moment.
        epsilon: Added to the square root of the second moment.
        clip_norm: Maximum global norm of the gradient. `None` disables clipping.
        bias_correction: Correct the bias of moments that start at zero, as in PyTorch. Google's
            code does not.
        layer_decay: Factor by which the learning rate shrinks from each encoder block to the one
            below, down to the embeddings. The heads and the pooler use the full rate. 1 means the
            same rate for all layers. Source: Clark et al. 2020 (ELECTRA), appendix A.
        name: Name of the optimizer.
        **options: Other arguments of `keras.optimizers.Optimizer`; see `OptimizerOptions`.

    Raises:
        ValueError: `clip_norm` or `layer_decay` is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel(100, 16, 32, num_heads=2, num_blks=1, dropout=0.1)
    model.compile(kb.BERTAdamW(kb.WarmupLinearDecay(1e-3, 100, 1000), weight_decay=0.01))
    ```
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-4,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = True,
        layer_decay: float = 1.0,
        name: str = "bert_adamw",
        **options: Unpack[OptimizerOptions],
    ) -> None:
        if clip_norm is not None and clip_norm <= 0:
            raise ValueError(f"`clip_norm` must be positive or None. Received: {clip_norm}.")
        if not 0 < layer_decay <= 1:
            raise ValueError(f"`layer_decay` must be in (0, 1]. Received: {layer_decay}.")
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.decay = weight_decay
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.clip_norm = clip_norm
        self.bias_correction = bias_correction
        self.layer_decay = layer_decay

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(
            variables, ["first_moment", "second_moment"]
        )
        self._decayed = [variable.name not in _NOT_DECAYED for variable in variables]
        depths = depths_below_the_head([variable.path for variable in variables])
        self._rate_factors = [self.layer_decay**depth for depth in depths]

    def _clip(self, gradients: list[Tensor]) -> list[Tensor]:
        if self.clip_norm is None:
            return gradients
        norm = ops.sqrt(sum(_squared_norm(ops.cast(g, "float32")) for g in gradients))
        scale = self.clip_norm / ops.maximum(norm, self.clip_norm)
        return [gradient * ops.cast(scale, gradient.dtype) for gradient in gradients]

    def _all_reduce_sum_gradients(
        self, grads_and_vars: Iterable[tuple[Tensor, keras.Variable]]
    ) -> list[tuple[Tensor, keras.Variable]]:
        """Sum gradients over replicas, then clip. The TensorFlow backend calls this every step."""
        import tensorflow as tf

        # The gradient of an embedding is sparse, and several slices may belong to the same row.
        # Converting to a dense tensor adds them, which must happen before squaring.
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars]
        gradients, variables = zip(*super()._all_reduce_sum_gradients(pairs), strict=True)
        return list(zip(self._clip(list(gradients)), variables, strict=True))

    def _clip_gradients(self, grads: list[Tensor]) -> list[Tensor]:
        # With TensorFlow, the gradients of the replicas are not yet summed here (see above).
        return grads if keras.backend.backend() == "tensorflow" else self._clip(grads)

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        dtype = variable.dtype
        gradient = ops.cast(gradient, dtype)
        rate = ops.cast(learning_rate, dtype) * self._rate_factors[index]
        if self._decayed[index]:
            self.assign_sub(variable, rate * self.decay * variable)
        beta_1, beta_2 = (ops.cast(beta, dtype) for beta in (self.beta_1, self.beta_2))
        power_1 = power_2 = ops.zeros((), dtype)
        if self.bias_correction:
            step = ops.cast(self.iterations + 1, dtype)
            power_1, power_2 = ops.power(beta_1, step), ops.power(beta_2, step)
        # Correcting the learning rate and epsilon is equivalent to correcting the moments.
        correction = ops.sqrt(1 - power_2)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            # One fused operation is faster: each operation below reads and writes all weights.
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.value.handle,
                v=second.value.handle,
                beta1_power=power_1,
                beta2_power=power_2,
                lr=rate,
                beta1=beta_1,
                beta2=beta_2,
                epsilon=self.epsilon * correction,
                grad=gradient,
            )
            return
        self.assign(first, first + (gradient - first) * (1 - beta_1))
        self.assign(second, second + (ops.square(gradient) - second) * (1 - beta_2))
        root = ops.sqrt(second) + self.epsilon * correction
        self.assign_sub(variable, rate * correction / (1 - power_1) * first / root)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        for name in ("clipnorm", "global_clipnorm", "clipvalue"):  # replaced by `clip_norm`
            config.pop(name)
        return {
            **config,
            "weight_decay": self.decay,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "clip_norm": self.clip_norm,
            "bias_correction": self.bias_correction,
            "layer_decay": self.layer_decay,
        }


def _squared_norm(x: Tensor) -> Tensor:
    if keras.backend.backend() != "tensorflow":
        return ops.sum(ops.square(x))
    import tensorflow as tf

    return 2 * tf.nn.l2_loss(x)  # unlike the above, does not write the squares to memory


def depths_below_the_head(paths: list[str]) -> list[int]:
    """Return the number of layers between each weight and the heads, given the weight paths.

    The heads, the pooler and the final normalization have depth 0, the last block 1, the first of
    L blocks L, and the embeddings L + 1.
    """
    blocks = [int(match[1]) for path in paths if (match := _IN_A_BLOCK.search(path))]
    num_blks = max(blocks, default=-1) + 1

    def depth(path: str) -> int:
        if match := _IN_A_BLOCK.search(path):
            return num_blks - int(match[1])
        return num_blks + 1 if _OF_EMBEDDINGS.search(path) else 0

    return [depth(path) for path in paths]
