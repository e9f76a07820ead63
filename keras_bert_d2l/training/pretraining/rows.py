"""Choose how examples fill the rows of a pretraining run, and the rows per step.

The choice only affects the speed: a step trains on as many examples with packed rows as with padded
ones, in fewer rows.
"""

import math

import numpy as np

from keras_bert_d2l.data.pretraining.packing import Rows, pack
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, Objective, make_examples
from keras_bert_d2l.data.pretraining.splitting import split_documents
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.training.pretraining.options import Phase, PretrainingOptions

MAX_EXAMPLES = 8  # in a packed row
_MOST_TOKENS = 0.95  # packed rows must have at most this share of the tokens of padded rows
_SAMPLED_TOKENS = 1 << 20  # enough text to measure how well its examples fill rows


def choose_rows(
    options: PretrainingOptions, store: TokenStore, objective: Objective, replicas: int
) -> tuple[Rows, list[Phase]]:
    """Return how examples fill rows, and the phases of the run with their rows per step.

    `"auto"` becomes `"packed"` if that saves at least 5% of the tokens, counting padding, and
    `"padded"` otherwise. The choice depends only on the text and the options.

    Args:
        options: The options of the run.
        store: The text.
        objective: The objective of the run.
        replicas: Number of devices. The rows of a step are a multiple of it.
    """
    padded = options.phases()
    if options.rows == "padded" or options.rows == "bucketed":
        return options.rows, padded
    lengths = {phase.max_len for phase in padded}
    shares = {length: _rows_per_example(options, store, objective, length) for length in lengths}
    packed = []
    for phase in padded:
        rows = phase.batch_size * shares[phase.max_len]
        packed.append(phase._replace(batch_size=math.ceil(rows / replicas) * replicas))
    if options.rows == "auto" and _num_tokens(packed) > _MOST_TOKENS * _num_tokens(padded):
        return "padded", padded
    return "packed", packed


def _num_tokens(phases: list[Phase]) -> int:
    return sum((phase.end - phase.start) * phase.batch_size * phase.max_len for phase in phases)


def _rows_per_example(
    options: PretrainingOptions, store: TokenStore, objective: Objective, max_len: int
) -> float:
    """Return the number of packed rows divided by the number of examples, in a sample."""
    documents = split_documents(store.document_hashes, "train", options.held_out)
    step = max(1, min(store.num_tokens // _SAMPLED_TOKENS, len(documents) // 2))
    sample = ExampleOptions(
        max_len=max_len,
        objective=objective,
        seed=options.seed,
        documents=documents[::step],
        short_seq_prob=options.short_seq_prob,
    )
    lengths = make_examples(store, sample, epoch=0).lengths()
    if not len(lengths):
        return 1.0
    random = np.random.default_rng(options.seed)
    _, splits = pack(lengths, max_len=max_len, max_examples=MAX_EXAMPLES, random=random)
    return (len(splits) - 1) / len(lengths)
