r"""Pretrain on WikiText-2 for ten minutes and print the held-out losses by words seen.

    python -m benchmarks.training.wikitext2 wiki.train.tokens
    python -m benchmarks.training.wikitext2 wiki.train.tokens --preset tiny --steps 4000

It calls `pretrain` like a user would: with a WordPiece vocabulary of 8,000 tokens learned from
the text, 5 % of the articles held out, and rows filled with complete sentences. The first half
uses short rows, from which a model of this size learns word order several times faster; a row of
64 tokens is then still unfamiliar, so the losses of this half are not shown. With `--steps`, the
result does not depend on the speed of the machine. `<unk>`, WikiText's placeholder for rare words,
becomes the unknown token, which is never predicted, and ` @-@ ` escapes are undone. Setups that
keep both report lower losses, because these tokens are easy to predict. Losses are in nats,
averaged over real predictions.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_bert_d2l as kb
from keras_bert_d2l.training.pretraining.pretrain import PretrainingResult


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="wiki.train.tokens")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float)
    length.add_argument("--steps", type=int)
    parser.add_argument("--presets", nargs="+", default=["mini"])
    parser.add_argument("--recipe", choices=("modern",))
    parser.add_argument("--objective", choices=("nsp", "none"))
    parser.add_argument("--decay-steps", type=float)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=64)
    parser.add_argument("--short-steps", type=float, default=0.5)
    parser.add_argument("--short-len", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def train(preset: str, folder: str, settings: dict[str, Any]) -> PretrainingResult:
    """Train and print the metrics at the end."""
    keras.utils.clear_session()
    start = time.perf_counter()
    result = kb.pretrain(
        run_dir=f"{folder}/{preset}",
        layout="wikitext",
        vocab_size=8000,
        preset=preset,
        cache_dir=f"{folder}/cache",
        verbose=2,
        **settings,
    )
    figures = {name.removeprefix("val_"): value for name, value in result.metrics[-1].items()}
    shown = {name: round(value, 4) for name, value in figures.items()}
    minutes = round((time.perf_counter() - start) / 60, 2)
    print(json.dumps({"preset": preset, **shown, **settings, "minutes_in_all": minutes}))
    return result


def words_per_token(corpus: str, tokenizer: kb.Tokenizer) -> float:
    lines = Path(corpus).read_text(encoding="utf-8").splitlines()
    return sum(len(line.split()) for line in lines) / tokenizer.tokenize(lines).flat_values.shape[0]


def tokens_per_step(
    tokenizer: kb.Tokenizer, num_rows: int, max_len: int, options: argparse.Namespace, cache: str
) -> float:
    """Return the mean number of tokens in a batch, without padding and special tokens."""
    is_padded = num_rows == options.batch_size * options.max_len // max_len
    batches = kb.pretraining_dataset(
        kb.Corpus.open(options.corpus, layout="wikitext"),
        tokenizer,
        batch_size=num_rows,
        max_len=max_len,
        objective=options.objective or "nsp",
        rows="padded" if is_padded else "packed",
        split="train",
        cache_dir=cache,
    )
    special = tokenizer.vocab[["[CLS]", "[SEP]", "[PAD]"]]
    found = [np.isin(x["tokens"], special, invert=True).sum() for x, *_ in batches.take(100)]
    return float(np.mean(found))


def main() -> None:
    options = arguments()
    settings = {name: value for name, value in vars(options).items() if value is not None}
    presets = settings.pop("presets")
    if options.steps is None:
        settings.setdefault("minutes", 10.0)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for preset in presets:
            result = train(preset, folder, settings)
            tokenizer, cache = result.tokenizer, f"{folder}/cache"
            state = json.loads(Path(folder, preset, "last/training_state.json").read_text())
            sizes = state["batch_sizes"][0], state["batch_sizes"][-1]
            short, full = (
                tokens_per_step(tokenizer, size, length, options, cache)
                for size, length in zip(sizes, (options.short_len, options.max_len), strict=True)
            )
            million_words = words_per_token(options.corpus, tokenizer) / 1e6
            change = options.short_steps * result.metrics[-1]["step"]
            rows += [
                f"| {preset} "
                f"| {(change * short + (found['step'] - change) * full) * million_words:.2f} "
                f"| {found['val_mlm_cross_entropy']:.3f} | {found['val_mlm_accuracy']:.3f} |"
                for found in result.metrics
                if "val_loss" in found and found["step"] > change
            ]
    print("| preset | million words seen | held-out MLM loss | accuracy |", *rows, sep="\n")


if __name__ == "__main__":
    main()
