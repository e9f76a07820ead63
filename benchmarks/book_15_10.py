"""The book's section 15.10 on WikiText-2: held-out losses and speed after 50 steps.

    python benchmarks/book_15_10.py path/to/wikitext-2

The book's corpus, word vocabulary, pairs, masks, net (2 blocks, 128 wide, 2 heads, dropout 0.2),
batch (512 pairs of 64 tokens) and number of steps; our losses, optimiser and precision. Prints one
JSON line. Losses are nats. All are weighted means over real predictions but for
`mean_mlm_loss_padded`, the mean over the steps the way some of the book's editions print it: the
padded slots, about 31 % of all, count as predictions of token 0, which are soon right, so that the
figure says little about the language and is comparable with nothing else here.
"""

import argparse
import json
import math
import time

import keras

from keras_bert_d2l import book as d2l
from keras_bert_d2l.models.metrics import weighted_metrics
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay

BATCH_SIZE, MAX_LEN = 512, 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "data_dir", help="folder of WikiText-2 (wiki.train.tokens, plain or packed)"
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    parser.add_argument("--beta-2", type=float, default=0.999)
    parser.add_argument("--initializer", default="book")
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    keras.utils.set_random_seed(options.seed)
    keras.config.set_dtype_policy(options.precision)
    train_iter, vocab = d2l.load_data_wiki(BATCH_SIZE, MAX_LEN, options.data_dir, seed=options.seed)
    valid_iter, _ = d2l.load_data_wiki(
        BATCH_SIZE, MAX_LEN, options.data_dir, split="valid", vocab=vocab
    )
    net = d2l.BERTModel(
        len(vocab),
        num_hiddens=128,
        ffn_num_hiddens=256,
        num_heads=2,
        num_blks=2,
        dropout=0.2,
        initializer=options.initializer,
    )
    net.compile(
        BERTAdamW(
            WarmupLinearDecay(options.learning_rate, options.warmup, options.steps),
            weight_decay=options.weight_decay,
            clip_norm=options.clip_norm,
            beta_2=options.beta_2,
        ),
        metrics={  # without weights: every slot counts
            "mlm": [keras.metrics.SparseCategoricalCrossentropy("padded", from_logits=True)]
        },
        weighted_metrics={"mlm": weighted_metrics(), "nsp": weighted_metrics()},
    )
    step_ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: step_ends.append(time.perf_counter())
    )
    trained = net.fit(
        train_iter.map(d2l.to_keras_batch).repeat(),
        steps_per_epoch=options.steps,
        callbacks=[clock],
        shuffle=False,  # the data set does it
        verbose=2,
    ).history
    held_out = net.evaluate(valid_iter.map(d2l.to_keras_batch), return_dict=True, verbose=0)
    pairs_per_second = BATCH_SIZE * (options.steps - 1) / (step_ends[-1] - step_ends[0])
    figures = {
        "held_out_mlm_loss": held_out["mlm_cross_entropy"],
        "held_out_mlm_accuracy": held_out["mlm_accuracy"],
        "held_out_nsp_loss": held_out["nsp_cross_entropy"],
        "mean_nsp_loss": trained["nsp_cross_entropy"][0],
        "mean_mlm_loss": trained["mlm_cross_entropy"][0],
        "mean_mlm_loss_padded": trained["mlm_padded"][0],
        "uniform_guess": math.log(len(vocab)),
        "pairs_per_second": pairs_per_second,  # from the end of the first step, which compiles
    }
    print(json.dumps({**vars(options), **{name: round(x, 3) for name, x in figures.items()}}))


if __name__ == "__main__":
    main()
