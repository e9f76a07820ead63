"""Train `novels-small`, the model that is part of the package, from novels and WikiText-2.

    python scripts/novels_small.py novels/ wiki.train.tokens runs/novels-small

The output folder gets the token stores, the runs of all stages, and `model/`, which is the content
of `keras_bert_d2l/novels_small/` without its model card. The same command continues an interrupted
training. The held-out metrics are in the `metrics.jsonl` of the runs.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from keras import ops

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.surgery import with_config
from keras_bert_d2l.types import Tensor

MAX_LEN, SHORT_LEN = 128, 32
RUNS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)
ALL_STAGES = {
    "recipe": "modern",
    "max_len": MAX_LEN,
    "batch_size": 64,
    "short_seq_prob": 0.3,
    "mask_replace_prob": 1.0,
    "learning_rate": 2e-3,
    "weight_decay": 0.1,
    "held_out": 0.02,
    "precision": "mixed_bfloat16",
    "resume": True,
}
# Masked tokens only, in rows of 32 tokens, from which the order of words is learned soonest.
FIRST = {
    "objective": "none",
    "steps": 8500,
    "short_steps": 8500,
    "short_len": SHORT_LEN,
    "mask_rate": 0.25,
    "final_mask_rate": 0.25,
    "schedule": "constant",
    "warmup_steps": 250,
    "evaluate_every": 500,
}
# Longer rows with a next-sentence head, while the learning rate falls to 0.
SECOND = {
    "objective": "nsp",
    "steps": 1500,
    "mask_rate": 0.15,
    "final_mask_rate": 0.15,
    "warmup_steps": 50,
    "decay_steps": 1450,
    "evaluate_every": 300,
}
# Twice as many blocks, copied from the first ones: next tokens, then masked tokens of short rows.
THIRD = {
    "objective": "none",
    "max_len": SHORT_LEN,
    "batch_size": 512,
    "steps": 2940,
    "causal_steps": 1090,
    "warmup_steps": 60,
    "decay_steps": 1010,
    "evaluate_every": 245,
}
# Again longer rows with a next-sentence head.
FOURTH = {
    **SECOND,
    "steps": 1000,
    "learning_rate": 1e-3,
    "warmup_steps": 20,
    "decay_steps": 980,
    "evaluate_every": 250,
}
# 4,000 more tokens and WikiText-2 in addition to the novels. A larger share of documents is held
# out, so that all that were held out before still are.
FIFTH = {
    **THIRD,
    "held_out": 0.022,
    "steps": 3372,
    "causal_steps": 748,
    "warmup_steps": 50,
    "decay_steps": 1560,
    "evaluate_every": 281,
}
SIXTH = {**FOURTH, "held_out": 0.022, "steps": 800, "decay_steps": 780, "evaluate_every": 200}
# The same twice more, with another order and other masks.
SEVENTH = {**FIFTH, "steps": 3814, "causal_steps": 813, "warmup_steps": 57, "decay_steps": 1716}
EIGHTH = {**FIFTH, "steps": 3353, "causal_steps": 675, "warmup_steps": 50, "decay_steps": 1509}
# And twice at half of the learning rate, which falls for longer.
NINTH = {
    **FIFTH,
    "learning_rate": 1e-3,
    "steps": 3660,
    "causal_steps": 555,
    "warmup_steps": 55,
    "decay_steps": 2196,
}
TENTH = {**NINTH, "steps": 3302, "causal_steps": 539, "warmup_steps": 50, "decay_steps": 1981}
# The ending of stages 9 and 10 in rows of 128 tokens: first without a change to short texts, then
# at low learning rates.
LONGER_STEPS, LONGER_LEARNING_RATE = 250, 3e-3
ENDING = (
    {**SIXTH, "steps": 200, "learning_rate": 2e-4, "warmup_steps": 10, "decay_steps": 190},
    {**SIXTH, "steps": 400, "learning_rate": 5e-4, "decay_steps": 380},
)
# The shares of these models in the mean: of stage 9 and of stage 10, before and after the steps
# at low learning rates. What single texts of at most 32 tokens do not use is from stage 10 alone.
SHARES, LONG_SHARES = (1, 1, 3, 3), (0, 0, 1, 1)


class KeepFirst(keras.constraints.Constraint):
    """Keep the first rows of an embedding.

    Args:
        rows: The rows to keep, `(rows, D)` or `(1, rows, D)`.
    """

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __call__(self, embedding: Tensor) -> Tensor:
        rest = ops.split(embedding, [self.rows.shape[-2]], axis=-2)[1]
        return ops.concatenate([ops.cast(self.rows, rest.dtype), rest], axis=-2)


def fit_long_rows(model: kb.BERTModel, store: kb.TokenStore, seed: int) -> kb.BERTModel:
    """Train only what a single text of at most 32 tokens does not use.

    This is the position embedding from position 32 on, the segment embedding of the second text,
    the pooler and the next-sentence head. The answers for short texts stay the same.
    """
    keras.utils.set_random_seed(seed)  # for the weights of the new heads
    keras.config.set_dtype_policy(ALL_STAGES["precision"])
    config = dataclasses.replace(model.bert_config, pooler=True, next_sentence=True)
    model = with_config(model, config)
    encoder = model.encoder
    for layer in (encoder.token_embedding, encoder.embedding_ln, *encoder.blks, model.mlm):
        layer.trainable = False
    positions, segments = encoder.pos_embedding, encoder.segment_embedding.embeddings
    positions.constraint = KeepFirst(positions.numpy()[:, :SHORT_LEN])
    segments.constraint = KeepFirst(segments.numpy()[:1])
    batches = kb.pretraining_dataset(
        store,
        model.tokenizer,
        batch_size=ALL_STAGES["batch_size"],
        max_len=MAX_LEN,
        short_seq_prob=ALL_STAGES["short_seq_prob"],
        masking=kb.Masking(replace=(1.0, 0.0, 0.0)),
        rows="packed",
        seed=seed,
        epochs=None,
        split="train",
        held_out=FIFTH["held_out"],
    )
    schedule = keras.optimizers.schedules.PolynomialDecay(LONGER_LEARNING_RATE, LONGER_STEPS, 0.0)
    model.compile(optimizer=keras.optimizers.Adam(schedule, clipnorm=1.0))
    model.fit(batches.take(LONGER_STEPS))
    return model


def with_ending(run: Path, store: kb.TokenStore, seed: int) -> list[kb.BERTModel]:
    """Train a run of short rows on longer rows; return the models before and after the last steps.

    Args:
        run: The folder of the run. The folders of its ending are beside it.
        store: The text.
        seed: The seed of the run.
    """
    longer = run.with_name(f"{run.name}-longer")
    if not longer.exists():
        model = kb.load_pretrained(run / "last").model
        kb.save_pretrained(fit_long_rows(model, store, seed), longer)
    start = longer
    for number, stage in enumerate(ENDING, start=1):
        end = run.with_name(f"{run.name}-ending-{number}")
        common = {**ALL_STAGES, "seed": seed + number}
        model = kb.pretrain(store, end, init=start, **{**common, **stage}).model
        start = end / "last"
    return [kb.load_pretrained(longer).model, model]


def averaged(models: Sequence[kb.BERTModel]) -> kb.BERTModel:
    """Return the first model with the means of the weights of all."""
    for weights in zip(*(model.weights for model in models), strict=True):
        values = [np.asarray(ops.convert_to_numpy(weight)) for weight in weights]
        mean = np.average(values, axis=0, weights=SHARES)
        of_long = np.average(values, axis=0, weights=LONG_SHARES)
        path = weights[0].path
        if "pos_embedding" in path:
            mean[:, SHORT_LEN:] = of_long[:, SHORT_LEN:]
        elif "segment_embedding" in path:
            mean[1:] = of_long[1:]
        elif "pooler/" in path or "nsp/" in path:
            mean = of_long
        weights[0].assign(mean)
    return models[0]


def main() -> None:
    """Train all stages and save the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("novels", help="folder of text files, one per novel")
    parser.add_argument("wikitext", help="training text of WikiText-2")
    parser.add_argument("out", type=Path, help="output folder")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    novels = kb.Corpus.open(options.novels)
    both = kb.Corpus.open([options.novels, options.wikitext])
    first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth = (
        options.out / name for name in RUNS
    )
    options.out.mkdir(parents=True, exist_ok=True)

    vocab = options.out / "vocab.txt"
    if not vocab.exists():
        kb.learn_vocab(novels, size=8000).to_file(vocab)
    tokenizer = kb.Tokenizer(kb.Vocab.from_file(vocab))
    store = kb.build_store(novels, tokenizer, options.out / "store")
    common = {**ALL_STAGES, "seed": options.seed}
    config = kb.BERTConfig.preset("mini", vocab_size=len(tokenizer.vocab), max_len=MAX_LEN)
    kb.pretrain(store, first, bert_config=config, **common, **FIRST)
    model = kb.pretrain(store, second, init=first / "last", **common, **SECOND).model

    kb.save_pretrained(kb.stack_blocks(model), options.out / "deeper")
    common["seed"] += 1  # other masks and another order than in the stages before
    kb.pretrain(store, third, init=options.out / "deeper", **{**common, **THIRD})
    model = kb.pretrain(store, fourth, init=third / "last", **{**common, **FOURTH}).model

    larger = kb.extend_vocab(tokenizer.vocab, both, size=12_000)
    model = kb.add_tokens(model, larger.tokens[len(tokenizer.vocab) :])
    kb.save_pretrained(model, options.out / "larger")
    store = kb.build_store(both, model.tokenizer, options.out / "store-of-both")
    common["seed"] += 2
    kb.pretrain(store, fifth, init=options.out / "larger", **{**common, **FIFTH})
    kb.pretrain(store, sixth, init=fifth / "last", **{**common, **SIXTH})
    common["seed"] += 1
    kb.pretrain(store, seventh, init=sixth / "last", **{**common, **SEVENTH})
    common["seed"] += 1
    kb.pretrain(store, eighth, init=seventh / "last", **{**common, **EIGHTH})
    common["seed"] += 2
    kb.pretrain(store, ninth, init=eighth / "last", **{**common, **NINTH})
    models = with_ending(ninth, store, common["seed"])
    common["seed"] += 3
    kb.pretrain(store, tenth, init=ninth / "last", **{**common, **TENTH})
    models += with_ending(tenth, store, common["seed"])
    model = fit_long_rows(averaged(models), store, common["seed"] + 3)
    kb.save_pretrained(model, options.out / "model", dtype="bfloat16")


if __name__ == "__main__":
    main()
