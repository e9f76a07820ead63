"""Replace the version of a model many times while clients query it, and count failed requests.

`keras-bert-d2l serve` runs in its own process. Each new version gives other vectors. Most versions
appear in one step, as an export does. Every fifth is copied file by file, and every tenth is
preceded by a damaged one. A client fails if it gets an error, a vector of no version, or a vector
of an older version than before.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import keras_bert_d2l as kb
from benchmarks.runner import ROOT

TEXT, LONG = "a text", ["a text " * 100] * 2


class Clients:
    """Threads that query the server until they are stopped, and the failures they saw."""

    def __init__(self, url: str, vectors: list[np.ndarray], number: int) -> None:
        self.vectors, self.failures, self.count = vectors, [], 0
        self._url, self._stop, self._lock = url, threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(number)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _version(self, vector: np.ndarray, before: int) -> int:
        """Return the index of the version that gave a vector, at least `before`."""
        for index in range(before, len(self.vectors)):
            if np.abs(vector - self.vectors[index]).max() < 1e-5:
                return index
        raise ValueError(f"a vector of no version, or of one before {before + 1}")

    def _ask(self, number: int) -> None:
        before = 0
        with kb.ServingClient(self._url, "demo") as client:
            while not self._stop.is_set():
                try:
                    vector = client.embed(LONG if number == 0 else [TEXT])[0]
                    if number:
                        before = self._version(vector, before)
                except Exception as error:  # every kind of failure counts
                    with self._lock:
                        self.failures.append(f"{type(error).__name__}: {error}")
                with self._lock:
                    self.count += 1


def export_versions(folder: Path, number: int) -> Iterator[np.ndarray]:
    """Export versions with different weights, and yield the vector of each."""
    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text"])
    tokenizer = kb.Tokenizer(vocab)
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab))
    model = kb.BERTModel.from_bert_config(config)
    table = model.encoder.token_embedding.embeddings
    for _ in range(number):
        table.assign(np.random.default_rng().normal(size=table.shape))
        kb.export_saved_model(model, folder, tokenizer=tokenizer)
        yield kb.embed(model, TEXT, tokenizer=tokenizer)


def publish(version: Path, folder: Path, number: int) -> None:
    """Let a version appear in a served folder."""
    if number % 10 == 0:
        damaged = folder / f"{number}5"  # a higher number than the next version, for a moment
        shutil.copytree(version, damaged)
        (damaged / "saved_model.pb").write_bytes(b"\xff")
        time.sleep(1.5)
        shutil.rmtree(damaged)
    if number % 5:
        shutil.copytree(version, folder / ".copy")
        (folder / ".copy").rename(folder / str(number))
        return
    for file in sorted(version.rglob("*")):
        if file.is_file():
            target = folder / str(number) / file.relative_to(version)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            time.sleep(0.3)


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        exported, served = Path(temporary, "exported"), Path(temporary, "demo")
        # Ten models take turns, because exporting takes longer than loading.
        vectors = list(export_versions(exported, 10))
        served.mkdir()
        publish(exported / "1", served, 1)
        command = [sys.executable, "-m", "keras_bert_d2l", "serve", str(served), "--port", "0"]
        with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            url = re.findall(r"http://[\d.:]+", server.stdout.readline())[0]
            clients = Clients(url, [vectors[0]], options.clients)
            started, memory = time.monotonic(), memory_mb(server.pid)
            try:
                for number in range(2, options.swaps + 2):
                    clients.vectors.append(vectors[(number - 1) % 10])
                    publish(exported / str((number - 1) % 10 + 1), served, number)
                    wait_for(url, number)
                    shutil.rmtree(served / str(number - 1))
            finally:
                clients.stop()
                report = {
                    "swaps": number - 1,
                    "clients": options.clients,
                    "requests": clients.count,
                    "failed": len(clients.failures),
                    "seconds": round(time.monotonic() - started),
                    "memory_mb": [round(memory), round(memory_mb(server.pid))],
                }
                server.terminate()
    print(json.dumps(report))
    for failure in clients.failures[:5]:
        print(failure)


def wait_for(url: str, number: int) -> None:
    with kb.ServingClient(url, "demo") as client:
        deadline = time.monotonic() + 60
        while client.status().get(number) != "AVAILABLE":
            if time.monotonic() > deadline:
                raise TimeoutError(f"Version {number} was not loaded.")
            time.sleep(0.05)


if __name__ == "__main__":
    main()
