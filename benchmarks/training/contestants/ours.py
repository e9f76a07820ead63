"""keras_bert_d2l: `BERTModel` with its default losses and metrics.

With `--fit`, a turn is a call of `Model.fit`: on one batch, or on a text (`--text`) through
`pretraining_dataset`. With JAX and without a text, TensorFlow is not needed.
"""

import itertools
import tempfile
import time
from collections.abc import Iterator

import keras
import numpy as np

import keras_bert_d2l as kb
from benchmarks.training.contestants import turns, workload
from keras_bert_d2l.layers.kernels.attention import has_flash_attention

options = workload.read_options()
size = workload.SIZES[options.size]
keras.config.set_dtype_policy(options.precision)
if options.plain_attention:
    keras.config.disable_flash_attention()
is_jax = keras.backend.backend() == "jax"
if is_jax:
    import jax
if options.text or not is_jax:
    import tensorflow as tf
if options.text and is_jax:  # TensorFlow only prepares the data
    tf.config.set_visible_devices([], "GPU")

config = kb.BERTConfig.preset(
    options.size,
    vocab_size=workload.VOCAB_SIZE,
    dropout=workload.DROPOUT,
    attention_dropout=options.attention_dropout,
    max_len=max(workload.MAX_LEN, options.tokens),
)
model = kb.BERTModel.from_bert_config(config)
optimizer = kb.BERTAdamW(workload.LEARNING_RATE, weight_decay=workload.WEIGHT_DECAY)
model.compile(optimizer, jit_compile=True if options.device == "gpu" else "auto")

features = workload.make_batch(options)
labels = {"mlm": features.pop("mlm"), "nsp": features.pop("nsp")}
weights = {key: np.ones(value.shape, np.float32) for key, value in labels.items()}
waited = 0.0


def batches() -> Iterator:
    """Yield batches, and measure how long this takes."""
    global waited
    if options.text is None:
        rows = itertools.repeat((features, labels, weights))
    else:
        corpus = kb.Corpus.open(options.text)
        vocab = kb.learn_vocab(corpus, workload.VOCAB_SIZE)
        data = kb.pretraining_dataset(
            corpus,
            kb.Tokenizer(vocab),
            batch_size=options.rows,
            max_len=options.tokens,
            num_predictions=workload.num_predictions(options.tokens),
            epochs=None,
            cache_dir=tempfile.mkdtemp(),
        )
        rows = data.as_numpy_iterator()
    while True:
        before = time.perf_counter()
        batch = next(rows)
        waited += time.perf_counter() - before
        yield batch


stream = batches() if options.fit else None


def fit(num_steps: int) -> float:
    history = model.fit(stream, steps_per_epoch=num_steps, shuffle=False, verbose=0)
    return history.history["loss"][-1]


def step() -> float:
    return model.train_on_batch(features, labels, weights, return_dict=True)["loss"]


flash = has_flash_attention(model.compute_dtype, size.num_hiddens // size.num_heads)


def peak_mb() -> float:
    if options.device == "cpu":
        return turns.peak_mb_of_process()
    if is_jax:
        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20


turns.take_turns(
    fit if options.fit else turns.repeated(step),
    options.answers,
    peak_mb=peak_mb,
    waited=lambda: waited,
    attention="flash" if flash and not options.attention_dropout else "plain",
)
