"""The algorithm of *Dive into Deep Learning*, section 15.9, on token ids in plain Python.

Every two neighboring sentences form a pair. In half of the pairs, the second sentence is replaced
by a random one. Pairs that are too long for a row are dropped. Written for this benchmark.
"""

import itertools
import random
from collections.abc import Iterator

from benchmarks.data.contestants import workload

options = workload.read_options()
vocab = workload.vocab_tokens(options)
CLS, SEP, MASK = (vocab.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
rng = random.Random(0)


def examples(documents: list[workload.Document]) -> Iterator[tuple]:
    while True:
        rng.shuffle(documents)
        for document in documents:
            for a, b in itertools.pairwise(document):
                is_next = rng.random() < 0.5
                if not is_next:
                    b = rng.choice(rng.choice(documents))
                if len(a) + len(b) + 3 <= options.max_len:
                    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
                    yield *mask([CLS, *a, SEP, *b, SEP]), segments, is_next


def mask(tokens: list[int]) -> tuple[list[int], list[int], list[int]]:
    candidates = [n for n, token in enumerate(tokens) if token not in (CLS, SEP)]
    rng.shuffle(candidates)
    chosen = sorted(candidates[: max(1, round(len(tokens) * workload.MASK_RATE))])
    corrupted = list(tokens)
    for position in chosen:
        if rng.random() < workload.MASKED:
            corrupted[position] = MASK
        elif rng.random() >= 0.5:
            corrupted[position] = rng.randrange(len(vocab))
    return corrupted, chosen, [tokens[position] for position in chosen]


endless = examples(workload.documents(options))
workload.take_turns(lambda: workload.finished_batch(endless, options), options.answers)
