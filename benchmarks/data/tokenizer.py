"""Compare tokenization with Hugging Face's Rust tokenizers, in turns, with one thread each.

Both use the same vocabulary (bert-base-uncased by default) and the same batches of lines. Hugging
Face uses its fastest method, `encode_batch_fast` without special tokens and offsets. We use
`Tokenizer.tokenize` with `compat="huggingface"` and `compat="google"`. Each receives the texts in
its native format: Python strings or a string tensor. `empty-function` is a call of TensorFlow that
does nothing, once for each batch. The rate is tokens per second of CPU time.
"""

import argparse
import gzip
import json
import lzma
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence

os.environ |= {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
}

import tensorflow as tf
import tokenizers

from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

Batches = Sequence[Sequence[str]]


def main() -> None:
    options = _options()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    lines = [line for line in _read(options.text).split("\n") if line.strip()][: options.lines]
    if options.tokens:
        lines = _first_tokens(lines, options)
    batches = [lines[i : i + options.batch] for i in range(0, len(lines), options.batch)]
    contestants = {
        "tokenizers": _theirs(options, batches),
        "ours-huggingface": _ours(options, batches, "huggingface"),
    }
    if options.vocab.suffix != ".json":  # google has WordPiece only
        contestants["ours-google"] = _ours(options, batches, "google")
    contestants["empty-function"] = _empty(batches)
    num_tokens = {name: cut() for name, cut in contestants.items()}  # also warms up
    if num_tokens["ours-huggingface"] != num_tokens["tokenizers"]:
        raise SystemExit(f"The token counts differ: {num_tokens}")
    num_tokens["empty-function"] = num_tokens["tokenizers"]
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(options.rounds):
        for name in list(contestants)[:: 1 if i % 2 == 0 else -1]:
            start = time.process_time()
            contestants[name]()
            seconds[name].append(time.process_time() - start)
    print(json.dumps(_figures(seconds, num_tokens, sum(len(line.encode()) for line in lines))))


def _options() -> argparse.Namespace:
    data = pathlib.Path(os.environ.get("KERAS_BERT_D2L_DATA", "."))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text",
        type=pathlib.Path,
        default=data / "corpus/wikitext-2/wiki.train.tokens.xz",
        help="a text file, plain, .gz or .xz, with one text per line",
    )
    parser.add_argument(
        "--vocab",
        type=pathlib.Path,
        default=data / "vocab/bert-base-uncased-vocab.txt",
        help="a vocab.txt, or a tokenizer.json of byte-level BPE or Unigram",
    )
    parser.add_argument("--tokens", type=int, help="tokens per line; shorter lines are skipped")
    parser.add_argument("--cased", action="store_true", help="the vocabulary is cased")
    parser.add_argument("--lines", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=1000, help="lines per call")
    parser.add_argument("--rounds", type=int, default=11)
    return parser.parse_args()


def _read(path: pathlib.Path) -> str:
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)
    return unpack(path.read_bytes()).decode("utf-8")


def _first_tokens(lines: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return the first tokens of each line that has as many."""
    n = options.tokens
    encodings = _their_tokenizer(options).encode_batch(lines, add_special_tokens=False)
    pairs = zip(lines, encodings, strict=True)
    return [line[: found.offsets[n - 1][1]] for line, found in pairs if len(found) >= n]


def _their_tokenizer(options: argparse.Namespace) -> tokenizers.Tokenizer:
    path, lowercase = str(options.vocab), not options.cased
    if options.vocab.suffix == ".json":
        return tokenizers.Tokenizer.from_file(path)
    return tokenizers.BertWordPieceTokenizer(path, lowercase=lowercase)._tokenizer


def _theirs(options: argparse.Namespace, batches: Batches) -> Callable[[], int]:
    tokenizer = _their_tokenizer(options)

    def cut() -> int:
        rows = (tokenizer.encode_batch_fast(b, add_special_tokens=False) for b in batches)
        return sum(len(row) for encodings in rows for row in encodings)

    return cut


def _ours(options: argparse.Namespace, batches: Batches, compat: str) -> Callable[[], int]:
    vocab = Vocab.from_file(options.vocab)
    own = {"lowercase": not options.cased, "compat": compat} if vocab.kind == "wordpiece" else {}
    tokenizer = Tokenizer(vocab, **own)
    signature = [tf.TensorSpec([None], tf.string)]
    tokenize = tf.function(tokenizer.tokenize, input_signature=signature)

    tensors = [tf.constant(batch) for batch in batches]

    def cut() -> int:
        return sum(tokenize(tensor).flat_values.shape[0] for tensor in tensors)

    return cut


def _empty(batches: Batches) -> Callable[[], int]:
    """Return calls of a function that does nothing: what TensorFlow takes to call any function."""
    signature = [tf.TensorSpec([None], tf.string)]
    splits = tf.constant([0, 1], tf.int64)
    function = tf.function(
        lambda texts: tf.RaggedTensor.from_row_splits(texts, splits, validate=False), signature
    )
    tensors = [tf.constant(batch) for batch in batches]
    return lambda: sum(function(tensor).flat_values.shape[0] for tensor in tensors)


def _figures(
    seconds: dict[str, list[float]], num_tokens: dict[str, int], num_bytes: int
) -> dict[str, object]:
    figures: dict[str, object] = {"benchmark": "tokenizer", "tokenizers": tokenizers.__version__}
    base = seconds["tokenizers"]
    for name, times in seconds.items():
        ratios = [one / other for one, other in zip(base, times, strict=True)]
        middle = statistics.median(times)
        figures[name] = {
            "tokens_per_second": round(num_tokens[name] / middle),
            "megabytes_per_second": round(num_bytes / middle / 1e6, 1),
            "ratio": round(statistics.median(ratios), 2),
            "min": round(min(ratios), 2),
            "max": round(max(ratios), 2),
        }
    return figures


if __name__ == "__main__":
    main()
