"""Optimizers for BERT, as serializable Keras objects, and the one that a run uses."""

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

import keras
from keras import ops

from keras_bert_d2l.checks import check_choice, check_not_negative, check_positive, shown
from keras_bert_d2l.training.optimization.schedules import SCHEDULES, WarmupSchedule
from keras_bert_d2l.training.options import StepOptions
from keras_bert_d2l.types import Option, Tensor

Moments: TypeAlias = tuple[list[keras.Variable], list[keras.Variable | None]]

_RMS_OF_ADAM = 0.2  # root mean square of Adam's steps, divided by the learning rate
# Names of the weights without weight decay: biases and the layer normalization parameters.
_NOT_DECAYED = ("bias", "gamma", "beta")
_CLIPPING_OF_KERAS = ("clipnorm", "global_clipnorm", "clipvalue")
_CRF_RATE = 100.0  # a few hundred steps at the rate of the encoder would leave them near 0
_IN_A_BLOCK = re.compile(r"(?:^|/)encoder/blk_(\d+)/")
_OF_EMBEDDINGS = re.compile(
    r"(?:^|/)encoder/(?:(?:token|segment|pos)_embedding|embedding_ln|embedding_projection"
    r"|relative_bias|relative_embeddings|conv)(?:/|$)"
)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTAdamW(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, as used to train BERT.

    It differs from `keras.optimizers.AdamW` in three ways. Epsilon is added after the bias
    correction, as in PyTorch (Keras adds it before, which changes most weights after one step).
    The gradient is clipped by its global norm *after* the replicas' gradients are summed. Biases
    and layer normalization have no weight decay. The weights of a CRF, which begin at zero, have a
    hundred times the learning rate.

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
        **options: Other arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: An argument is out of range, or another option of Keras for clipping is set.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel(100, 16, 32, num_heads=2, num_blks=1, dropout=0.1)
    model.compile(kb.BERTAdamW(kb.WarmupLinearDecay(1e-3, 100, 1000), weight_decay=0.01))
    ```
    """

    gradient_norms: keras.Variable | None = None  # set by `add_gradient_norms`

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
        **options: Option,
    ) -> None:
        if not callable(learning_rate):
            check_not_negative("learning_rate", learning_rate)
        check_not_negative("weight_decay", weight_decay)
        check_not_negative("beta_1", beta_1, below=1)
        check_not_negative("beta_2", beta_2, below=1)
        check_not_negative("epsilon", epsilon)
        if clip_norm is not None:
            check_positive("clip_norm", clip_norm)
        check_positive("layer_decay", layer_decay, most=1)
        for option in _CLIPPING_OF_KERAS:
            if (value := options.get(option)) is not None:
                raise ValueError(
                    f"Use `clip_norm` instead of `{option}`: it clips the global norm of the "
                    f"gradient. Received: {option}={shown(value)}."
                )
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
        self._first_moments, self._second_moments = self._add_moments(variables)
        self._decayed = [
            variable.name not in _NOT_DECAYED and self._use_weight_decay(variable)
            for variable in variables
        ]
        depths = depths_below_the_head([variable.path for variable in variables])
        self._rate_factors = [
            self.layer_decay**depth * (_CRF_RATE if "crf" in variable.path.split("/") else 1)
            for depth, variable in zip(depths, variables, strict=True)
        ]

    def _add_moments(self, variables: list[keras.Variable]) -> Moments:
        return self.add_optimizer_variables(variables, ["first_moment", "second_moment"])

    def _clip(self, gradients: list[Tensor]) -> list[Tensor]:
        if self.clip_norm is None:
            return gradients
        norm = ops.sqrt(sum(_squared_norm(ops.cast(g, "float32")) for g in gradients))
        if self.gradient_norms is not None:
            self.assign_add(self.gradient_norms, ops.stack([norm, ops.ones_like(norm)]))
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
        rate = ops.cast(learning_rate, variable.dtype) * self._rate_factors[index]
        if self._decayed[index]:
            # Fewer passes over memory than `assign_sub`, and as in PyTorch.
            self.assign(variable, variable * (1 - rate * self.decay))
        beta_1, beta_2, power_1, power_2 = self._betas(variable.dtype)
        # Correcting the learning rate and epsilon is equivalent to correcting the moments.
        correction = ops.sqrt(1 - power_2)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            # One fused operation is faster: each operation below reads and writes all weights.
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=self._first_moments[index].value.handle,
                v=self._second_moments[index].value.handle,
                beta1_power=power_1,
                beta2_power=power_2,
                lr=rate,
                beta1=beta_1,
                beta2=beta_2,
                epsilon=self.epsilon * correction,
                grad=ops.cast(gradient, variable.dtype),
            )
            return
        first, second = self._first_moments[index], self._second_moments[index]
        gradient = ops.cast(gradient, first.dtype)
        self.assign(first, first + (gradient - first) * (1 - self.beta_1))
        self.assign(second, second + (ops.square(gradient) - second) * (1 - self.beta_2))
        root = ops.sqrt(second) + self.epsilon * correction
        self.assign_sub(variable, rate * correction / (1 - power_1) * first / root)

    def _betas(self, dtype: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return both decay rates, and their powers for the bias correction (0 without it)."""
        beta_1, beta_2 = (ops.cast(beta, dtype) for beta in (self.beta_1, self.beta_2))
        if not self.bias_correction:
            return beta_1, beta_2, ops.zeros((), dtype), ops.zeros((), dtype)
        step = ops.cast(self.iterations + 1, dtype)
        return beta_1, beta_2, ops.power(beta_1, step), ops.power(beta_2, step)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        for name in _CLIPPING_OF_KERAS:  # replaced by `clip_norm`
            config.pop(name)
        names = ("beta_1", "beta_2", "epsilon", "clip_norm", "bias_correction", "layer_decay")
        own = {name: getattr(self, name) for name in names}
        return {**config, "weight_decay": self.decay, **own}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTMuon(BERTAdamW):
    """Muon for the kernels of the encoder blocks, and AdamW for all other weights.

    Muon makes the momentum of a kernel approximately orthogonal. Its step has the size of Adam's,
    so learning rates and weight decays for AdamW also suit Muon. Embeddings, heads, the pooler,
    biases, layer normalization and LoRA weights are trained by `BERTAdamW`.

    It differs from `keras.optimizers.Muon` in what `BERTAdamW` does differently, and in that the
    kernels of the heads are excluded by default.

    Source: Jordan et al. 2024, github.com/KellerJordan/Muon; Liu et al. 2025 (size of the step).

    Args:
        learning_rate: As for `BERTAdamW`, as are all arguments but the following.
        weight_decay: As for `BERTAdamW`.
        momentum: Decay rate of the momentum, which is Nesterov's.
        compute_dtype: Dtype of the products that make a momentum orthogonal, "float32" or
            "bfloat16" as in Jordan's code. bfloat16 is enough, and takes half of the time on
            hardware that has it.
        **options: Other arguments of `BERTAdamW`.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel(100, 16, 32, num_heads=2, num_blks=1, dropout=0.1)
    model.compile(kb.BERTMuon(kb.WarmupStableDecay(1e-3, 100, 1000)))
    ```
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-4,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        compute_dtype: str = "float32",
        **options: Option,
    ) -> None:
        check_choice("compute_dtype", compute_dtype, ("float32", "bfloat16"))
        check_not_negative("momentum", momentum, below=1)
        super().__init__(learning_rate, weight_decay, **options)
        self.momentum = momentum
        self.compute_dtype = compute_dtype

    def _add_moments(self, variables: list[keras.Variable]) -> Moments:
        add = self.add_variable_from_reference
        first = [add(variable, "first_moment") for variable in variables]
        second = [None if _is_inner_kernel(v) else add(v, "second_moment") for v in variables]
        return first, second

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        if self._second_moments[index] is not None:
            super().update_step(gradient, variable, learning_rate)
            return
        rate = ops.cast(learning_rate, variable.dtype) * self._rate_factors[index]
        gradient, momentum = ops.cast(gradient, variable.dtype), self._first_moments[index]
        self.assign(momentum, self.momentum * momentum + gradient)
        step = orthogonalized(gradient + self.momentum * momentum, self.compute_dtype)
        size = _RMS_OF_ADAM * math.sqrt(max(variable.shape))
        decay = self.decay if self._decayed[index] else 0.0
        self.assign_sub(variable, rate * (decay * variable + size * step))

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        return {**config, "momentum": self.momentum, "compute_dtype": self.compute_dtype}


def orthogonalized(x: Tensor, compute_dtype: str) -> Tensor:
    """Return a matrix with the singular vectors of `x` and singular values close to 1.

    Five steps of Newton and Schulz bring all but the smallest into the range from 0.7 to 1.2.
    """
    dtype, is_tall = x.dtype, x.shape[0] > x.shape[1]
    x = ops.transpose(x) if is_tall else x
    x = ops.cast(x / (ops.sqrt(_squared_norm(x)) + 1e-7), compute_dtype)
    for _ in range(5):
        square = ops.matmul(x, ops.transpose(x))
        polynomial = -4.7750 * square + 2.0315 * ops.matmul(square, square)
        x = 3.4445 * x + ops.matmul(polynomial, x)
    return ops.cast(ops.transpose(x) if is_tall else x, dtype)


def _is_inner_kernel(variable: keras.Variable) -> bool:
    return variable.name == "kernel" and _IN_A_BLOCK.search(variable.path) is not None


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


OPTIMIZERS = {"adamw": BERTAdamW, "muon": BERTMuon}


def make_schedule(
    options: StepOptions, warmup_steps: int, total_steps: int, decay_steps: int | None = None
) -> WarmupSchedule:
    """Create the learning rate schedule that the options of a run name."""
    decay = {} if decay_steps is None else {"decay_steps": decay_steps}
    kind = SCHEDULES[options.schedule]
    return kind(options.learning_rate, warmup_steps, total_steps, **decay)


def make_optimizer(
    options: StepOptions, schedule: WarmupSchedule, compute_dtype: str, layer_decay: float = 1.0
) -> BERTAdamW:
    """Create the optimizer that the options of a run name.

    `compute_dtype` is that of the model.
    """
    kind: Callable[..., BERTAdamW] = OPTIMIZERS[options.optimizer]
    if kind is BERTMuon and compute_dtype == "bfloat16":
        kind = functools.partial(BERTMuon, compute_dtype=compute_dtype)
    return kind(
        schedule,
        weight_decay=options.weight_decay,
        layer_decay=layer_decay,
        name=f"bert_{options.optimizer}",
    )


def add_gradient_norms(optimizer: keras.optimizers.Optimizer) -> None:
    """Let a built optimizer add up the norms that it clips, saved last in its state.

    The variable contains the sum of the norms of the gradients, before clipping, and their number.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner.gradient_norms = inner.add_variable(
        (2,), initializer="zeros", aggregation="only_first_replica", name="gradient_norms"
    )


def mean_gradient_norm(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the mean norm of the gradients since the last call, if there were any."""
    norms = getattr(optimizer, "inner_optimizer", optimizer).gradient_norms
    total, number = ops.convert_to_numpy(norms)
    norms.assign([0.0, 0.0])
    return float(total / number) if number else None
