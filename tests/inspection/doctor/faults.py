"""Healthy runs of less than a minute, and faults to plant in what the doctor examines of them."""

import dataclasses
import random

import numpy as np
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.report.measures import count_ids
from keras_bert_d2l.inspection.doctor.doctor import diagnose

TOPICS = [[f"{letter}{n}" for n in range(8)] for letter in "abcdef"]
FREQUENCIES = [1 / (n + 1) for n in range(8)]  # Zipf's law
WORDS = [word for topic in TOPICS for word in topic]
VOCAB = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])


def sentence(choose, topic):
    return " ".join(choose.choices(topic, FREQUENCIES, k=choose.randint(3, 6)))


def documents(seed, number=1000):
    """Return documents of eight sentences, each document about one topic."""
    choose = random.Random(seed)
    return [[sentence(choose, TOPICS[n % len(TOPICS)]) for _ in range(8)] for n in range(number)]


def write_text(path, seed):
    path.write_text("\n\n".join("\n".join(document) for document in documents(seed)))
    return path


def pretrain(folder, seed=0, **options):
    """Pretrain a tiny BERT that learns the topics, and return its run folder.

    It is long enough for all checks of the losses.
    """
    text = write_text(folder / "text.txt", seed)
    config = kb.BERTConfig(len(VOCAB), 32, 64, 2, 1, 0.1, 24, initializer="truncated_normal")
    given = {"vocab": VOCAB, "bert_config": config, "layout": "lines", "held_out": 0.2}
    given |= {"steps": 2100, "evaluate_every": 525, "batch_size": 16, "max_len": 24}
    given |= {"learning_rate": 5e-3, "cache_dir": folder / "cache", "verbose": 0, "seed": seed}
    kb.pretrain(text, folder / "run", **{**given, **options})
    return folder / "run"


def examples(seed, number=120):
    """Return texts labeled with their topics."""
    choose = random.Random(seed)
    topics = [choose.choice(TOPICS[:2]) for _ in range(number)]
    texts = [sentence(choose, topic) + " " + sentence(choose, topic) for topic in topics]
    return kb.TextExamples(texts=texts, labels=[topic[0][0] for topic in topics])


def write_examples(path, found):
    lines = [f"{label}\t{text}" for label, text in zip(found.labels, found.texts, strict=True)]
    path.write_text("\n".join(["label\ttext", *lines]) + "\n")
    return path


def finetune(folder, model, seed=0):
    """Fine-tune a run of `pretrain` to find the topic of a text, and return the run folder."""
    train = write_examples(folder / "train.tsv", examples(seed))
    dev = write_examples(folder / "dev.tsv", examples(seed + 1000))
    kb.finetune_files(
        folder / "task",
        task="classify",
        model=model,
        train=train,
        dev=dev,
        seed=seed,
        epochs=4,
        batch_size=8,
        learning_rate=1e-3,
        verbose=0,
    )
    return folder / "task"


def change_records(evidence, change):
    """Change each record by a function of the record and the share of the run that is done."""
    records = [dict(record) for record in evidence.records]
    for record in records:
        change(record, record["step"] / records[-1]["step"])
    return dataclasses.replace(evidence, records=records)


def set_values(**values):
    return lambda record, share: record.update(
        {name: value for name, value in values.items() if name in record}
    )


def scale_at(moment, factor, name):
    """Multiply a metric of the first or of the last record."""

    def change(record, share):
        if share == moment:
            record[name] *= factor

    return lambda evidence, folder: change_records(evidence, change)


def at_unigram_entropy(evidence, folder):
    counts = count_ids(evidence.store.tokens, evidence.store.vocab_size)
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log(shares)).sum()

    def change(record, share):
        if share:
            record["val_mlm_cross_entropy"] = 1.01 * entropy

    return change_records(evidence, change)


def flat(evidence, folder):
    first = evidence.records[1]["loss"]
    return change_records(evidence, set_values(loss=first * 0.995))


def with_text(make, vocab=VOCAB):
    def plant(evidence, folder):
        corpus = kb.Corpus.open(make(evidence), layout="lines")
        store = kb.build_store(corpus, kb.Tokenizer(vocab), folder / "store")
        return dataclasses.replace(evidence, store=store)

    return plant


FOREIGN = with_text(
    lambda evidence: [[one.replace("a", "я") for one in d] for d in documents(1, number=120)]
)


def with_batches(change):
    def plant(evidence, folder):
        batches = evidence.batches.take(8).map(change)
        return dataclasses.replace(evidence, batches=batches)

    return plant


def without_predictions(x, y, w):
    return x, y, {**w, "mlm": tf.zeros_like(w["mlm"])}


def answers(x, y, w):
    rows = tf.repeat(tf.range(tf.shape(y["mlm"])[0])[:, None], tf.shape(y["mlm"])[1], axis=1)
    places = tf.stack([rows, x["pred_positions"]], axis=-1)
    shown = tf.tensor_scatter_nd_update(x["tokens"], places, y["mlm"])
    return {**x, "tokens": tf.where(x["tokens"] == VOCAB.mask_id, shown, x["tokens"])}, y, w


def short_rows(x, y, w):
    return {**x, "valid_lens": x["valid_lens"] // 3}, y, w


def with_weights(pattern, change):
    """Change the weights of a copy of the model whose names end in the pattern."""

    def plant(evidence, folder):
        model = type(evidence.model).from_config(evidence.model.get_config())
        model.set_weights(evidence.model.get_weights())
        model.tokenizer = evidence.model.tokenizer
        model.compile(kb.BERTAdamW())
        for weight in model.weights:
            if weight.path.endswith(pattern):
                weight.assign(change(weight.numpy()))
        return dataclasses.replace(evidence, model=model)

    return plant


def leaking(evidence, folder):
    train, dev = evidence.examples
    copied = kb.TextExamples(
        texts=[*dev.texts, *train.texts[:20]], labels=[*dev.labels, *train.labels[:20]]
    )
    return dataclasses.replace(evidence, examples=(train, copied))


PRETRAINING_FAULTS = {
    "initial loss": scale_at(0, 1.5, "val_mlm_cross_entropy"),
    "rising loss": scale_at(1, 2.0, "loss"),
    "flat loss": flat,
    "unigram plateau": at_unigram_entropy,
    "overfitting": scale_at(1, 1.5, "val_mlm_cross_entropy"),
    "unknown words": FOREIGN,
    "visible answers": with_batches(answers),
    "padding": with_batches(short_rows),
    "gradient norm": with_weights("mlm/mlp/ln/gamma", lambda gamma: gamma * 1e4),
    "unused weights": with_batches(without_predictions),
}
TASK_FAULTS = {
    "leaking examples": leaking,
    "one answer": with_weights("head/bias", lambda bias: [1e3, *bias[1:]]),
}


def diagnosis_of(plant, evidence, folder):
    """Examine a run with a planted fault, without the batches if they stay the same."""
    planted = plant(evidence, folder)
    is_elsewhere = planted.model is evidence.model and planted.batches is evidence.batches
    return diagnose(dataclasses.replace(planted, batches=None) if is_elsewhere else planted)
