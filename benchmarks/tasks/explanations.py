"""Delete the words that explanations name, and measure how much the decision changes.

    python -m benchmarks.tasks.explanations --classifier runs/sst2 --dev dev.tsv.gz

For each text, the words with the highest attributions to the predicted label are deleted from the
text, 1, 2 or 3 of them, and the classifier reads what is left. Random words are deleted for
comparison, with three seeds.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import ENVIRONMENT, print_report

os.environ |= ENVIRONMENT

import keras_bert_d2l as kb
from keras_bert_d2l.data.tasks.read_examples import read_examples

METHODS: dict[str, dict[str, Any]] = {
    "integrated gradients": {},
    "with 8 steps": {"steps": 8},
    "gradient times input": {"method": "gradient_x_input"},
}
FULL = next(iter(METHODS))
SEEDS, NUM_DELETED, FEWEST_WORDS = (0, 1, 2), (1, 2, 3), 5


def without(text: str, words: Sequence[kb.Attribution]) -> str:
    """Return a text without some of its words."""
    for one in sorted(words, key=lambda one: -one.start):
        text = text[: one.start] + text[one.end :]
    return " ".join(text.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classifier", type=Path, required=True, help="a fine-tuned checkpoint")
    parser.add_argument("--dev", type=Path, required=True, help="texts to predict")
    parser.add_argument("--texts", type=int, default=200, help="number of texts, from the first on")
    options = parser.parse_args()
    classifier, _, _ = kb.load_pretrained(options.classifier)
    texts = read_examples("classify", options.dev).texts
    said = kb.classify(classifier, list(texts))
    rng = {seed: np.random.default_rng(seed) for seed in SEEDS}
    orders: dict[str, list[list[kb.Attribution]]] = {}
    kept, steps = [], []
    for text, one in zip(texts, said, strict=True):
        if len(kept) == options.texts:
            break
        found = {name: kb.explain(classifier, text, **how)[0] for name, how in METHODS.items()}
        words = found[FULL].words
        if len(words) < FEWEST_WORDS:
            continue
        kept.append((text, one))
        change = found[FULL].logit - found[FULL].baseline_logit
        steps.append(abs(found[FULL].gap / change))
        for name, explanation in found.items():
            order = sorted(explanation.words, key=lambda word: -word.value)
            orders.setdefault(name, []).append(order)
        for seed in SEEDS:
            order = [words[n] for n in rng[seed].permutation(len(words))]
            orders.setdefault(f"random, seed {seed}", []).append(order)
    rows = []
    for name, listed in orders.items():
        row: dict[str, object] = {"words": name, "texts": len(kept)}
        for number in NUM_DELETED:
            parts = zip(kept, listed, strict=True)
            left = [without(text, order[:number]) for (text, _), order in parts]
            after = kb.classify(classifier, left)
            pairs = [(one, other) for (_, one), other in zip(kept, after, strict=True)]
            drops = [one.score - other.scores[one.label] for one, other in pairs]
            row[f"drop_{number}"] = float(np.mean(drops))
            row[f"changed_{number}"] = float(np.mean([one.label != o.label for one, o in pairs]))
        rows.append(row)
    print(f"largest relative gap: {max(steps):.4f}, median {np.median(steps):.4f}")
    print_report([rows], dict.fromkeys(rows[0], ".3f") | {"words": "", "texts": ""})


if __name__ == "__main__":
    main()
