"""Train `novels-small`, the model that is part of the package, from novels and WikiText-2.

    python scripts/novels_small.py novels/ wiki.train.tokens runs/novels-small

The output folder gets the token stores, the runs of all stages, and `model/`, which is the content
of `keras_bert_d2l/novels_small/` without its model card. The same command continues an interrupted
training. The held-out metrics are in the `metrics.jsonl` of the runs.
"""

import argparse
from pathlib import Path

import keras_bert_d2l as kb

MAX_LEN = 128
RUNS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
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
    "short_len": 32,
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
    "max_len": 32,
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
# The same once more, with another order and other masks.
SEVENTH = {**FIFTH, "steps": 3814, "causal_steps": 813, "warmup_steps": 57, "decay_steps": 1716}
EIGHTH = {**SIXTH, "steps": 600, "decay_steps": 580}


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
    first, second, third, fourth, fifth, sixth, seventh, eighth = (
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
    model = kb.pretrain(store, eighth, init=seventh / "last", **{**common, **EIGHTH}).model
    kb.save_pretrained(model, options.out / "model", dtype="bfloat16")


if __name__ == "__main__":
    main()
