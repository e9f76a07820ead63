"""Near-duplicate removal: recall and precision against an exact computation, and its speed.

The documents are excerpts of a corpus, or synthetic, and copies of them in which words were
replaced, inserted or deleted. The similarities of the copies are spread over 0.5 to 1. The exact
computation compares the sets of word n-grams of all pairs of documents that share one; it uses
strings and shares no code with the package. Prints a table and a JSON line.
"""

import argparse
import collections
import hashlib
import itertools
import json
import random
import re
import string
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORD = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")  # of text in ASCII, as BERT's tokenizers split it
NUM_WORDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a corpus; default: synthetic text")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    num_originals = options.documents // 2
    originals = excerpts(options.text, num_originals, draw) if options.text else None
    documents = planted(originals or synthetic(num_originals, draw), options.documents, draw)
    start = time.process_time()
    expected = similar_to_an_earlier_one(documents, options.threshold)
    exact_seconds = time.process_time() - start
    result = compare(expected, *removed(documents, options.threshold))
    result["exact_seconds"] = exact_seconds
    result["megabytes"] = sum(map(len, documents)) / 1e6
    result |= speeds(documents)
    for name, value in result.items():
        print(f"{name:32} {value:.4g}")
    print(json.dumps({"documents": len(documents), **result}))


def synthetic(count: int, draw: random.Random) -> list[str]:
    """Return documents of words whose frequencies follow Zipf's law."""
    words = [
        "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 10))) for _ in range(30_000)
    ]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    return [
        " ".join(draw.choices(words, cum_weights=weights, k=int(draw.lognormvariate(5, 0.8)) + 10))
        for _ in range(count)
    ]


def excerpts(text: Path, count: int, draw: random.Random) -> list[str]:
    """Return distinct excerpts of a corpus, in ASCII."""
    from keras_bert_d2l.text.corpus.corpus import Corpus

    found: list[str] = []
    for document in Corpus.open(text):
        words = " ".join(document).encode("ascii", "ignore").decode().split()
        while len(words) > 20:
            size = int(draw.lognormvariate(5, 0.8)) + 10
            found.append(" ".join(words[:size]))
            words = words[size:]
    if len(found) < count:
        raise SystemExit(f"--text must have at least {count} excerpts. Received: {len(found)}.")
    return draw.sample(found, count)


def planted(originals: Sequence[str], count: int, draw: random.Random) -> list[str]:
    """Add edited copies of documents up to a number of documents, and shuffle them."""
    vocabulary = " ".join(originals).split()
    seen = dict.fromkeys(originals)
    while len(seen) < count:
        words = draw.choice(originals).split()
        # An edit changes about five n-grams. If a share x of n-grams is changed in both
        # documents, the similarity is (1 - x) / (1 + x).
        similarity = draw.uniform(0.5, 1)
        edits = (1 - similarity) / (1 + similarity) * len(words) / NUM_WORDS
        for _ in range(max(1, round(edits * draw.uniform(0.8, 1.2)))):
            place = draw.randrange(len(words))
            new = draw.choice(
                [[draw.choice(vocabulary)], [], [draw.choice(vocabulary), words[place]]]
            )
            words[place : place + 1] = new
            words = words or [draw.choice(vocabulary)]
        seen.setdefault(" ".join(words))
    documents = list(seen)
    draw.shuffle(documents)
    return documents


def ngrams(text: str) -> set[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return {tuple(words[n : n + NUM_WORDS]) for n in range(max(len(words) - NUM_WORDS + 1, 1))}


def similar_to_an_earlier_one(documents: Sequence[str], threshold: float) -> set[int]:
    """Return the documents whose exact similarity with an earlier one reaches the threshold."""
    sizes: list[int] = []
    having: collections.defaultdict[tuple[str, ...], list[int]] = collections.defaultdict(list)
    found = set()
    for number, text in enumerate(documents):
        mine = ngrams(text)
        sizes.append(len(mine))
        shared = collections.Counter(itertools.chain.from_iterable(map(having.__getitem__, mine)))
        for other, count in shared.items():
            if count >= threshold * (len(mine) + sizes[other] - count):
                found.add(number)
        for gram in mine:
            having[gram].append(number)
    return found


def removed(documents: Sequence[str], threshold: float) -> tuple[set[int], float]:
    """Return the documents that `build_store` discards, and the seconds of CPU time it takes."""
    from keras_bert_d2l.data.store.building import build_store
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

    numbers = {hash_of(text): number for number, text in enumerate(documents)}
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        store = build_store(
            [[text] for text in documents],
            Tokenizer(letters()),
            Path(folder, "store"),
            near_duplicates=threshold,
        )
        seconds = time.process_time() - start
        kept = {numbers[value] for value in store.document_hashes.tolist()}
    return set(range(len(documents))) - kept, seconds


def letters() -> Any:
    """Return a vocabulary of characters, which covers every text in ASCII."""
    from keras_bert_d2l.text.vocab.vocab import GOOGLE_SPECIALS, Vocab

    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [f"##{character}" for character in string.ascii_lowercase + string.digits]
    return Vocab([*GOOGLE_SPECIALS, *characters, *pieces])


def hash_of(text: str) -> int:
    """Return the number that a store has for a document of one sentence."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest()[:8], "little")


def compare(expected: set[int], found: set[int], seconds: float) -> dict[str, float]:
    both = len(expected & found)
    return {
        "near_duplicates": len(expected),
        "discarded": len(found),
        "recall": both / len(expected),
        "precision": both / len(found),
        "store_seconds": seconds,
    }


def speeds(documents: Sequence[str]) -> dict[str, float]:
    """Return megabytes of text per second of CPU time, from the text or token ids to band keys."""
    from keras_bert_d2l.data.store.sketches import BANDS, ROWS, Sketcher
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

    megabytes = sum(map(len, documents)) / 1e6
    ragged = Tokenizer(letters()).tokenize(list(documents))
    ids, lengths = ragged.values.numpy(), ragged.row_lengths().numpy()
    sketcher = Sketcher(letters())
    places = np.cumsum(lengths)

    def ours() -> None:
        for first in range(0, len(lengths), 250):
            some = lengths[first : first + 250]
            sketcher.bands(
                ids[places[first] - lengths[first] : places[first] + some[1:].sum()], some
            )

    def shingles() -> Iterator[list[str]]:
        for text in documents:
            yield [" ".join(gram) for gram in ngrams(text)]

    def only_ngrams() -> None:
        collections.deque(shingles(), maxlen=0)

    def datasketch() -> None:
        from datasketch import MinHash

        grams = ([gram.encode() for gram in some] for some in shingles())
        collections.deque(MinHash.generator(grams, num_perm=BANDS * ROWS), maxlen=0)

    def rensa() -> None:
        from rensa import RMinHash

        for some in shingles():
            sketch = RMinHash(num_perm=BANDS * ROWS, seed=0)
            sketch.update(some)
            sketch.digest()

    found = {}
    for contestant in (ours, only_ngrams, datasketch, rensa):
        start = time.process_time()
        try:
            contestant()
        except ImportError:
            continue
        found[f"{contestant.__name__}_mb_per_second"] = megabytes / (time.process_time() - start)
    return found


if __name__ == "__main__":
    main()
