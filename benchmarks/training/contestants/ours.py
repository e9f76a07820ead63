"""keras_bert_d2l: `BERTModel` with its default losses and metrics."""

import keras
import numpy as np

import keras_bert_d2l
from benchmarks.training.contestants import turns, workload

options = workload.read_options()
size = workload.SIZES[options.size]
keras.config.set_dtype_policy(options.precision)

config = keras_bert_d2l.BERTConfig.preset(
    options.size,
    vocab_size=workload.VOCAB_SIZE,
    dropout=workload.DROPOUT,
    max_len=workload.MAX_LEN,
)
model = keras_bert_d2l.BERTModel.from_bert_config(config)
model.compile(keras_bert_d2l.BERTAdamW(workload.LEARNING_RATE, weight_decay=workload.WEIGHT_DECAY))

batch = workload.make_batch(size.batch_size)
labels = {"mlm": batch.pop("mlm"), "nsp": batch.pop("nsp")}
weights = {key: np.ones(value.shape, np.float32) for key, value in labels.items()}


def step() -> float:
    return model.train_on_batch(batch, labels, weights, return_dict=True)["loss"]


turns.take_turns(step, options.answers)
