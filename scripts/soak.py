"""Call the package for a long time, and fail if its memory grows.

Each part runs in a process of its own. After every 100 calls it prints the resident memory, and at
the end one line per function. Exits with 1 if a part grew by more than 2 percent in its second
half. All models are tiny and random. Run it on Linux, from the root of the repository:

    .venv/bin/python -m scripts.soak
    .venv/bin/python -m scripts.soak ask --kinds bpe --functions embed similar --calls 1000

Before each measurement inside a process, Python collects its garbage and glibc returns free pages
to the system: what then remains is in use, or is fragmented. A server is measured from outside,
without either.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# These models are too small to share their work.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

import keras_bert_d2l as kb
from tests import family

PER_SAMPLE = 100  # calls between two measurements
MOST_GROWTH = 0.02  # in the second half
KINDS = ("wordpiece", "bpe", "unigram")
FORMATS = ("saved_model", "onnx")
_FEW_OBJECTS = 100  # that each call of `gc.collect` finds
_PAGE = os.sysconf("SC_PAGESIZE")


class Watch:
    """Prints the resident memory after every 100 calls, and judges it.

    Args:
        name: What is called.
        read: Returns the resident memory in bytes.
        per_sample: Number of calls between two measurements.
    """

    def __init__(self, name: str, read: Callable[[], int], per_sample: int = PER_SAMPLE) -> None:
        self.name, self._read, self._per_sample = name, read, per_sample
        self._num_calls, self.samples = 0, [read()]

    def count(self) -> None:
        """Count a call."""
        self._num_calls += 1
        if self._num_calls % self._per_sample == 0:
            self.samples.append(self._read())
            print(
                f"      {self.name}, {self._num_calls} calls: {self.samples[-1] / 1e6:.1f} MB",
                flush=True,
            )

    def is_flat(self) -> bool:
        """Print the result, and return whether the second half grew by at most 2 percent."""
        growth = growth_of(self.samples)
        is_flat = growth <= MOST_GROWTH
        first, last = self.samples[0] / 1e6, self.samples[-1] / 1e6
        print(
            f"{'ok' if is_flat else 'GROWS':5} {self.name}: {self._num_calls} calls, "
            f"{first:.1f} MB before, {last:.1f} MB after, "
            f"{growth:+.2%} in the second half",
            flush=True,
        )
        return is_flat


def growth_of(samples: Sequence[int]) -> float:
    """Return the relative growth of the measurements in their second half.

    The ends of the half are medians of up to five measurements, because a single one may fall into
    a call of another thread.
    """
    middle = len(samples) // 2
    width = min(5, max(1, len(samples) // 4))
    before, after = samples[middle : middle + width], samples[-width:]
    return statistics.median(after) / statistics.median(before) - 1


def resident(pid: int | str = "self") -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def settled() -> int:
    """Return the resident memory of this process after it has given back what it can."""
    while gc.collect() > _FEW_OBJECTS:  # what finalizers release is garbage only afterwards
        pass
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return resident()


class Words:
    """Makes random texts of changing length."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def text(self, most: int = 60) -> str:
        """Return a text of 1 to `most` words, some of them unknown, some without a space."""
        words = [str(word) for word in self._rng.choice(family.WORDS, self._rng.integers(1, most))]
        words[int(self._rng.integers(len(words)))] = f"{self._rng.integers(10**9)}"
        return " ".join(words)

    def texts(self, most: int = 4) -> list[str]:
        """Return 1 to `most` texts."""
        return [self.text() for _ in range(self._rng.integers(1, most + 1))]


def model_of(kind: str) -> kb.BERTModel:
    """Return a tiny model with a kind of tokenizer: BERT, RoBERTa or ALBERT."""
    if kind != "wordpiece":
        return family.bert_of({"bpe": "roberta", "unigram": "albert"}[kind], num_blks=1)
    words = [word.lower() for word in family.WORDS if len(word) > 1]
    letters = sorted({letter for word in words for letter in word})
    pieces = [*letters, *(f"##{letter}" for letter in letters), *words]
    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])
    config = kb.BERTConfig.preset("google", vocab_size=len(vocab), **family.SIZES | {"num_blks": 1})
    model = kb.BERTModel.from_bert_config(config)
    model.tokenizer = kb.Tokenizer(vocab)
    return model


def functions_of(kind: str) -> dict[str, Callable[[], object]]:
    """Return the functions that the part `ask` calls, with tiny models of a kind of tokenizer."""
    words, bert = Words(), model_of(kind)
    tokenizer = bert.tokenizer
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    regressor = kb.SequenceRegressor(bert, tokenizer=tokenizer)
    tagger = kb.TokenClassifier(bert, ["O", "B-PER", "I-PER"], tokenizer=tokenizer)
    reader = kb.QuestionAnswerer(bert, tokenizer=tokenizer)
    chooser = kb.MultipleChoice(bert, tokenizer=tokenizer)
    embedder = kb.TextEmbedder(bert, tokenizer=tokenizer)
    mask = tokenizer.vocab.special_tokens[-1]
    found = {
        "tokenizer": lambda: tokenizer(words.texts()),
        "classify": lambda: kb.classify(classifier, words.texts()),
        "regress": lambda: kb.regress(regressor, words.texts()),
        "tag": lambda: kb.tag(tagger, words.texts()),
        "answer": lambda: kb.answer(reader, words.text(8), words.text(100)),
        "choose": lambda: kb.choose(chooser, words.text(), [words.text(8) for _ in range(3)]),
        "embed": lambda: kb.embed(embedder, words.texts()),
        "embed with a BERTModel": lambda: kb.embed(bert, words.texts()),
        "similar": lambda: kb.similar(embedder, words.text(), words.texts(8)),
        "fill_mask": lambda: kb.fill_mask(bert, f"{words.text(20)} {mask} {words.text(10)}"),
        "pseudo_perplexity": lambda: kb.pseudo_perplexity(bert, [words.text(10)]),
        "predict": lambda: classifier.predict(words.texts(), verbose=0),
    }
    if bert.nsp is not None:
        found["next_sentence_score"] = lambda: kb.next_sentence_score(
            bert, words.text(), words.text()
        )
    return found


FUNCTIONS = (
    *("tokenizer", "classify", "regress", "tag", "answer", "choose", "embed"),
    *("embed with a BERTModel", "similar", "fill_mask", "pseudo_perplexity"),
    *("predict", "next_sentence_score"),
)


def ask(kind: str, names: Sequence[str], num_calls: int) -> bool:
    """Call functions with texts of changing length, one function after the other."""
    functions = functions_of(kind)
    are_flat = []
    for name in names:
        if name in functions:  # a RoBERTa has no head for the next sentence
            watch = Watch(f"{name}, {kind}", settled)
            for _ in range(num_calls):
                functions[name]()
                watch.count()
            are_flat.append(watch.is_flat())
    return all(are_flat)


def load(kind: str, num_loads: int) -> bool:
    """Load a checkpoint and a SavedModel, ask them and delete them, again and again."""
    from keras_bert_d2l.serving.server.served_model import ServedModel

    with tempfile.TemporaryDirectory() as folder:
        checkpoint, export = Path(folder, "checkpoint"), Path(folder, "export")
        bert = model_of(kind)
        kb.save_pretrained(bert, checkpoint)
        with silent():
            kb.export_saved_model(bert, export)
        one, two = (Watch(f"load {what}, {kind}", settled, 10) for what in ("checkpoint", "export"))
        for _ in range(num_loads):
            model = kb.load_pretrained(checkpoint, verbose=False).model
            kb.embed(model, "a film")
            del model
            one.count()
        is_flat = one.is_flat()
        for _ in range(num_loads):
            served = ServedModel(export)
            served.ask("embed", {"text": np.array([b"a film"], object)})
            del served
            two.count()
        return two.is_flat() and is_flat


def serve(format: str, kind: str, seconds: float) -> bool:
    """Run `keras-bert-d2l serve`, send it mixed requests, and measure it from outside."""
    words, rng = Words(), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
        with silent():
            export = kb.export_onnx if format == "onnx" else kb.export_saved_model
            export(model_of(kind), Path(folder, "tiny"))
        command = [*(sys.executable, "-m", "keras_bert_d2l", "serve"), f"{folder}/tiny"]
        server = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
        closing.callback(server.wait)
        closing.callback(server.terminate)
        first_line = server.stdout.readline() if server.stdout else ""
        url = re.search(r"http://[^/]+", first_line)[0]  # type: ignore[index]
        mask = family.tokenizer_of("roberta").vocab.special_tokens[-1]
        mask = "[MASK]" if kind == "wordpiece" else mask
        requests: list[Callable[[], tuple[str, object]]] = [
            lambda: (":predict", {"instances": words.texts(16)}),
            lambda: (":predict", {"inputs": words.texts(16), "signature_name": "embed"}),
            lambda: (":predict", {"signature_name": "fill_mask", "instances": [f"a {mask} film"]}),
            lambda: ("/v1/embeddings", {"model": "tiny", "input": words.texts(16)}),
            lambda: ("/v1/embeddings", {"model": "tiny", "input": [[5] * rng.integers(1, 40)]}),
            lambda: (":predict", {"instances": [1.5]}),  # an error
            lambda: ("/v1/embeddings", {"model": "other", "input": "a"}),
            lambda: ("/metadata", None),
        ]
        end = time.monotonic() + seconds
        watch = Watch(f"serve {format}, {kind}", lambda: resident(server.pid))
        while time.monotonic() < end:
            path, body = requests[int(rng.integers(len(requests)))]()
            send(f"{url}{path if path.startswith('/v1') else f'/v1/models/tiny{path}'}", body)
            watch.count()
        return watch.is_flat()


def send(url: str, body: object) -> None:
    """Send a request and read the answer, which may be an error of the request."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url, data, 60) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.read()
        if error.code not in (400, 404):
            raise


def finetune(kind: str, num_steps: int) -> bool:
    """Fine-tune with texts of changing length, and measure after every 100 steps."""
    import keras

    class Counting(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.watch = Watch(f"finetune, {kind}", settled)

        def on_train_batch_end(self, *_: object, **__: object) -> None:
            self.watch.count()

    words, counting, epochs = Words(), Counting(), 10
    batch_size = 4
    num_texts = batch_size * -(-num_steps // epochs)
    lines = [f"{words.text()}\t{'ab'[number % 2]}" for number in range(num_texts + 16)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("train.tsv", "dev.tsv")]
        for file, part in zip(files, (lines[16:], lines[:16]), strict=True):
            file.write_text("\n".join(["text\tlabel", *part]) + "\n")
        model = kb.SequenceClassifier(model_of(kind), ["a", "b"])
        options = {"epochs": epochs, "batch_size": batch_size, "verbose": 0}
        kb.finetune(model, *files, Path(folder, "run"), callbacks=[counting], **options)
    return counting.watch.is_flat()


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discard what a block prints."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def main() -> None:
    """Run the parts that the command line asks for, and exit with 1 if one grows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = ("ask", "load", "serve", "finetune")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=list(parts))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--calls", type=int, default=5000, help="calls of each function")
    parser.add_argument("--loads", type=int, default=200, help="times to load and delete")
    parser.add_argument("--seconds", type=float, default=600, help="time to ask each server")
    parser.add_argument("--formats", nargs="+", choices=("saved_model", "onnx"), default=FORMATS)
    parser.add_argument("--steps", type=int, default=3000, help="steps of fine-tuning")
    given = parser.parse_args()
    work: list[tuple[Callable[..., bool], tuple[Any, ...]]] = []
    for kind in given.kinds:
        work.append((ask, (kind, given.functions, given.calls)))
        work.append((load, (kind, given.loads)))
    work += [(serve, (format, given.kinds[0], given.seconds)) for format in given.formats]
    work.append((finetune, (given.kinds[0], given.steps)))
    context = multiprocessing.get_context("spawn")
    num_failed = 0
    for part, arguments in work:
        if part.__name__ in given.parts:
            process = context.Process(target=_run, args=(part, arguments))
            process.start()
            process.join()
            num_failed += process.exitcode != 0
    print(f"{num_failed} of the parts grew or failed")
    sys.exit(num_failed > 0)


def _run(part: Callable[..., bool], arguments: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")  # texts are truncated
    sys.exit(not part(*arguments))


if __name__ == "__main__":
    main()
