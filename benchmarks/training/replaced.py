r"""What replaced tokens teach in the same CPU time as masked words: grammar, and few labels.

    python -m benchmarks.training.replaced DATA stores/novels --out replaced.jsonl

DATA has `corpus/novels.tar.xz`, an archive of texts, `minimal_pairs/blimp.jsonl.xz`, and
`sst2/train.tsv.gz` and `dev.tsv.gz`. Each model is a `tiny` with a vocabulary of 8,000 tokens that
learns from rows of 32 tokens with `--recipe modern`. The CPU time of a step is measured first, and
the steps are as many as fit into the budget.

Then it judges pairs of sentences, of which one is grammatical. With masked words, the score of a
sentence is its pseudo-log-likelihood, which takes a row per token. With replaced tokens, it is the
sum of `log(1 - p)` over its tokens, for the probability p that the token was replaced, which takes
one row. At last the model learns to classify from 2,000 examples of SST-2, with three seeds.
"""

import argparse
import gzip
import json
import lzma
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

import keras_bert_d2l as kb
from benchmarks.training.recipes import StepTimes

SETTINGS: dict[str, dict[str, object]] = {
    "masked words": {"objective": "none"},
    "replaced tokens, shared embeddings": {"objective": "rtd"},
    "replaced tokens, disentangled embeddings": {
        "objective": "rtd",
        "generator_embeddings": "disentangled",
    },
}
COMMON = {"max_len": 32, "batch_size": 64, "recipe": "modern"}
TIMED_STEPS, EXAMPLES, SEEDS = 48, 2000, (0, 1, 2)


def score(model: kb.BERTModel, sentences: list[str]) -> np.ndarray:
    """Return the sum of log(1 - p) over the tokens of each sentence but the special ones."""
    batch = {name: np.asarray(values) for name, values in model.tokenizer(sentences).items()}
    logits = model.predict(batch, batch_size=256, verbose=0)["rtd"].astype("float64")
    places = np.arange(logits.shape[1])
    is_token = (places > 0) & (places < batch["valid_lens"][:, None] - 1)
    return -np.sum(np.logaddexp(0, logits) * is_token, axis=1)


def grammar(model: kb.BERTModel, pairs: list[dict[str, str]]) -> float:
    """Return the share of pairs whose grammatical sentence has the higher score."""
    if model.rtd is None:
        return kb.minimal_pairs(model, pairs).accuracy
    good, bad = (score(model, [pair[f"sentence_{x}"] for pair in pairs]) for x in ("good", "bad"))
    return float(np.mean(good > bad))


def classification(model: Path, data: Path, folder: Path) -> list[float]:
    """Return the accuracy on the development set of SST-2 after the last epoch, for each seed."""
    with gzip.open(data / "train.tsv.gz", "rt", encoding="utf-8") as file:
        first, *rows = file
    chosen = np.random.default_rng(0).permutation(len(rows))[:EXAMPLES]
    (folder / "train.tsv").write_text(first + "".join(rows[n] for n in chosen), encoding="utf-8")
    found = []
    for seed in SEEDS:
        metrics = kb.finetune_files(
            folder / f"classify-{seed}",
            task="classify",
            model=model,
            train=folder / "train.tsv",
            dev=data / "dev.tsv.gz",
            epochs=3,
            learning_rate=3e-4,
            seed=seed,
            verbose=0,
        ).metrics
        found.append(round(metrics["history"][-1]["val_accuracy"], 4))
    return found


def step_time(setting: str, options: argparse.Namespace) -> float:
    """Return the CPU seconds of a step."""
    times = StepTimes()
    timed = {"steps": TIMED_STEPS, "evaluate_every": TIMED_STEPS, "callbacks": [times]}
    kb.pretrain(options.store, tempfile.mkdtemp(), **given(setting, options), **timed)
    return times.mean()


def given(setting: str, options: argparse.Namespace) -> dict[str, object]:
    """Return the options of `pretrain`."""
    own = {"preset": options.preset, "learning_rate": options.rate, "precision": options.precision}
    return {**COMMON, **SETTINGS[setting], **own, "verbose": 0}


def measured(setting: str, steps: int, options: argparse.Namespace) -> dict[str, object]:
    """Pretrain one model, and return what it has learned."""
    folder, data = Path(tempfile.mkdtemp()), options.data
    record: dict[str, object] = {"setting": setting, "preset": options.preset, "steps": steps}
    start = time.process_time()
    run = {**given(setting, options), "steps": steps, "evaluate_every": steps}
    metrics = kb.pretrain(options.store, folder / "run", **run).metrics[-1]
    record["cpu_minutes"] = round((time.process_time() - start) / 60, 2)
    record |= {name: round(x, 4) for name, x in metrics.items() if name.startswith("val_")}
    model = kb.load_pretrained(folder / "run/last", verbose=False).model
    record["weights"] = model.encoder.count_params()
    with lzma.open(data / "minimal_pairs/blimp.jsonl.xz", "rt", encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file]  # 1,000 of each phenomenon, in order
    record["grammar"] = round(grammar(model, pairs[:: 1000 // options.pairs]), 4)
    record["sst2"] = classification(folder / "run/last", data / "sst2", folder)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with corpus/, minimal_pairs/ and sst2/")
    parser.add_argument("store", type=Path, help="folder for the tokens, written by the first call")
    parser.add_argument("--minutes", type=float, default=8, help="CPU time per model")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--pairs", type=int, default=20, help="per phenomenon")
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, which are added")
    options = parser.parse_args()
    if not kb.TokenStore.is_at(options.store):
        novels = Path(tempfile.mkdtemp())
        with tarfile.open(options.data / "corpus/novels.tar.xz") as archive:
            archive.extractall(novels, filter="data")
        corpus = kb.Corpus.open(novels / "novels")
        kb.build_store(corpus, kb.Tokenizer(kb.learn_vocab(corpus, 8000)), options.store)
    times = {setting: step_time(setting, options) for setting in options.settings}
    print({setting: f"{1000 * seconds:.0f} ms per step" for setting, seconds in times.items()})
    for setting, seconds in times.items():
        steps = round(60 * options.minutes / seconds)
        line = json.dumps(measured(setting, steps, options))
        print(line, flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            print(line, file=file)


if __name__ == "__main__":
    main()
