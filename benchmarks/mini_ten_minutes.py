"""The `mini` preset on WikiText-2 for about ten minutes on two cores: held-out losses.

    python benchmarks/mini_ten_minutes.py path/to/wiki.train.tokens

A WordPiece vocabulary of 8,000, 5 % of the articles held out, rows filled with whole sentences.
`<unk>`, WikiText's mark for a rare word, is the unknown token here, which is never predicted, and
the ` @-@ ` escapes are undone: easy predictions that other readings of the corpus have are missing.
Rows are short, and dropout is off: in ten minutes no text is seen so often that it would help.
Prints one JSON line; losses are in nats, weighted means over real predictions.
"""

import argparse
import json
import time

import keras

import keras_bert_d2l as kb

VOCAB_SIZE = 8000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="wiki.train.tokens, also as .gz or .xz")
    parser.add_argument("--steps", type=int, default=2300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--beta-2", type=float, default=0.98)
    parser.add_argument("--epsilon", type=float, default=1e-8)
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    keras.utils.set_random_seed(options.seed)
    corpus = kb.Corpus.open(options.corpus, layout="wikitext")
    tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, VOCAB_SIZE))
    size = {"batch_size": options.batch_size, "max_len": options.max_len, "seed": options.seed}
    batches = kb.pretraining_dataset(corpus, tokenizer, epochs=None, split="train", **size)
    held_out = kb.pretraining_dataset(
        corpus, tokenizer, split="held_out", drop_remainder=False, **size
    )
    config = kb.BERTConfig.preset(
        "mini", vocab_size=len(tokenizer.vocab), dropout=0.0, embedding_dropout=0.0
    )
    model = kb.BERTModel.from_bert_config(config, dtype=options.precision)
    schedule = kb.WarmupLinearDecay(options.learning_rate, options.steps // 10, options.steps)
    model.compile(kb.BERTAdamW(schedule, beta_2=options.beta_2, epsilon=options.epsilon))
    start = time.perf_counter()
    model.fit(batches, steps_per_epoch=options.steps, shuffle=False, verbose=2)
    minutes = (time.perf_counter() - start) / 60
    figures = model.evaluate(held_out, verbose=0, return_dict=True)
    tokens = options.steps * options.batch_size * options.max_len
    figures |= {"minutes": minutes, "tokens_per_second": tokens / minutes / 60}
    print(json.dumps({**vars(options), **{name: round(x, 3) for name, x in figures.items()}}))


if __name__ == "__main__":
    main()
