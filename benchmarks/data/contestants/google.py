"""The algorithm of google-research/bert's create_pretraining_data.py, on ids in plain Python.

Sentences are collected until they fill a row and split into A and B. Half of the time, B comes
from a different document, and the unused sentences are returned. Masks are chosen from shuffled
tokens or whole words. Written for this benchmark, on token ids, which are faster in Python than
the strings of the original.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

from benchmarks.data.contestants import workload

TRIES = 10

options = workload.read_options()
vocab = workload.vocab_tokens(options)
CLS, SEP, MASK = (vocab.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
IS_PIECE = [token.startswith("##") for token in vocab]
WHOLE_WORDS = options.task == "store-whole-word"
rng = random.Random(0)


def pairs(documents: Sequence[workload.Document], index: int) -> Iterator[tuple]:
    """Yield A, B, and whether B follows A."""
    document, room = documents[index], options.max_len - 3
    chunk: list[list[int]] = []
    length = position = 0
    while position < len(document):
        chunk.append(document[position])
        length += len(document[position])
        if position == len(document) - 1 or length >= room:
            cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            a = list(itertools.chain.from_iterable(chunk[:cut]))
            is_next = len(chunk) > 1 and rng.random() >= 0.5
            if is_next:
                b = list(itertools.chain.from_iterable(chunk[cut:]))
            else:
                b = elsewhere(documents, index, room - len(a))
                position -= len(chunk) - cut
            truncate(a, b, room)
            yield a, b, is_next
            chunk, length = [], 0
        position += 1


def elsewhere(documents: Sequence[workload.Document], index: int, wanted: int) -> list[int]:
    for _ in range(TRIES):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    tokens: list[int] = []
    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
        tokens.extend(sentence)
        if len(tokens) >= wanted:
            break
    return tokens


def truncate(a: list[int], b: list[int], room: int) -> None:
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask(tokens: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return the corrupted tokens, the positions to predict and the original tokens."""
    units: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in (CLS, SEP):
            continue
        if WHOLE_WORDS and units and IS_PIECE[token]:
            units[-1].append(position)
        else:
            units.append([position])
    rng.shuffle(units)
    count = max(1, round(len(tokens) * workload.MASK_RATE))
    corrupted, chosen = list(tokens), []
    for unit in units:
        if len(chosen) >= count:
            break
        if len(chosen) + len(unit) > count:
            continue
        for position in unit:
            if rng.random() < workload.MASKED:
                corrupted[position] = MASK
            elif rng.random() >= 0.5:
                corrupted[position] = rng.randint(0, len(vocab) - 1)
            chosen.append(position)
    chosen.sort()
    return corrupted, chosen, [tokens[position] for position in chosen]


def examples(documents: list[workload.Document]) -> Iterator[tuple]:
    while True:
        rng.shuffle(documents)
        for index in range(len(documents)):
            for a, b, is_next in pairs(documents, index):
                segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
                yield *mask([CLS, *a, SEP, *b, SEP]), segments, is_next


endless = examples(workload.documents(options))
workload.take_turns(lambda: workload.finished_batch(endless, options), options.answers)
