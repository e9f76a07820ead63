"""F1 or accuracy of taggers with and without a CRF, for several sizes of the training data.

    python -m benchmarks.tasks.crf --checkpoint minilm --entities wnut17 --ud ud_ewt

`--entities` is a folder with `wnut17train.conll` and `emerging.test.annotated` of
github.com/leondz/emerging_entities_17; `--ud` one with the training and development data of UD
English EWT. The runs of one task and kind of model share a process and its graph, so that most of
the time is training. The learning rate falls from epoch to epoch. Each line is printed when its
runs are done; the last columns are the F1 and accuracy of the CRF that predicts only valid tags.
"""

import argparse
import pathlib
import time

import keras
import numpy as np

import keras_bert_d2l as kb
from keras_bert_d2l.training.optimization import optimizers

BATCH_SIZE, LEARNING_RATE, MAX_LEN, NUM_TEST = 8, 2e-4, 64, 500
EPOCHS = {300: 5, 1000: 3, 3394: 1}  # more for smaller data


class Runs:
    """The runs of one task with or without a CRF."""

    def __init__(self, bert: kb.BERTModel, train: object, test: object, crf: bool) -> None:
        self.train, self.test = train, test
        labels = sorted({*train.label_names, *test.label_names})
        self.model = kb.TokenClassifier(bert, labels, crf=crf, tokenizer=bert.tokenizer)
        self.model.compile(kb.BERTAdamW(LEARNING_RATE))
        self.model.optimizer.build(self.model.trainable_variables)
        self.initial = self.model.get_weights()

    def scores(self, size: int, seed: int) -> list[float]:
        """Train on a sample of sentences; return the metric, and that with valid tags if any."""
        model, rng = self.model, np.random.default_rng(seed)
        for variable in model.optimizer.variables:
            variable.assign(keras.ops.zeros_like(variable))
        model.set_weights(self.initial)
        model.head.kernel.assign(rng.normal(0, 0.02, model.head.kernel.shape))
        some = self.train.subset(sorted(rng.permutation(len(self.train))[:size]))
        rows = kb.TaskRows.encode(some, model.tokenizer, labels=model.labels, max_len=MAX_LEN)
        epochs = EPOCHS[size]
        for epoch in range(epochs):
            model.optimizer.learning_rate = LEARNING_RATE * (1 - epoch / epochs)
            model.fit(rows.batches(BATCH_SIZE, epoch=epoch, seed=seed), verbose=0)
        metrics = [kb.evaluate(model, self.test, batch_size=32).metrics]
        if model.crf is not None and "f1" in metrics[0]:
            model.valid_tags = True
            metrics.append(kb.evaluate(model, self.test, batch_size=32).metrics)
            model.valid_tags = False
        return [one.get("f1", one["accuracy"]) for one in metrics]


def examples(arguments: argparse.Namespace) -> dict[str, tuple[object, object]]:
    """Return the training and test data of each task."""
    found = {}
    if arguments.entities:
        files = ("wnut17train.conll", "emerging.test.annotated")
        found["entities"] = [kb.read_examples("tag", arguments.entities / file) for file in files]
    if arguments.ud:
        files = sorted(arguments.ud.glob("*train.conllu*")) + sorted(
            arguments.ud.glob("*dev.conl*")
        )
        found["parts of speech"] = [kb.read_examples("tag", x, label="UPOS") for x in files]
    return {
        task: (train, test.subset(range(min(NUM_TEST, len(test)))))
        for task, (train, test) in found.items()
    }


def main() -> None:
    """Print a line for each task and size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--blocks", type=int, nargs="+", help="blocks of the encoder to keep")
    parser.add_argument("--entities", type=pathlib.Path)
    parser.add_argument("--ud", type=pathlib.Path)
    parser.add_argument("--sizes", type=int, nargs="+", choices=EPOCHS, default=[*EPOCHS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, help="learning rate of the CRF, relative to others")
    parser.add_argument("--precision", default="mixed_bfloat16")
    arguments = parser.parse_args()
    keras.config.set_dtype_policy(arguments.precision)
    keras.utils.set_random_seed(0)
    if arguments.rate is not None:
        optimizers._CRF_RATE = arguments.rate
    runs = {}
    for task, data in examples(arguments).items():
        for crf in (False, True):
            bert = kb.BERTModel.from_pretrained(arguments.checkpoint, verbose=False)
            bert = kb.keep_blocks(bert, arguments.blocks) if arguments.blocks else bert
            runs[task, crf] = Runs(bert, *data, crf)
    for size in arguments.sizes:
        for task in dict.fromkeys(task for task, _ in runs):
            for crf in (False, True):
                start = time.process_time()
                found = [runs[task, crf].scores(size, seed) for seed in range(arguments.seeds)]
                cells = [
                    f"{100 * np.mean(x):.1f} ± {100 * np.std(x):.1f}"
                    for x in zip(*found, strict=True)
                ]
                kind, seconds = "CRF" if crf else "independent", time.process_time() - start
                print(
                    f"{task} | {size} | {kind} | {' | '.join(cells)} | {seconds:.0f} s", flush=True
                )


if __name__ == "__main__":
    main()
