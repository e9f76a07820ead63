"""Crash test: do killed and resumed token store builds still produce the same bytes?

A build with several processes is killed (SIGKILL) at random times and restarted until it is
complete; this is repeated with new stores. Every store must be byte-identical to a store that one
process built without interruption. Prints one line per store and a JSON line.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.training.memory import write_corpus

NUM_WORDS = 4000
PIECE_BYTES = 100_000  # small, so a few megabytes produce many shards
BUILD = f"""
import sys
from keras_bert_d2l.text import text_files
text_files.SECTION_BYTES = {PIECE_BYTES}
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

corpus, vocab, store, workers = sys.argv[1:]
tokenizer = Tokenizer(Vocab.from_file(vocab))
build_store(
    Corpus.open(corpus), tokenizer, store, workers=int(workers), deduplicate=True,
    progress=lambda *done: print(*done, flush=True),
)
"""


def write_vocab(path: Path, corpus: Path) -> None:
    """Write a vocabulary with special tokens, letters and the first words of the corpus."""
    words = dict.fromkeys(corpus.read_text(encoding="utf-8")[:1_000_000].split())
    letters = [f"{start}{chr(code)}" for code in range(97, 123) for start in ("", "##")]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = dict.fromkeys([*specials, *letters, *list(words)[:NUM_WORDS]])
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def start(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def checksums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus, vocab = folder / "corpus.txt", folder / "vocab.txt"
        write_corpus(corpus, options.megabytes)
        write_vocab(vocab, corpus)
        undisturbed = start(corpus, vocab, folder / "undisturbed", 1)
        undisturbed.stdout.readline()
        begun = time.perf_counter()
        if undisturbed.communicate() and undisturbed.returncode:
            raise SystemExit("The uninterrupted build failed.")
        seconds = time.perf_counter() - begun
        expected = checksums(folder / "undisturbed")
        kills = stores = equal = 0
        while kills < options.kills:
            store = folder / f"store{stores}"
            kills_here = 0
            while not (store / "manifest.json").exists():
                build = start(corpus, vocab, store, options.workers)
                build.stdout.readline()  # the first shard is complete
                if kills < options.kills:
                    time.sleep(moments.uniform(0, seconds / 2))
                    build.send_signal(signal.SIGKILL)
                    kills_here += build.wait() == -signal.SIGKILL
                    kills += build.returncode == -signal.SIGKILL
                build.communicate()
            start(corpus, vocab, store, options.workers).communicate()  # cleans up
            leftovers = [
                path for path in folder.iterdir() if path.name.startswith(f".{store.name}")
            ]
            leftovers += folder.glob(f"{store.name}.building")
            is_equal = checksums(store) == expected and not leftovers
            stores, equal = stores + 1, equal + is_equal
            print(f"store {stores}: {kills_here} kills, equal: {is_equal}", flush=True)
    figures = {"workers": options.workers, "kills": kills, "stores": stores, "equal": equal}
    print(json.dumps({**figures, "cores": os.cpu_count()}))
    if equal < stores:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
