r"""Task results: compared with training in Hugging Face, and with and without pretraining.

    python -m benchmarks.tasks.results nli snli_dev.jsonl mnli_dev.jsonl --checkpoint minilm
    python -m benchmarks.tasks.results squad dev-v1.1.json --checkpoint minilm
    python -m benchmarks.tasks.results embed snli_dev.jsonl --checkpoint minilm
    python -m benchmarks.tasks.results static snli_dev.jsonl --checkpoint minilm
    python -m benchmarks.tasks.results proof --sst2 train.tsv dev.tsv --pos train.conllu dev.conllu

`nli`, `squad` and `embed` train twice from the same checkpoint with the same new head, batches and
options: with `fit`, and with a PyTorch loop on Hugging Face's model. The same code evaluates both
on a fifth of the data, selected by a hash of the premise or the article. `embed` learns from the
entailment pairs, alone and with a contradiction of the premise as the negative; its measure is
Spearman's rho of cosines and labels (entailment 1, neutral 0.5, contradiction 0). `static` distills
the checkpoint and compares scores and served texts per second. `proof` fine-tunes a pretrained
model and the same model with random weights, for one task or both, with several seeds, on all
examples or on a few.
Prints JSON lines.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_bert_d2l as kb
from benchmarks.runner import ROOT
from keras_bert_d2l.checkpoints.surgery import with_config
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.answer.examples import QuestionExamples
from keras_bert_d2l.tasks.embed.examples import PairExamples
from keras_bert_d2l.tasks.regress.predictions import regression_scores
from keras_bert_d2l.training.devices import choose_precision
from keras_bert_d2l.training.optimization.schedules import WarmupLinearDecay

WEIGHT_DECAY = 0.01
SIMILARITIES = {"entailment": 1.0, "neutral": 0.5, "contradiction": 0.0}
ROUNDS, SECONDS = 5, 2.0  # of each turn of a served model
HELD_OUT = 5  # hold out one in this many examples


def show(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def number_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def split(examples: TaskExamples, keys: Iterable[str]) -> tuple[TaskExamples, TaskExamples]:
    """Split by the rank of the keys' hashes, so equal keys stay in the same part."""
    keys = list(keys)
    ranked = sorted(set(keys), key=number_of)
    held_out = set(ranked[: len(ranked) // HELD_OUT])
    sides: tuple[list[int], list[int]] = ([], [])
    for index, key in enumerate(keys):
        sides[key in held_out].append(index)
    return examples.subset(sides[0]), examples.subset(sides[1])


def joined(parts: list[TextExamples]) -> TextExamples:
    fields = {
        name: tuple(value for part in parts for value in getattr(part, name))
        for name in ("texts", "texts_b", "labels")
    }
    return TextExamples(**fields)


def epochs_of(rows: TaskRows, options: argparse.Namespace) -> Iterator[tf.data.Dataset]:
    """Yield the batches of each epoch, at most `max_steps` in total."""
    left = options.max_steps or sys.maxsize
    for epoch in range(options.epochs):
        batches = rows.batches(options.batch_size, epoch=epoch, seed=options.seed)
        number = min(left, int(batches.cardinality()))
        if number:
            yield batches.take(number)
        left -= number


def train(model: TaskModel, epochs: list[tf.data.Dataset], options: argparse.Namespace) -> float:
    """Train with the given options and return the time in seconds."""
    steps = sum(int(batches.cardinality()) for batches in epochs)
    rate = WarmupLinearDecay(options.learning_rate, round(options.warmup * steps), steps)
    loss = kb.RankingLoss() if options.command == "embed" and not options.contrastive else None
    model.compile(kb.BERTAdamW(rate, WEIGHT_DECAY), loss)
    start = time.perf_counter()
    for batches in epochs:
        model.fit(batches, verbose=0)
    return time.perf_counter() - start


def write_batches(epochs: list[tf.data.Dataset], file: Path) -> None:
    """Write the arrays of all batches as `step/name`."""
    arrays: dict[str, np.ndarray] = {}
    batches = (batch for epoch in epochs for batch in epoch.as_numpy_iterator())
    for step, (features, labels) in enumerate(batches):
        labels = labels if isinstance(labels, dict) else {"label": labels}
        arrays |= {f"{step}/{name}": array for name, array in {**features, **labels}.items()}
    np.savez(file, **arrays)


def train_by_huggingface(task: str, steps: int, folder: Path, options: argparse.Namespace) -> float:
    start = time.perf_counter()
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "benchmarks.tasks.contestants.results_huggingface",
                f"--task={task}",
            ),
            *(f"--model={folder / 'start'}", f"--batches={folder / 'batches.npz'}"),
            *(f"--out={folder / 'huggingface'}", f"--learning-rate={options.learning_rate}"),
            *(f"--warmup-steps={round(options.warmup * steps)}", f"--seed={options.seed}"),
            f"--weight-decay={WEIGHT_DECAY}",
            *(["--bfloat16"] if options.precision == "mixed_bfloat16" else []),
        ],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    return time.perf_counter() - start


def beside_huggingface(
    options: argparse.Namespace,
    make: Callable[..., TaskModel],
    examples: TaskExamples,
    held_out: dict[str, TaskExamples],
    overlap: int | None = None,
) -> None:
    """Train with both libraries from the same checkpoint and print both scores."""
    keras.utils.set_random_seed(options.seed)
    keras.config.set_dtype_policy(options.precision)
    bert, tokenizer, _ = kb.load_pretrained(options.checkpoint, verbose=False)
    model = make(bert, tokenizer=tokenizer)
    rows = TaskRows.encode(examples, tokenizer, max_len=options.max_len, overlap=overlap)
    epochs = list(epochs_of(rows, options))
    steps = sum(int(batches.cardinality()) for batches in epochs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = model if model.has_head else bert
        kb.save_pretrained(start, folder / "start", format="huggingface")
        write_batches(epochs, folder / "batches.npz")
        seconds = {"ours": train(model, epochs, options)}
        kb.save_pretrained(model, folder / "ours")
        seconds["huggingface"] = train_by_huggingface(examples.task, steps, folder, options)
        keras.config.set_dtype_policy("float32")  # evaluate both in float32
        for who, took in seconds.items():
            trained = type(model).from_pretrained(folder / who, verbose=False)
            lengths = {"max_len": options.max_len, "overlap": overlap}
            for part, some in held_out.items():
                evaluation = evaluate(trained, some, **lengths)
                show(
                    task=options.command,
                    who=who,
                    held_out=part,
                    examples=len(some),
                    train_rows=len(rows),
                    steps=steps,
                    precision=options.precision,
                    seconds=round(took, 1),
                    **{key: round(value, 4) for key, value in evaluation.metrics.items()},
                )


def nli(options: argparse.Namespace) -> None:
    train_parts, held_out = [], {}
    for file in options.files:
        examples = read_examples("classify", file)
        some, held_out[file.name] = split(examples, examples.texts)
        train_parts.append(some)
    examples = joined(train_parts)
    held_out["all"] = joined(list(held_out.values()))

    def make(bert: kb.BERTModel, **kwargs: Any) -> TaskModel:
        return kb.SequenceClassifier(bert, examples.label_names, **kwargs)

    beside_huggingface(options, make, examples, held_out)


def squad(options: argparse.Namespace) -> None:
    examples = read_examples("answer", options.file)
    assert isinstance(examples, QuestionExamples)
    assert examples.titles is not None
    some, held_out = split(examples, examples.titles)
    parts = {options.file.name: held_out}
    beside_huggingface(options, kb.QuestionAnswerer, some, parts, options.overlap)


def similarities(examples: TextExamples) -> PairExamples:
    """Return pairs with the similarity of their texts as the score."""
    scores = tuple(SIMILARITIES[str(label)] for label in examples.labels or ())
    return PairExamples(texts=examples.texts, texts_b=examples.texts_b, labels=scores)


def hypotheses(examples: TextExamples, label: str) -> dict[str, list[str]]:
    """Return the hypotheses with a label by their premise."""
    found: dict[str, list[str]] = {}
    for premise, hypothesis, one in zip(
        examples.texts, examples.texts_b or (), examples.labels or (), strict=True
    ):
        if one == label:
            found.setdefault(premise, []).append(hypothesis)
    return found


def entailments(examples: TextExamples, *, triplets: bool = False) -> PairExamples:
    """Return premises with an entailed hypothesis and, in triplets, with a contradiction."""
    negatives = hypotheses(examples, "contradiction")
    rows = [
        (premise, *row)
        for premise, entailed in hypotheses(examples, "entailment").items()
        for row in zip(entailed, *([negatives.get(premise, [])] if triplets else []), strict=False)
    ]
    return PairExamples(
        **dict(zip(("texts", "texts_b", "negatives"), zip(*rows, strict=True), strict=False))
    )


def embed(options: argparse.Namespace) -> None:
    examples = read_examples("classify", options.file)
    some, held_out = split(examples, examples.texts)
    parts = {"similarity": similarities(held_out), "retrieval": entailments(held_out)}
    start = kb.TextEmbedder.from_pretrained(options.checkpoint, verbose=False)
    for part, data in parts.items():
        metrics = {key: round(x, 4) for key, x in evaluate(start, data).metrics.items()}
        show(task="embed", who="start", held_out=part, **metrics)
    for triplets in (True, False):
        beside_huggingface(options, kb.TextEmbedder, entailments(some, triplets=triplets), parts)


def texts_per_second(
    models: dict[str, kb.TextEmbedder], texts: list[str], size: int
) -> dict[str, float]:
    """Return the median throughput of the SavedModel of each model, which take turns."""
    rates: dict[str, list[float]] = {name: [] for name in models}
    with tempfile.TemporaryDirectory() as folder:
        served = {
            name: tf.saved_model.load(str(kb.export_saved_model(model, Path(folder, name))))
            for name, model in models.items()
        }
        batches = [tf.constant(texts[first : first + size]) for first in range(0, len(texts), size)]
        for one in served.values():
            one.signatures["embed"](text=batches[0])
        for _ in range(ROUNDS):
            for name, one in served.items():
                done, start = 0, time.perf_counter()
                while (seconds := time.perf_counter() - start) < SECONDS:
                    batch = batches[done // size % (len(batches) - 1)]
                    one.signatures["embed"](text=batch)
                    done += size
                rates[name].append(done / seconds)
    return {name: statistics.median(found) for name, found in rates.items()}


def show_model2vec(checkpoint: Path, pairs: PairExamples) -> None:
    """Distill the checkpoint with model2vec and print its score."""
    from model2vec.distill import distill

    start = time.perf_counter()
    model = distill(str(checkpoint), pca_dims=256, device="cpu")
    seconds = time.perf_counter() - start
    first, second = (model.encode(list(side)) for side in (pairs.texts, pairs.texts_b or ()))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1)
    cosines /= np.linalg.norm(second, axis=1)
    score = regression_scores(pairs.labels or (), cosines.tolist())["spearman"]
    show(task="static", who="model2vec", spearman=round(score, 4), seconds=round(seconds, 1))


def static(options: argparse.Namespace) -> None:
    examples = read_examples("classify", options.file)
    some, held_out = split(examples, examples.texts)
    texts = sorted({*some.texts, *(some.texts_b or ())})
    teacher = kb.TextEmbedder.from_pretrained(options.checkpoint, verbose=False)
    models = {"teacher": teacher, "without texts": kb.distill_static(teacher)}
    start = time.perf_counter()
    models["static"] = kb.distill_static(teacher, texts)
    seconds = time.perf_counter() - start
    parts = {"similarity": similarities(held_out), "retrieval": entailments(held_out)}
    for who, model in models.items():
        found: dict[str, float] = {}
        for data in parts.values():
            found |= evaluate(model, data, batch_size=256).metrics
        show(task="static", who=who, **{key: round(value, 4) for key, value in found.items()})
    show(task="static", texts=len(texts), seconds=round(seconds, 1))
    if options.model2vec:
        show_model2vec(options.checkpoint, parts["similarity"])
    models.pop("without texts")
    for size in (1, 32, 256):
        rates = texts_per_second(models, texts, size)
        ratio = round(rates["static"] / rates["teacher"], 1)
        show(task="speed", batch_size=size, ratio=ratio, **{k: round(v) for k, v in rates.items()})


def proof(options: argparse.Namespace) -> None:
    keras.config.set_dtype_policy(options.precision)
    scores: dict[tuple[str, str], list[float]] = {}
    tasks = {
        "sst2": ("classify", kb.SequenceClassifier, options.sst2, {}),
        "pos": ("tag", kb.TokenClassifier, options.pos, {"label": "UPOS"}),
    }
    tasks = {name: task for name, task in tasks.items() if task[2]}
    for name, (task, kind, files, columns) in tasks.items():
        examples, dev = (read_examples(task, file, **columns) for file in files)
        loaded, tokenizer, config = kb.load_pretrained(options.checkpoint, verbose=False)
        config = config.with_dropout(0.1)  # which small datasets need, and was off in pretraining
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(examples))[: options.examples]
            rows = TaskRows.encode(examples.subset(order), tokenizer, max_len=options.max_len)
            for start in ("pretrained", "untrained"):
                keras.utils.set_random_seed(seed)
                options.seed = seed
                bert = kb.BERTModel.from_bert_config(config)
                if start == "pretrained":
                    bert = with_config(loaded, config)
                pooling = {"pooling": options.pooling} if kind.pools else {}
                model = kind(bert, examples.label_names, tokenizer=tokenizer, **pooling)
                epochs = list(epochs_of(rows, options))
                seconds = train(model, epochs, options)
                accuracy = evaluate(model, dev).metrics["accuracy"]
                scores.setdefault((name, start), []).append(accuracy)
                show(
                    task=name,
                    start=start,
                    seed=seed,
                    examples=len(order),
                    accuracy=round(accuracy, 4),
                    steps=sum(int(batches.cardinality()) for batches in epochs),
                    seconds=round(seconds, 1),
                )
    for name in tasks:
        ours, other = scores[name, "pretrained"], scores[name, "untrained"]
        gains = [a - b for a, b in zip(ours, other, strict=True)]
        show(
            task=name,
            pretrained=round(statistics.mean(ours), 4),
            untrained=round(statistics.mean(other), 4),
            gain=round(statistics.mean(gains), 4),
            least_gain=round(min(gains), 4),
            seeds=len(gains),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    of_nli = commands.add_parser("nli", help="classify sentence pairs")
    of_nli.add_argument("files", type=Path, nargs="+")
    of_squad = commands.add_parser("squad", help="answer questions")
    of_squad.add_argument("file", type=Path)
    of_squad.add_argument("--overlap", type=int, default=128)
    of_embed = commands.add_parser("embed", help="embed the texts of sentence pairs")
    of_embed.add_argument("file", type=Path)
    of_embed.add_argument("--contrastive", action="store_true", help="our loss is ContrastiveLoss")
    of_static = commands.add_parser("static", help="distill an embedder into a static one")
    of_static.add_argument("file", type=Path)
    of_static.add_argument("--checkpoint", type=Path, required=True)
    of_static.add_argument("--model2vec", action="store_true", help="compare with it: 3 minutes")
    of_proof = commands.add_parser("proof", help="compare a pretrained with an untrained model")
    of_proof.add_argument("--checkpoint", default="novels-small")
    of_proof.add_argument("--sst2", type=Path, nargs=2, metavar=("TRAIN", "DEV"))
    of_proof.add_argument("--pos", type=Path, nargs=2, metavar=("TRAIN", "DEV"))
    of_proof.add_argument("--pooling", choices=("cls", "mean"), help="default: cls if possible")
    of_proof.add_argument("--seeds", type=int, default=3)
    of_proof.add_argument("--examples", type=int, help="train on so many random examples")
    for command, max_len, epochs in (
        (of_nli, 128, 3),
        (of_squad, 384, 2),
        (of_embed, 64, 1),
        (of_proof, 64, 1),
    ):
        if command is not of_proof:
            command.add_argument("--checkpoint", type=Path, required=True)
            command.add_argument("--seed", type=int, default=0)
        command.add_argument("--max-len", type=int, default=max_len)
        command.add_argument("--epochs", type=int, default=epochs)
        command.add_argument("--max-steps", type=int, help="maximum number of steps in all epochs")
        command.add_argument("--batch-size", type=int, default=64 if command is of_embed else 32)
        # `mini` tolerates a higher learning rate, and needs it without pretraining. MiniLM has
        # learned to embed texts already.
        rate = {of_proof: 3e-4, of_embed: 1e-5}.get(command, 1e-4)
        command.add_argument("--learning-rate", type=float, default=rate)
        command.add_argument("--warmup", type=float, default=0.1, help="fraction of the steps")
        command.add_argument(
            "--precision", choices=("float32", "mixed_bfloat16"), help="default: the faster one"
        )
    options = parser.parse_args()
    if options.command == "proof" and not (options.sst2 or options.pos):
        of_proof.error("give the files of a task: --sst2, --pos or both")
    if options.command == "static":
        static(options)
        return
    if options.precision is None:
        num_tokens = options.batch_size * options.max_len
        options.precision = choose_precision(kb.BERTConfig.preset("mini"), num_tokens)
    {"nli": nli, "squad": squad, "embed": embed, "proof": proof}[options.command](options)


if __name__ == "__main__":
    main()
