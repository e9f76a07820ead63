"""Build a Keras model of your own around a BERT, train it and export it.

    python examples/07_your_own_model.py [FOLDER]   # default: runs/own

The model reads a complaint of two sentences and the days since the purchase. It predicts hidden
words, the order of the sentences, and whether the shop gives a refund. The text is generated. The
tutorial docs/tutorials/your_own_model.md explains each step.
"""

import itertools
import pathlib
import sys
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

import keras_bert_d2l as kb

THINGS = {  # what they do, and what they do if they are broken
    "kettle": ("boils", "leaks"),
    "lamp": ("shines", "flickers"),
    "radio": ("plays", "crackles"),
    "bike": ("rolls", "squeaks"),
    "clock": ("ticks", "stops"),
}
WIDTH, MAX_LEN, BATCH_SIZE, EPOCHS = 64, 16, 16, 12

Columns = dict[str, np.ndarray]


# %% Make the text and the labels
def make_complaints() -> Columns:
    """Return complaints in random order; half of them have their sentences in the wrong order."""
    random = np.random.default_rng(0)
    people = "ada alan edsger emmy grace john kurt noam".split()
    colors = "red green blue black white".split()
    rows = [*itertools.product(people, colors, THINGS, [False, True])]
    random.shuffle(rows)
    bought = np.array([f"{who} bought a {color} {thing} ." for who, color, thing, _ in rows])
    state = np.array([f"it {THINGS[thing][broken]} ." for *_, thing, broken in rows])
    in_order = random.random(len(rows)) < 0.5
    days = random.integers(1, 60, len(rows))
    refund = np.array([broken for *_, broken in rows]) & (days <= 30)
    return {
        "text": np.where(in_order, bought, state),
        "text_b": np.where(in_order, state, bought),
        "days": days.astype("float32"),
        "nsp": in_order.astype("int32"),
        "refund": refund.astype("float32"),
    }


# %% The pipeline: strings, ids, masks, labels
def to_batches(columns: Columns, tokenizer: kb.Tokenizer, *, training: bool) -> tf.data.Dataset:
    """Return batches with new masks; those for training never end."""
    mask = kb.MaskTokens(tokenizer.vocab, num_predictions=2)

    def to_ids(row):
        return {**tokenizer(row.pop("text"), row.pop("text_b"), max_len=MAX_LEN), **row}

    def add_labels(features, labels, weights):
        for head in ("nsp", "refund"):
            labels[head] = features.pop(head)
            weights[head] = tf.ones_like(labels[head], tf.float32)
        return features, labels, weights

    data = tf.data.Dataset.from_tensor_slices(columns)
    if training:
        data = data.shuffle(len(columns["days"]), seed=0).repeat()
    data = data.batch(BATCH_SIZE, drop_remainder=training).map(to_ids)
    return data.enumerate().map(mask).map(add_labels).prefetch(tf.data.AUTOTUNE)


# %% The model: a BERT, an extra input and an extra head
def build(vocab_size: int) -> keras.Model:
    shapes = {"tokens": (None,), "segments": (None,), "valid_lens": (), "pred_positions": (None,)}
    inputs = {name: keras.Input(shape, dtype="int32", name=name) for name, shape in shapes.items()}
    sizes = {"num_hiddens": WIDTH, "ffn_num_hiddens": 2 * WIDTH, "num_heads": 4, "num_blks": 2}
    bert = kb.BERTModel(
        vocab_size, **sizes, dropout=0.0, max_len=MAX_LEN, tie_embeddings=True, name="bert"
    )
    encoded, mlm, nsp = bert(**inputs)

    inputs["days"] = keras.Input((), name="days")
    scaled = keras.layers.Rescaling(1 / 10, -3.0)(keras.ops.expand_dims(inputs["days"], 1))
    first = encoded[:, 0]  # the vector of [CLS]
    hidden = keras.layers.Dense(WIDTH, "relu")(keras.ops.concatenate([first, scaled], axis=1))
    refund = keras.layers.Dense(1, name="refund", dtype="float32")(hidden)
    return keras.Model(inputs, {"mlm": mlm, "nsp": nsp, "refund": refund})


def compile_model(model: keras.Model, steps: int) -> None:
    losses = {"mlm": kb.WeightedCrossEntropy(), "nsp": kb.WeightedCrossEntropy()}
    losses["refund"] = keras.losses.BinaryCrossentropy(from_logits=True)
    optimizer = kb.BERTAdamW(kb.WarmupLinearDecay(3e-3, steps // 10, steps))
    metrics = {head: ["accuracy"] for head in losses}
    metrics["refund"] = [keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)]  # of a logit
    model.compile(optimizer, losses, weighted_metrics=metrics, jit_compile=False)


# %% A training loop, instead of `fit`
def train_in_a_loop(model: keras.Model, data: tf.data.Dataset) -> Iterator[float]:
    """Yield the loss of each step."""

    @tf.function
    def step(features, labels, weights):
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            loss = model.compute_loss(features, labels, outputs, weights)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    yield from (float(step(*batch)) for batch in data)


# %% Train, save, load, ask and export
def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own")
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(0)
    columns = make_complaints()
    num_train = len(columns["days"]) * 4 // 5
    steps_per_epoch = num_train // BATCH_SIZE
    texts = [columns["text"].tolist(), columns["text_b"].tolist()]
    tokenizer = kb.Tokenizer(kb.learn_vocab(texts, size=120))
    train = {name: column[:num_train] for name, column in columns.items()}
    held_out = {name: column[num_train:] for name, column in columns.items()}
    data = to_batches(train, tokenizer, training=True)
    validation_data = to_batches(held_out, tokenizer, training=False)

    model = build(len(tokenizer.vocab))
    compile_model(model, EPOCHS * steps_per_epoch)
    model.fit(
        data,
        validation_data=validation_data,
        epochs=EPOCHS,
        steps_per_epoch=steps_per_epoch,
        callbacks=[
            keras.callbacks.ModelCheckpoint(folder / "own.keras", save_best_only=True),
            keras.callbacks.EarlyStopping(patience=4),
        ],
        shuffle=False,
        verbose=2,
    )
    best = keras.models.load_model(folder / "own.keras")
    bert = best.get_layer("bert")
    text = "grace [MASK] a red kettle ."
    print(text, *kb.fill_mask(bert, text, top_k=1, tokenizer=tokenizer)[0])

    keras.config.set_dtype_policy("mixed_bfloat16")  # slower on CPUs that lack bfloat16
    half = build(len(tokenizer.vocab))
    keras.config.set_dtype_policy("float32")
    compile_model(half, 3 * steps_per_epoch)
    losses = [*train_in_a_loop(half, data.take(3 * steps_per_epoch))]
    print(f"Loop in bfloat16: loss {losses[0]:.2f} at the first step, {losses[-1]:.2f} at the last")

    version = kb.export_saved_model(best, folder / "saved_model", tokenizer=tokenizer, pairs=True)
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    for days in (5.0, 55.0):
        answer = served(
            text=tf.constant(["ada bought a red kettle ."]),
            text_b=tf.constant(["it leaks ."]),
            days=tf.constant([days]),
        )
        print(f"Refund after {days:.0f} days: {float(tf.sigmoid(answer['refund'][0, 0])):.0%}")


if __name__ == "__main__":
    main()
