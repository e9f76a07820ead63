"""Kill training runs at random moments, continue them, and compare the results bit for bit.

Runs of `pretrain` and `finetune` are killed (SIGKILL), half of them after a random time and half
just before a random file operation, or stopped during training (SIGTERM). The same command is
repeated until it finishes. All files must then equal those of an uninterrupted run, apart from
throughput and TensorBoard logs, and there must be no others. The exit code is 1 if anything is
wrong.

    python scripts/kill_runs.py --kills 200 --finetune-kills 60 --terms 100
"""

import argparse
import ctypes
import dataclasses
import gc
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# Imported once, by the server process that forks a process for each command.
IMPORTS = (
    "keras_bert_d2l.cli",
    "keras_bert_d2l.data.pretraining.dataset",
    "keras_bert_d2l.text.vocab_learning",
    "keras_bert_d2l.training.finetuning.finetune",
    "keras_bert_d2l.training.pretraining.pretrain",
)
PRETRAIN = (
    "pretrain text.txt --resume trial/run --cache-dir trial/cache --layout lines --vocab-size 80 "
    "--bert-config bert.json --steps 12 --evaluate-every 3 --batch-size 4 --max-len 24 "
    "--held-out 0.2 --learning-rate 0.01"
)
FINETUNE = (
    "finetune classify --model bert --train texts.tsv --resume trial/run --epochs 4 "
    "--batch-size 4 --learning-rate 0.01"
)
VARIANTS = {
    "plain": f"{PRETRAIN} --rows padded",
    "packed": f"{PRETRAIN} --rows packed",
    "bucketed": f"{PRETRAIN} --rows bucketed",
    "two-phase": f"{PRETRAIN} --short-steps 5 --short-len 8",
    "recipe": f"{PRETRAIN} --recipe modern --causal-steps 4 --objective none",
    "bfloat16": f"{PRETRAIN} --precision mixed_bfloat16",
    "SOP": f"{PRETRAIN} --objective sop",
    "finetune": FINETUNE,
}
FILE_OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")
# What may differ from an uninterrupted run, by file: throughput, times, starts, and checksums.
TIMED = {
    "metrics.jsonl": rb', "(sequences|tokens)/s": [^,}]+',
    "report.jsonl": rb'[^\n]*"machine"[^\n]*\n|"(time|sequences/s)": [^,}]+,? ?',
    "report.html": rb"(?s).+",
    "SHA256SUMS": rb".*  (metrics|report)\.jsonl\n",
}
MOST_SECONDS = 300  # a command that takes longer hangs


class Moment(NamedTuple):
    """When a signal is sent: before the file operation of this number, or after so many seconds.

    Without either, no signal is sent. The seconds count from the start of the command, or from the
    creation of its model.
    """

    seconds: float | None = None
    operation: int | None = None
    with_model: bool = False


class Ended(NamedTuple):
    """How a command ended. The exit code is `None` if it hangs."""

    code: int | None
    output: str
    seconds_to_model: float
    seconds: float
    operations: int


@dataclasses.dataclass
class Row:
    """A row of the table."""

    variant: str
    signal: str
    sent: int = 0
    resumed: int = 0
    early: int = 0  # stopped before or after training, when there is nothing to save
    runs: int = 0
    identical: int = 0
    leftovers: int = 0

    def is_good(self) -> bool:
        """Whether all runs resumed and ended like the uninterrupted one."""
        return self.resumed == self.sent and self.identical == self.runs and not self.leftovers

    def __str__(self) -> str:
        return (
            f"{self.variant:<10}{self.signal:<9}{self.sent:>5}{self.resumed:>9}{self.early:>7}"
            f"{self.runs:>6}{self.identical:>11}{self.leftovers:>11}"
        )


def write_files(folder: Path) -> None:
    """Write a text, an architecture, a table and a checkpoint, for tiny runs."""
    import keras

    import keras_bert_d2l as kb

    choose = random.Random(0)
    topics = [[f"{letter}{number}" for number in range(8)] for letter in "abcdef"]
    sentences = [
        [" ".join(choose.choices(topic, k=choose.randint(3, 6))) for _ in range(8)]
        for topic in topics * 6
    ]
    (folder / "text.txt").write_text("\n\n".join(map("\n".join, sentences)) + "\n")
    lines = [f"{document[0]}\t{document[0][0] in 'ace'}\n" for document in sentences]
    (folder / "texts.tsv").write_text("".join(["text\tlabel\n", *lines]))
    vocab = kb.learn_vocab(sentences, 80)
    config = kb.BERTConfig(len(vocab), 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=24)
    config.to_json(folder / "bert.json")
    keras.utils.set_random_seed(0)
    model = kb.BERTModel.from_bert_config(config)
    kb.save_pretrained(model, folder / "bert", tokenizer=kb.Tokenizer(vocab))


def command(
    tokens: list[str], folder: Path, operation: int | None, number: int, count: ctypes.c_int
) -> None:
    """Run a command in this process, and send the signal before the file operation."""

    def watch(event: str, arguments: tuple) -> None:
        if event in FILE_OPERATIONS:
            count.value += 1
            if count.value == operation:
                os.kill(os.getpid(), number)

    gc.disable()  # takes a sixth of the time of such a short run
    os.chdir(folder)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["keras-bert-d2l", *tokens]
    from keras_bert_d2l.cli import main

    sys.addaudithook(watch)
    main()


class Runner:
    """Runs commands in forked processes that have TensorFlow imported already.

    Args:
        folder: The folder of the files.
        write: Writes the files that the commands read.
        imports: The modules that are imported once.
    """

    def __init__(
        self,
        folder: Path,
        write: Callable[[Path], None] = write_files,
        imports: Sequence[str] = IMPORTS,
    ) -> None:
        self.folder = folder
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(imports))
        writer = self.context.Process(target=write, args=(folder,))
        writer.start()
        writer.join()

    def run(self, text: str, moment: Moment, number: int = signal.SIGKILL) -> Ended:
        """Run a command, send it the signal at the moment, and wait until it ends."""
        output = self.folder / "output.txt"
        output.write_text("")
        count = self.context.RawValue("i", 0)
        arguments = (text.split(), self.folder, moment.operation, number, count)
        process = self.context.Process(target=command, args=arguments, daemon=True)
        begun = time.monotonic()
        process.start()
        while moment.with_model and "Model:" not in output.read_text() and process.is_alive():
            time.sleep(0.05)
        with_model = time.monotonic()
        if moment.seconds is not None:
            process.join(moment.seconds)
            if process.exitcode is None:
                os.kill(process.pid, number)
        process.join(MOST_SECONDS)
        code, end = process.exitcode, time.monotonic()
        process.kill()
        return Ended(code, output.read_text(), with_model - begun, end - begun, count.value)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files and folders below a folder, without what may differ."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name.startswith("run/tensorboard"):
            continue
        found[name] = b"" if path.is_dir() else path.read_bytes()
        if path.name in TIMED:
            found[name] = re.sub(TIMED[path.name], b"", found[name])
    return found


class Drill:
    """Interrupts the runs of one variant.

    Args:
        runner: Runs the commands.
        variant: Name of the variant.
        seed: Random seed of the moments.
    """

    def __init__(self, runner: Runner, variant: str, seed: int) -> None:
        self.runner, self.variant = runner, variant
        self.trial = runner.folder / "trial"
        self.choose = random.Random(f"{seed} {variant}")
        self._clear()
        self.whole = runner.run(VARIANTS[variant], Moment(with_model=True))
        if self.whole.code != 0:
            raise SystemExit(f"{variant}: the uninterrupted run failed.\n{self.whole.output}")
        self.expected, self.steps = content(self.trial), self._steps()

    def interrupt(self, number: signal.Signals, wanted: int) -> Row:
        """Repeat runs until the signal was sent often enough, and compare each at its end."""
        row = Row(self.variant, number.name)
        while row.sent < wanted:
            self._clear()
            if self._finish(row, number, wanted):
                self._compare(row)
            row.runs += 1
        return row

    def _clear(self) -> None:
        shutil.rmtree(self.trial, ignore_errors=True)
        self.trial.mkdir()

    def _finish(self, row: Row, number: signal.Signals, wanted: int) -> bool:
        """Repeat the command until it finishes, and return whether it did."""
        is_pending = False
        while True:
            moment = self._moment(number) if row.sent < wanted else Moment()
            ended = self.runner.run(VARIANTS[self.variant], moment, number)
            is_saved = ended.code == 143 and "the state is saved" in ended.output
            is_early = ended.code == 143 and "Interrupted." in ended.output
            is_killed = ended.code == -signal.SIGKILL == -number
            if ended.code != 0 and not (is_saved or is_early or is_killed):
                print(f"{self.variant}, {moment}, exit code {ended.code}:\n{ended.output}")
                return False
            row.resumed += is_pending
            row.early += is_early
            is_pending = is_saved or is_killed
            row.sent += is_pending
            if ended.code == 0:
                return True

    def _moment(self, number: signal.Signals) -> Moment:
        """Draw a moment in the rest of a run. Half of the time goes into building the graph."""
        done = self._steps() / self.steps
        if done == 1:
            return Moment()
        part = self.choose.uniform(0, 1 - 0.5 * done)
        if number == signal.SIGTERM:  # before training, there is nothing to save
            seconds = self.whole.seconds - self.whole.seconds_to_model
            return Moment(seconds=part * seconds, with_model=True)
        if self.choose.random() < 0.5:
            return Moment(seconds=part * self.whole.seconds)
        return Moment(operation=1 + int(part * self.whole.operations))

    def _steps(self) -> int:
        """Return the number of steps in the saved state."""
        state = self.trial / "run" / "last" / "training_state.json"
        return json.loads(state.read_text())["step"] if state.exists() else 0

    def _compare(self, row: Row) -> None:
        found = content(self.trial)
        different = [name for name in self.expected if found.get(name) != self.expected[name]]
        extra = sorted(found.keys() - self.expected.keys())
        if different or extra:
            print(f"{self.variant}: different: {different}; left over: {extra}")
        row.identical += not different
        row.leftovers += len(extra)


def shares(total: int, names: list[str]) -> dict[str, int]:
    """Divide a number among names."""
    return {name: (total + n) // len(names) for n, name in enumerate(names)}


def main() -> int:
    """Run all drills and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="SIGKILLs of pretrain.")
    parser.add_argument("--finetune-kills", type=int, default=60, help="SIGKILLs of finetune.")
    parser.add_argument("--terms", type=int, default=100, help="SIGTERMs of both commands.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed of the moments.")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    kills = shares(arguments.kills, [name for name in arguments.variants if name != "finetune"])
    kills["finetune"] = arguments.finetune_kills
    terms = shares(arguments.terms, arguments.variants)
    rows = []
    print("variant   signal    sent  resumed  early  runs  identical  left over", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder))
        for variant in arguments.variants:
            counts = {signal.SIGKILL: kills[variant], signal.SIGTERM: terms[variant]}
            if not any(counts.values()):
                continue
            drill = Drill(runner, variant, arguments.seed)
            for number, count in counts.items():
                if count:
                    rows.append(drill.interrupt(number, count))
                    print(rows[-1], flush=True)
    return 0 if all(row.is_good() for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
