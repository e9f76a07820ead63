r"""Distillation: a student taught by its teacher, and the same student taught by the data alone.

    python -m benchmarks.tasks.distill runs/sst2 train.tsv.gz --dev dev.tsv.gz --blocks 2 4 6
    python -m benchmarks.tasks.distill runs/novels store/ --blocks 2 4 --max-len 32

The teacher is a fine-tuned model, with files for training and evaluation, or a pretrained BERT,
with the token store of its text, whose held-out documents are those of `pretrain`. All students
start with the same blocks of the teacher and train for the same steps on the same batches in the
same order: on the labels, on the outputs of the teacher, or on its outputs and hidden states.
Prints JSON lines with the cross entropy and the accuracy on the data for evaluation.
"""

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.tasks.rows import TaskRows

WAYS: dict[str, dict[str, Any]] = {
    "labels": {},
    "outputs": {"hidden_states": False},
    "outputs and hidden states": {},
}
HELD_OUT_BATCHES = 50

Model = Any  # a `BERTModel` or a task model


def data_of(teacher: Model, options: argparse.Namespace) -> tuple[Any, tf.data.Dataset]:
    """Return the data of all steps and the data for evaluation."""
    if isinstance(teacher, kb.BERTModel):
        batches = functools.partial(
            kb.pretraining_dataset,
            TokenStore.open(options.train),
            teacher.tokenizer,
            batch_size=options.batch_size,
            max_len=options.max_len,
            objective="none" if teacher.nsp is None else "nsp",
        )
        train = batches(split="train", epochs=None).take(options.steps)
        return train, batches(split="held_out").take(HELD_OUT_BATCHES)
    examples = kb.read_examples(teacher.task, options.train)
    number = min(len(examples), options.steps * options.batch_size)
    dev = TaskRows.encode(
        kb.read_examples(teacher.task, options.dev),
        teacher.tokenizer,
        labels=getattr(teacher, "labels", None),
        max_len=options.max_len,
    )
    return examples.subset(range(number)), dev.batches(options.batch_size)


def metrics(model: Model, data: tf.data.Dataset) -> dict[str, float]:
    model.compile()
    found = cast(dict[str, float], model.evaluate(data, verbose=0, return_dict=True))
    return {name: found[name] for name in found if name.endswith(("entropy", "accuracy"))}


def fitted(teacher: Model, train: Any, options: argparse.Namespace, seed: int) -> Model:
    """Return a student that `fit` has trained on the labels, with the batches of `distill`."""
    if isinstance(train, tf.data.Dataset):
        batches = train
    else:
        labels, max_len = getattr(teacher, "labels", None), options.max_len
        rows = TaskRows.encode(train, teacher.tokenizer, labels=labels, max_len=max_len)
        batches = rows.batches(options.batch_size, epoch=0, seed=seed)
    student = kb.keep_blocks(teacher, options.blocks)
    steps = int(batches.cardinality())
    rate = kb.WarmupLinearDecay(options.learning_rate, steps // 10, steps)
    student.compile(kb.BERTAdamW(rate, 0.01))
    student.fit(batches, shuffle=False, verbose=0)
    return student


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("teacher", type=Path, help="checkpoint or run")
    parser.add_argument("train", type=Path, help="examples, or the token store of the text")
    parser.add_argument("--dev", type=Path, help="examples for evaluation")
    parser.add_argument("--blocks", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()

    teacher = kb.load_pretrained(options.teacher, verbose=False).model
    train, held_out = data_of(teacher, options)

    def show(who: str, model: Model, **facts: Any) -> None:
        found = {name: round(value, 4) for name, value in metrics(model, held_out).items()}
        print(json.dumps({"who": who, **facts, **found}), flush=True)

    show("teacher", teacher)
    show("student before", kb.keep_blocks(teacher, options.blocks))
    for seed in range(options.seeds):
        for who, way in WAYS.items():
            start = time.perf_counter()
            if who == "labels":
                student = fitted(teacher, train, options, seed)
            else:
                student = kb.distill(
                    teacher,
                    train,
                    options.blocks,
                    epochs=1,
                    learning_rate=options.learning_rate,
                    batch_size=options.batch_size,
                    max_len=options.max_len,
                    seed=seed,
                    verbose=0,
                    **way,
                )
            show(who, student, seed=seed, seconds=round(time.perf_counter() - start))


if __name__ == "__main__":
    main()
