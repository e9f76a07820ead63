"""KerasHub: BertMaskedLMPreprocessor in tf.data, on complete batches."""

import keras_hub
import tensorflow as tf

from benchmarks.data.contestants import workload

options = workload.read_options()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
preprocess = keras_hub.models.BertMaskedLMPreprocessor(
    keras_hub.models.BertTokenizer(vocabulary=workload.vocab_tokens(options), lowercase=True),
    sequence_length=options.max_len,
    mask_selection_rate=workload.MASK_RATE,
    mask_selection_length=round(workload.MASK_RATE * options.max_len),
)
lines = tf.data.Dataset.from_tensor_slices(workload.texts(options)).repeat()
batches = iter(lines.batch(options.batch_size).map(preprocess).prefetch(1))


def step() -> int:
    features, *_ = next(batches)
    return int(tf.math.count_nonzero(features["padding_mask"]))


workload.take_turns(step, options.answers)
