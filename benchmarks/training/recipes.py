r"""What each part of `--recipe modern` gains at equal time, over several seeds.

    python -m benchmarks.training.recipes wiki.train.tokens --out recipes.jsonl

A model learns WikiText-2 (vocabulary 2,000, masked tokens only, rows of 16 tokens in the first
half, then of 64) with the recipe, with one part changed at a time, and with BERT's own settings.
The settings with AdamW get as many more steps as its step is faster than that of Muon, in CPU
time, which is measured first, best on an idle machine. The other parts changed the time of a step
by less than the measurement varies (7 %). Muon and AdamW each have the best of three learning
rates. `--out` keeps the lines of finished runs, so
that a second call continues, and two calls with other `--seeds` and files can run at a time. The
measure is the loss on held-out articles, in nats: 15 % of the tokens are predicted, and all of them
are replaced with [MASK], also after a training that keeps some. With next-sentence prediction, the
held-out rows are pairs too, which have less context.
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import keras

import keras_bert_d2l as kb

BERT = {
    "recipe": None,
    "optimizer": "adamw",
    "schedule": "linear",
    "mask_rate": 0.15,
    "final_mask_rate": 0.15,
    "dropout": 0.1,
    "learning_rate": 2e-3,
    "short_steps": 0,
}
SETTINGS: dict[str, Mapping[str, object]] = {
    "modern": {},
    "AdamW instead of Muon": {"optimizer": "adamw", "learning_rate": 2e-3},
    "linear instead of wsd": {"schedule": "linear"},
    "decay in the last half instead of the last fifth": {"decay_steps": 0.5},
    "15 % masked instead of 30 to 15 %": {"mask_rate": 0.15},
    "and [MASK] for all predicted tokens instead of 80 %": {"mask_replace_prob": 1.0},
    "dropout 0.1 instead of 0": {"dropout": 0.1},
    "rows of 64 tokens only": {"short_steps": 0},
    "and next-sentence prediction": {"objective": "nsp"},
    "BERT: AdamW, linear, 15 %, dropout 0.1, rows of 64": BERT,
}
TIMED = {"muon": "modern", "adamw": "AdamW instead of Muon"}
TIMED_STEPS = 48  # a multiple of the stages of the mask rate and of the phases


class StepTimes(keras.callbacks.Callback):
    """Records the CPU time of each step, by phase."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: list[list[float]] = []

    def on_train_begin(self, logs: object = None) -> None:
        self.phases.append([])
        self.last = time.process_time()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        last, self.last = self.last, time.process_time()
        self.phases[-1].append(self.last - last)

    def mean(self) -> float:
        """Return the CPU seconds of a step; the first one of a phase also traces the graph."""
        sums = [len(times) * statistics.median(times[1:]) for times in self.phases]
        return sum(sums) / sum(map(len, self.phases))


def run(
    setting: str, steps: int, seed: int, *, store: kb.TokenStore, **options: object
) -> dict[str, float]:
    """Train, and return the held-out metrics at the end."""
    changes = {
        "recipe": "modern",
        "objective": "none",
        "learning_rate": 4e-3,
        "short_steps": 0.5,
        "short_len": 16,
        **SETTINGS[setting],
    }
    if not changes["short_steps"]:
        del changes["short_len"]
    changes = {name: value for name, value in changes.items() if value is not None}
    keras.utils.clear_session()
    with tempfile.TemporaryDirectory() as folder:
        kb.pretrain(
            store,
            f"{folder}/run",
            batch_size=32,
            max_len=64,
            steps=steps,
            evaluate_every=steps,
            seed=seed,
            verbose=0,
            **{**options, **changes},
        )
        model = kb.load_pretrained(f"{folder}/run/last").model
    held_out = kb.pretraining_dataset(
        store,
        model.tokenizer,
        batch_size=64,
        max_len=64,
        seed=seed,
        split="held_out",
        drop_remainder=False,
        objective=changes["objective"],
        masking=kb.Masking(replace=(1, 0, 0)),
    )
    model.compile()
    return model.evaluate(held_out, return_dict=True, verbose=0)


def step_times(run_one: functools.partial) -> dict[str, float]:
    """Return the CPU seconds of a step with each optimizer, the lowest of three turns."""
    found: dict[str, list[float]] = {optimizer: [] for optimizer in TIMED}
    for _ in range(3):
        for optimizer, setting in TIMED.items():
            times = StepTimes()
            run_one(setting, TIMED_STEPS, seed=0, callbacks=[times])
            found[optimizer].append(times.mean())
    return {optimizer: min(times) for optimizer, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="wiki.train.tokens")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines of the finished runs")
    parser.add_argument("--steps", type=int, default=600, help="with Muon, of 2,048 tokens")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--vocab-size", type=int, default=2000, help="small: learned from sooner")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--precision", default="auto")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.open()] if options.out.exists() else []

    def keep(**line: object) -> None:
        lines.append(line)
        with options.out.open("a") as file:
            print(json.dumps(line), file=file)
        print(json.dumps(line), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        corpus = kb.Corpus.open(options.corpus, layout="wikitext")
        tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=options.vocab_size))
        store = kb.build_store(corpus, tokenizer, f"{folder}/store")
        run_one = functools.partial(
            run, store=store, preset=options.preset, precision=options.precision
        )
        if not lines:
            keep(cpu_seconds_per_step=step_times(run_one))
        seconds = lines[0]["cpu_seconds_per_step"]
        done = {(line["setting"], line["seed"]) for line in lines[1:]}
        for seed in options.seeds:
            for name in SETTINGS:
                if (name, seed) not in done:
                    optimizer = SETTINGS[name].get("optimizer", "muon")
                    ratio = seconds["muon"] / seconds[optimizer]
                    steps = round(options.steps * ratio)
                    metrics = run_one(name, steps, seed)
                    keep(
                        setting=name,
                        seed=seed,
                        steps=steps,
                        mlm_loss=round(metrics["mlm_cross_entropy"], 4),
                        mlm_accuracy=round(metrics["mlm_accuracy"], 4),
                    )
    losses = {
        name: {line["seed"]: line["mlm_loss"] for line in lines[1:] if line["setting"] == name}
        for name in SETTINGS
    }
    for name, found in losses.items():
        gains = [found[seed] - losses["modern"][seed] for seed in found]
        print(
            f"| {name} | {statistics.mean(found.values()):.3f} | {statistics.mean(gains):+.3f} "
            f"± {statistics.stdev(gains) if len(gains) > 1 else 0:.3f} |"
        )


if __name__ == "__main__":
    main()
