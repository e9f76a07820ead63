"""BERT's optimiser and its learning rate, as serialisable Keras objects."""

import re
from typing import Any

import keras
from keras import ops

# The last words of the names of weights that are not decayed: biases and layer normalisation.
_NOT_DECAYED = ("bias", "gamma", "beta")
_IN_A_BLOCK = re.compile(r"(?:^|/)encoder/blk_(\d+)/")
_OF_EMBEDDINGS = re.compile(
    r"(?:^|/)encoder/(?:token_embedding|segment_embedding|pos_embedding|embedding_ln)(?:/|$)"
)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to a peak, then falls linearly to zero.

    Source: Devlin et al. 2019, appendix A.2; google-research/bert, optimization.py.

    Args:
        peak: The learning rate at the end of the warm-up.
        warmup_steps: Steps of the rise; the first step has the rate 0 if there are any.
        total_steps: Step at which the rate reaches 0.
        decay_from_start: Whether the falling line begins at step 0, as in google's code, whose
            rate drops by `warmup_steps / total_steps` when the warm-up ends; else at the peak.

    Raises:
        ValueError: `warmup_steps` is negative or not below `total_steps`.
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

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        rise = step / max(1, self.warmup_steps)
        first = 0 if self.decay_from_start else self.warmup_steps
        fall = ops.maximum(0.0, (self.total_steps - step) / (self.total_steps - first))
        return self.peak * ops.where(step < self.warmup_steps, rise, fall)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "decay_from_start": self.decay_from_start,
        }


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTAdamW(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, as BERT was trained with it.

    Three things differ from `keras.optimizers.AdamW`. Epsilon is added after the bias correction,
    as in PyTorch (Keras adds it before: most weights differ after a single step). The gradient is
    clipped by its global norm *after* the replicas' gradients have been summed. Biases and layer
    normalisation are not decayed.

    Source: Loshchilov and Hutter 2019; google-research/bert, optimization.py, whose
    `AdamWeightDecayOptimizer` has no bias correction.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Share of a weight that is taken off per unit of learning rate.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
        clip_norm: Largest global norm of the gradient; `None`: no clipping.
        bias_correction: Whether the moments' start at zero is corrected for (PyTorch) or not
            (google).
        layer_decay: By what the learning rate is multiplied from each block of an encoder to the
            one below it, and last to the embeddings; heads and the pooler, above the blocks, have
            the whole rate. 1: the same rate everywhere. Source: Clark et al. 2020 (ELECTRA),
            appendix A.
        name: Name of the optimiser.
        **kwargs: Other arguments of `keras.optimizers.Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Any = 1e-4,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = True,
        layer_decay: float = 1.0,
        name: str = "bert_adamw",
        **kwargs: Any,
    ) -> None:
        if clip_norm is not None and clip_norm <= 0:
            raise ValueError(f"`clip_norm` must be positive or None. Received: {clip_norm}.")
        if not 0 < layer_decay <= 1:
            raise ValueError(f"`layer_decay` must be in (0, 1]. Received: {layer_decay}.")
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.decay = weight_decay
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.clip_norm = clip_norm
        self.bias_correction = bias_correction
        self.layer_decay = layer_decay

    def build(self, variables: list[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(
            variables, ["first_moment", "second_moment"]
        )
        self._decayed = [variable.name not in _NOT_DECAYED for variable in variables]
        depths = depths_below_the_head([variable.path for variable in variables])
        self._shares = [self.layer_decay**depth for depth in depths]  # of the learning rate

    def _clip(self, gradients: list[Any]) -> list[Any]:
        if self.clip_norm is None:
            return gradients
        norm = ops.sqrt(sum(ops.sum(ops.square(ops.cast(g, "float32"))) for g in gradients))
        scale = self.clip_norm / ops.maximum(norm, self.clip_norm)
        return [gradient * ops.cast(scale, gradient.dtype) for gradient in gradients]

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """Sums over replicas, then clips. Keras's TensorFlow optimizer calls it once a step."""
        import tensorflow as tf

        # An embedding's gradient comes as slices, several of which may belong to one row: they
        # have to be added up before anything is squared.
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars]
        gradients, variables = zip(*super()._all_reduce_sum_gradients(pairs), strict=True)
        return list(zip(self._clip(list(gradients)), variables, strict=True))

    def _clip_gradients(self, grads: Any) -> Any:
        # On TensorFlow the replicas' gradients are not yet summed here: see above.
        return grads if keras.backend.backend() == "tensorflow" else self._clip(grads)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        dtype = variable.dtype
        gradient = ops.cast(gradient, dtype)
        rate = ops.cast(learning_rate, dtype) * self._shares[index]
        if self._decayed[index]:
            self.assign_sub(variable, rate * self.decay * variable)
        beta_1, beta_2 = (ops.cast(beta, dtype) for beta in (self.beta_1, self.beta_2))
        power_1 = power_2 = ops.zeros((), dtype)
        if self.bias_correction:
            step = ops.cast(self.iterations + 1, dtype)
            power_1, power_2 = ops.power(beta_1, step), ops.power(beta_2, step)
        # The second moment's correction, taken out of its root, meets epsilon and the rate.
        correction = ops.sqrt(1 - power_2)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            # One operation: each of those below would read and write all the weights again.
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

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("clipnorm", "global_clipnorm", "clipvalue"):  # ours is `clip_norm`
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


def depths_below_the_head(paths: list[str]) -> list[int]:
    """Returns how many layers lie between weights and the heads, by the paths of the weights.

    Heads, the pooler and a last normalisation are at 0, the last block at 1, the first of L
    blocks at L, the embeddings at L + 1.
    """
    blocks = [int(match[1]) for path in paths if (match := _IN_A_BLOCK.search(path))]
    num_blks = max(blocks, default=-1) + 1

    def depth(path: str) -> int:
        if match := _IN_A_BLOCK.search(path):
            return num_blks - int(match[1])
        return num_blks + 1 if _OF_EMBEDDINGS.search(path) else 0

    return [depth(path) for path in paths]
