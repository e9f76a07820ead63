"""Section 15.10 of the book on WikiText-2: held-out losses and speed after 50 steps.

The corpus, vocabulary, pairs, masks, network (2 blocks, width 128, 2 heads, dropout 0.2), batches
(512 pairs of 64 tokens) and number of steps are those of the book. The losses, optimizer and
precision are ours. Losses are in nats and weighted (the mean over real predictions), except
`mean_mlm_loss_padded`, the mean over all steps and slots, as printed in some editions of the
book. About 31 % of the slots are padding, which counts as predictions of token 0, so it is not
comparable with the other losses. `word_frequencies` is the held-out loss of always predicting the
word frequencies of the training text.

Fifty steps are too few to learn more than the frequencies of the 20,256 words. By default, the
output layer is therefore initialized to them (`--start frequencies`: zero kernel, log counts as
bias). `--start guess` initializes it to a uniform guess, like `BERTModel`.
"""

import argparse
import json
import math
import time

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l import BERTConfig
from keras_bert_d2l import book as d2l
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.training.devices import choose_precision
from keras_bert_d2l.training.optimization.optimizers import OPTIMIZERS
from keras_bert_d2l.training.optimization.schedules import WarmupLinearDecay

BATCH_SIZE, MAX_LEN = 512, 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_dir", help="folder with wiki.train.tokens and the held-out text")
    parser.add_argument("--held-out", choices=("valid", "test"), default="valid")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--start", choices=("frequencies", "guess"), default="frequencies")
    parser.add_argument("--initializer", default="truncated_normal")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adamw")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--beta-2", type=float, default=0.98)
    parser.add_argument("--epsilon", type=float, default=1e-8)
    parser.add_argument("--precision", help="default: the faster one")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def word_log_counts(vocab: d2l.Vocab) -> np.ndarray:
    """Return the log count of each vocabulary word in the training text, `(V,)`."""
    counts = np.ones(len(vocab))
    for word, count in vocab.token_freqs:
        if word in vocab.token_to_idx:
            counts[vocab[word]] = count
    return np.log(counts)


def start_from_frequencies(net: d2l.BERTModel, log_counts: np.ndarray) -> None:
    logits = net.mlm.mlp.layers[-1]
    logits.kernel.assign(np.zeros(logits.kernel.shape))
    logits.bias.assign(log_counts - log_counts.mean())


def loss_of_word_frequencies(batches: tf.data.Dataset, log_counts: np.ndarray) -> float:
    log_probabilities = log_counts - np.log(np.exp(log_counts).sum())
    labels, weights = zip(*((batch[5].numpy(), batch[4].numpy()) for batch in batches), strict=True)
    return -float(
        np.average(log_probabilities[np.concatenate(labels)], weights=np.concatenate(weights))
    )


class MeanOverAllSlots(WeightedCrossEntropy):
    """The weighted loss. Also tracks the mean over all slots, including padding."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = keras.metrics.Mean()

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        losses = super().call(y_true, y_pred)
        self.mean.update_state(losses)
        return losses


def main() -> None:
    options = arguments()
    keras.utils.set_random_seed(options.seed)
    config = BERTConfig.preset("d2l")
    precision = options.precision or choose_precision(config, BATCH_SIZE * MAX_LEN)
    keras.config.set_dtype_policy(precision)
    train_iter, vocab = d2l.load_data_wiki(
        BATCH_SIZE, MAX_LEN, options.data_dir, seed=options.seed, drop_remainder=True
    )
    held_out_iter, _ = d2l.load_data_wiki(
        BATCH_SIZE, MAX_LEN, options.data_dir, split=options.held_out, vocab=vocab
    )
    log_counts = word_log_counts(vocab)
    net = d2l.BERTModel(
        len(vocab), 128, 256, 2, 2, options.dropout, initializer=options.initializer
    )
    if options.start == "frequencies":
        start_from_frequencies(net, log_counts)
    schedule = WarmupLinearDecay(options.learning_rate, options.warmup, options.steps)
    mlm_loss = MeanOverAllSlots()
    net.compile(
        OPTIMIZERS[options.optimizer](schedule, beta_2=options.beta_2, epsilon=options.epsilon),
        loss={"mlm": mlm_loss, "nsp": WeightedCrossEntropy()},
        weighted_metrics={"mlm": label_metrics(), "nsp": label_metrics()},
    )
    step_ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: step_ends.append(time.perf_counter())
    )
    trained = net.fit(
        train_iter.map(d2l.to_keras_batch).repeat(),
        steps_per_epoch=options.steps,
        callbacks=[clock],
        shuffle=False,  # the dataset is already shuffled
    ).history
    mean_mlm_loss_padded = float(mlm_loss.mean.result())
    held_out = net.evaluate(held_out_iter.map(d2l.to_keras_batch), return_dict=True)
    figures = {
        "held_out_mlm_loss": held_out["mlm_cross_entropy"],
        "word_frequencies": loss_of_word_frequencies(held_out_iter, log_counts),
        "uniform_guess": math.log(len(vocab)),
        "held_out_mlm_accuracy": held_out["mlm_accuracy"],
        "held_out_nsp_loss": held_out["nsp_cross_entropy"],
        "mean_nsp_loss": trained["nsp_cross_entropy"][0],
        "mean_mlm_loss": trained["mlm_cross_entropy"][0],
        "mean_mlm_loss_padded": mean_mlm_loss_padded,
        # Excludes the first step, which compiles the graph.
        "pairs_per_second": BATCH_SIZE * (options.steps - 1) / (step_ends[-1] - step_ends[0]),
    }
    print(json.dumps({**vars(options), **{name: round(x, 3) for name, x in figures.items()}}))


if __name__ == "__main__":
    main()
