"""Check the models on a GPU with JAX: flash attention, agreement with the CPU, learning, memory.

Needs Keras, JAX and an NVIDIA GPU of the Ampere generation or newer; TensorFlow is not needed.
Prints one line for each check, and exits with 1 if one fails.

    KERAS_BACKEND=jax python scripts/check_gpu.py
"""

import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import keras
import numpy as np

import keras_bert_d2l as kb
from keras_bert_d2l.layers.kernels.attention import has_flash_attention

VOCAB_SIZE, ROWS, TOKENS, PREDICTIONS = 1000, 16, 128, 20
Results = tuple[np.ndarray, np.ndarray]
failures = 0


def check(what: str, found: float, limit: float) -> None:
    """Print a number and its limit."""
    global failures
    is_right = found <= limit
    failures += not is_right
    print(f"{'ok  ' if is_right else 'FAIL'} {what}: {found:.3g}, at most {limit:.3g}", flush=True)


def create(dtype: str, **options: object) -> kb.BERTModel:
    """Return a model whose weights are the same in each call."""
    keras.utils.set_random_seed(0)
    preset = {"vocab_size": VOCAB_SIZE, "dropout": 0.0, "attention_dropout": 0.0, **options}
    config = kb.BERTConfig.preset("mini", **preset)
    return kb.BERTModel.from_bert_config(config, dtype=dtype)


def rows(packed: bool = False) -> dict[str, np.ndarray]:
    """Return rows of several lengths, or rows of two examples each."""
    random = np.random.default_rng(0)
    positions = np.sort(random.integers(1, TOKENS // 2, (ROWS, PREDICTIONS)), axis=1)
    batch = {
        "tokens": random.integers(5, VOCAB_SIZE, (ROWS, TOKENS)),
        "segments": np.repeat(np.arange(2), TOKENS // 2)[None].repeat(ROWS, 0),
        "pred_positions": positions,
    }
    if packed:
        batch["example_ids"] = 1 + batch["segments"]
        batch["position_ids"] = np.tile(np.arange(TOKENS // 2), (ROWS, 2))
        batch["cls_positions"] = np.tile([0, TOKENS // 2], (ROWS, 1))
    else:
        batch["valid_lens"] = random.integers(TOKENS // 2, TOKENS + 1, ROWS)
    return {name: np.asarray(x, "int32") for name, x in batch.items()}


def results(model: kb.BERTModel, batch: dict[str, np.ndarray]) -> Results:
    """Return all logits, and all gradients of a scalar of them."""

    def scalar(weights: list[jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        outputs, _ = model.stateless_call(weights, fixed, batch, training=True)
        outputs = {name: x.astype("float32") for name, x in outputs.items()}
        return sum(jax.numpy.sum(jax.numpy.sin(x)) for x in outputs.values()), outputs

    fixed = [variable.value for variable in model.non_trainable_variables]
    trained = [variable.value for variable in model.trainable_variables]
    gradients, outputs = jax.jit(jax.grad(scalar, has_aux=True))(trained)
    return flat(list(outputs.values())), flat(gradients)


def flat(arrays: list[jax.Array]) -> np.ndarray:
    """Return all numbers of some arrays."""
    return np.concatenate([np.asarray(x, "float32").ravel() for x in arrays])


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Return the largest relative difference, in the Euclidean norm, of two lists of arrays."""
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def plainly(function: Callable[[], Results]) -> Results:
    """Call a function without flash attention."""
    keras.config.disable_flash_attention()
    try:
        return function()
    finally:
        keras.config.enable_flash_attention()


def check_flash_attention() -> None:
    """Compare flash attention with float32."""
    for width in (32, 64, 128):
        for dtype in ("bfloat16", "float16"):
            is_used = has_flash_attention(dtype, width)
            check(f"flash attention is refused ({dtype}, {width})", not is_used, 0)
    exact = create("float32")
    for dtype, tolerance in (("mixed_bfloat16", 0.05), ("mixed_float16", 0.01)):
        model = create(dtype)
        for packed in (False, True):
            kind = f"{dtype}, {'packed' if packed else 'padded'} rows"
            batch = rows(packed)
            with jax.default_matmul_precision("highest"):
                right = results(exact, batch)
            flash = results(model, batch)
            plain = plainly(lambda model=model, batch=batch: results(model, batch))
            of_plain = difference(plain, right)
            print(f"     {kind}: plain attention differs from float32 by {of_plain:.3g}")
            check(f"{kind}: flash attention from float32", difference(flash, right), tolerance)


def check_the_cpu_agrees() -> None:
    """Compare the GPU with the CPU in float32."""
    model, batch = create("float32"), rows()
    with jax.default_matmul_precision("highest"):
        on_gpu = results(model, batch)
        with jax.default_device(jax.devices("cpu")[0]):
            cpu = create("float32")
            cpu.set_weights(model.get_weights())
            on_cpu = results(cpu, batch)
    check("float32: logits and gradients, GPU from CPU", difference(on_gpu, on_cpu), 1e-4)


def labels(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return random labels."""
    random = np.random.default_rng(1)
    shape = batch["pred_positions"].shape
    return {
        "mlm": random.integers(5, VOCAB_SIZE, shape).astype("int32"),
        "nsp": random.integers(0, 2, ROWS).astype("int32"),
    }


def check_learning() -> None:
    """Learn a batch by heart, and save and load the model."""
    batch = rows()
    batch["pred_positions"] = np.tile(np.arange(1, 1 + PREDICTIONS), (ROWS, 1)).astype("int32")
    for options in ({}, {"remat": "blocks"}):
        model = create("mixed_bfloat16")
        model.compile(kb.BERTAdamW(1e-3), **options)
        y = labels(batch)
        history = model.fit(batch, y, batch_size=ROWS, epochs=150, verbose=0).history["loss"]
        start = math.log(VOCAB_SIZE) + math.log(2)
        name = f"fit {options or ''}"
        check(f"{name}: first loss from ln V + ln 2", abs(history[0] - start), 0.2)
        check(f"{name}: loss of a batch learned by heart", history[-1], 0.05)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.keras"
            model.save(path)
            loaded = keras.saving.load_model(path)
        saved, again = (m.predict(batch, verbose=0)["mlm"] for m in (model, loaded))
        check(
            f"{name}: predictions of the loaded .keras file", float(np.abs(saved - again).max()), 0
        )


def main() -> None:
    """Run all checks."""
    print(f"{jax.devices()[0].device_kind}; JAX {jax.__version__}, Keras {keras.__version__}")
    check_flash_attention()
    check_the_cpu_agrees()
    check_learning()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
