r"""How much three of BERT's relatives learn in the same time: masked words, then few labels.

    KERAS_BACKEND=jax python -m benchmarks.training.shapes DATA shapes.npz
    KERAS_BACKEND=jax python -m benchmarks.training.shapes DATA shapes.npz --seconds 20 --width 128

DATA has `corpus/novels*.tar.xz`, archives of texts, and `sst2/train.tsv.gz` and `dev.tsv.gz`. The
first call learns a byte-level BPE of 8,000 tokens (with the library tokenizers) and writes the ids
to the second file, which is all that later calls read.

Each model has 8 blocks and about as many weights as the others, and trains for the same time on
rows of 128 tokens, 24 of them masked. The loss on a held-out novel is printed after each quarter.
It then learns to classify from 2,000 examples of SST-2, with two seeds.
"""

import argparse
import gzip
import json
import random
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

import keras_bert_d2l as kb

CLS, PAD, SEP, _, MASK = range(5)
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
VOCAB_SIZE, LENGTH, NUM_PREDICTIONS = 8000, 128, 24
HELD_OUT = 2000 * LENGTH  # tokens, which start with a novel that no other row has
EXAMPLES, EPOCHS, EXAMPLES_PER_STEP = 2000, 6, 32
SHAPES = {"distilbert": 4.0, "roberta-base": 4.0, "modernbert-base": 8 / 3}  # widths of the FFN / D
Arrays = dict[str, np.ndarray]


def prepare(data: Path) -> Arrays:
    """Learn a vocabulary, and return the ids of the novels and of the labeled sentences."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = []
    for path in sorted(data.glob("corpus/novels*.tar.xz")):
        with tarfile.open(path) as archive:
            files = [archive.extractfile(one) for one in archive if one.name.endswith(".txt")]
            texts += [file.read().decode("utf-8", "replace") for file in files if file]
    random.Random(0).shuffle(texts)
    parts = [" ".join(part.split()) for text in texts for part in text.split("\n\n")]
    tokenizer, split = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel()
    tokenizer.pre_tokenizer = split
    letters = split.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=SPECIALS, initial_alphabet=letters
    )
    tokenizer.train_from_iterator(parts, trainer)
    ids = [number for part in tokenizer.encode_batch(parts) for number in part.ids]
    arrays = {"ids": np.array(ids, "uint16")}
    for name in ("train", "dev"):
        with gzip.open(data / f"sst2/{name}.tsv.gz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file][1:]
        if name == "train":
            chosen = np.random.default_rng(0).permutation(len(rows))[:EXAMPLES]
            rows = [rows[number] for number in chosen]
        tokens = np.full((len(rows), 66), PAD, "uint16")
        for row, (_, text) in zip(tokens, rows, strict=True):
            found = tokenizer.encode(text.strip()).ids[:64]
            row[: len(found) + 2] = CLS, *found, SEP
        arrays |= {name: tokens, f"{name}_labels": np.array([int(label) for label, _ in rows])}
    return arrays


def masked(ids: np.ndarray, starts: np.ndarray, rng: np.random.Generator) -> Arrays:
    """Return rows of text with masks: 80% `<mask>`, 10% other tokens, 10% the same token."""
    tokens = np.full((len(starts), LENGTH), CLS, "int32")
    tokens[:, 1:-1], tokens[:, -1] = ids[starts[:, None] + np.arange(LENGTH - 2)], SEP
    order = np.argsort(rng.random((len(starts), LENGTH - 2)), axis=1)
    positions = np.sort(order[:, :NUM_PREDICTIONS] + 1, axis=1).astype("int32")
    labels = np.take_along_axis(tokens, positions, axis=1)
    chance = rng.random(labels.shape)
    others = rng.integers(len(SPECIALS), VOCAB_SIZE, labels.shape)
    new = np.where(chance < 0.8, MASK, np.where(chance < 0.9, others, labels))
    np.put_along_axis(tokens, positions, new, axis=1)
    return {"tokens": tokens, "pred_positions": positions, "labels": labels}


def cross_entropy(model: keras.Model, weights: Any, others: Any, batch: Any, training: bool) -> Any:
    """Return the loss of a batch, and the variables that the call has changed."""
    features = {name: value for name, value in batch.items() if name != "labels"}
    outputs, others = model.stateless_call(weights, others, features, training=training)
    logits = outputs["mlm"] if isinstance(outputs, dict) else outputs
    losses = keras.losses.sparse_categorical_crossentropy(
        batch["labels"], logits.astype("float32"), from_logits=True
    )
    return losses.mean(), others


class Training:
    """A model, its optimizer and their variables, outside of Keras's own loop."""

    def __init__(self, model: keras.Model) -> None:
        optimizer = kb.BERTAdamW(1.0, beta_2=0.98)
        optimizer.build(model.trainable_variables)
        self.model = model
        kinds = model.trainable_variables, model.non_trainable_variables, optimizer.variables
        self.state = [[variable.value for variable in kind] for kind in kinds]
        rate_index = [variable.name for variable in optimizer.variables].index("learning_rate")

        @jax.jit
        def step(weights: Any, others: Any, moments: Any, batch: Arrays, rate: float) -> Any:
            def loss_of(weights: Any) -> Any:
                return cross_entropy(model, weights, others, batch, training=True)

            (_, others_now), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
            moments[rate_index] = jax.numpy.asarray(rate, "float32")
            weights, moments = optimizer.stateless_apply(moments, gradients, weights)
            return list(weights), list(others_now), list(moments)

        self._step = step
        self.loss = jax.jit(
            lambda weights, others, batch: cross_entropy(model, weights, others, batch, False)[0]
        )

    def step(self, batch: Arrays, rate: float) -> None:
        self.state = self._step(*self.state, batch, rate)

    def ready(self) -> None:
        """Wait until all steps are done."""
        jax.block_until_ready(self.state)

    def store(self) -> None:
        """Give the weights back to the model."""
        for variable, value in zip(self.model.trainable_variables, self.state[0], strict=True):
            variable.assign(value)


def rate_at(share: float, peak: float) -> float:
    """Return the learning rate after a share of the training: up for a tenth, then down to 0."""
    return peak * min(share / 0.1, (1 - share) / 0.9)


def pretrain(name: str, ids: np.ndarray, options: argparse.Namespace) -> kb.BERTModel:
    """Train for some seconds, without the compilation, and print the losses."""
    width = options.width
    sizes = {"num_hiddens": width, "num_heads": width // 64, "num_blks": 8}
    sizes |= {"ffn_num_hiddens": int(SHAPES[name] * width), "max_len": LENGTH}
    config = kb.BERTConfig.preset(name, vocab_size=VOCAB_SIZE, pad_id=PAD, **sizes)
    config = config.with_dropout(0.0)
    model = kb.BERTModel.from_bert_config(config)
    training, rng = Training(model), np.random.default_rng(1)
    starts = np.arange(0, HELD_OUT - LENGTH, LENGTH - 2)[: 2 * options.rows]
    held_out = masked(ids, starts, np.random.default_rng(9))

    def batches() -> Iterator[Arrays]:
        while True:
            yield masked(ids, rng.integers(HELD_OUT, len(ids) - LENGTH, options.rows), rng)

    def loss() -> float:
        return round(float(training.loss(*training.state[:2], held_out)), 3)

    losses, data, steps = [loss()], batches(), 0
    training.step(next(data), 0.0)  # compiles
    training.ready()
    start = time.perf_counter()
    while (share := (time.perf_counter() - start) / options.seconds) < 1:
        training.step(next(data), rate_at(share, 7e-4))
        steps += 1
        if steps % 20 == 0:  # JAX runs ahead of this loop
            training.ready()
        if share > len(losses) / 4:
            training.ready()
            pause = time.perf_counter()
            losses.append(loss())
            start += time.perf_counter() - pause
    training.store()
    tokens = int(steps * options.rows * LENGTH / options.seconds)
    weights = sum(int(np.prod(value.shape)) for value in training.state[0])
    record = {"untrained_and_quarters": [*losses, loss()], "tokens_per_second": tokens}
    print(json.dumps({"shape": name, "weights": weights, **record}), flush=True)
    return model


def classify(model: kb.BERTModel, data: Arrays, seed: int) -> float:
    """Return the accuracy on the development set after training on a few examples."""
    keras.utils.set_random_seed(seed)
    bert = kb.BERTModel.from_bert_config(model.bert_config)
    for new, learned in zip(bert.encoder.weights, model.encoder.weights, strict=True):
        new.assign(learned)
    classifier = kb.SequenceClassifier(bert, labels=["negative", "positive"])
    training, rng = Training(classifier), np.random.default_rng(seed)

    def batch(name: str, chosen: Any = slice(None)) -> Arrays:
        tokens = data[name][chosen].astype("int32")
        lens = (tokens != PAD).sum(axis=1).astype("int32")
        labels = data[f"{name}_labels"][chosen]
        return {"tokens": tokens, "valid_lens": lens, "labels": labels}

    per_epoch = EXAMPLES // EXAMPLES_PER_STEP
    for number in range(EPOCHS * per_epoch):
        if number % per_epoch == 0:
            order = rng.permutation(EXAMPLES)
        first = number % per_epoch * EXAMPLES_PER_STEP
        chosen = order[first : first + EXAMPLES_PER_STEP]
        training.step(batch("train", chosen), rate_at(number / EPOCHS / per_epoch, 2e-4))
    features = batch("dev")
    labels = features.pop("labels")
    answer: Callable[..., Any] = jax.jit(lambda *state: classifier.stateless_call(*state)[0])
    return float((np.argmax(answer(*training.state[:2], features), axis=-1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with corpus/ and sst2/")
    parser.add_argument("ids", type=Path, help="file for the token ids, .npz")
    parser.add_argument("--seconds", type=float, default=90, help="of pretraining, for each shape")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rows", type=int, default=256, help="rows per step")
    parser.add_argument("--precision", default="mixed_bfloat16")
    options = parser.parse_args()
    if not options.ids.exists():
        np.savez_compressed(options.ids, **prepare(options.data))
    data = dict(np.load(options.ids))
    keras.config.set_dtype_policy(options.precision)
    print(*jax.devices())
    for name in options.shapes:
        model = pretrain(name, data["ids"], options)
        found = [round(classify(model, data, seed), 4) for seed in (0, 1)]
        share = data["dev_labels"].mean()
        majority = round(float(max(share, 1 - share)), 4)
        print(json.dumps({"shape": name, "accuracy": found, "majority": majority}), flush=True)


if __name__ == "__main__":
    main()
