"""Stop commands while they write, by a full disk, a read-only disk or a signal, and repeat them.

Each command writes to a small disk of its own: a tmpfs in a namespace of this process, so the
script needs Linux. The disk has too little room, or is read-only, or the command is killed (SIGKILL
or SIGTERM) just before a random file operation. Without room, the command must print one line with
the path and the cause, exit with code 2, and leave nothing, except for what a repeated call
resumes. The same command is then repeated. All files must equal those of an undisturbed run, and
there must be no others. The exit code is 1 if anything is wrong.

    unshare -Urm python -m scripts.interrupt_writes --kills 20 embed export
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.kill_runs import (
    FINETUNE,
    IMPORTS,
    PRETRAIN,
    Ended,
    Moment,
    Runner,
    content,
    write_files,
)

MORE_IMPORTS = (
    "keras_bert_d2l.inspection.playground",
    "keras_bert_d2l.serving.onnx_model",
    "keras_bert_d2l.serving.saved_model",
    "keras_bert_d2l.tasks.embed.predictions",
    "keras_bert_d2l.training.distillation.distill",
)
SIZES = {"num_hiddens": 8, "ffn_num_hiddens": 32, "num_heads": 2, "num_blks": 1, "max_len": 24}
CONVERTED = {  # the formats, and a preset that each can express
    **dict.fromkeys(("native", "huggingface", "kerashub", "google"), "google"),
    "book": "d2l-torch",
}
COMMANDS = {  # each writes below `trial`, the small disk
    "vocab": "vocab text.txt --out trial/vocab.txt --vocab-size 80 --layout lines",
    "prepare": "prepare text.txt --out trial/new/store --vocab bert/vocab.txt --layout lines",
    "pretrain": PRETRAIN.replace("--steps 12", "--steps 3"),
    "finetune": FINETUNE.replace("--epochs 4", "--epochs 1"),
    "finetune-lora": f"{FINETUNE} --epochs 1 --lora 2",
    "distill": "distill --model task --blocks 1 --file lines.txt --out trial/new/small",
    "distill-static": "distill --static --model bert --file lines.txt --out trial/small",
    "report": "report run --out trial/report.html",
    "embed": "embed --model bert --file lines.txt --out trial/vectors.npy",
    "playground": "playground --model bert --out trial/page.html",
    "predict": "predict lines.txt --model task --out trial/new/labels.jsonl",
    "export": "export --model task --out trial/model",
    "export-bert": "export --model bert --out trial/model",
    "export-onnx": "export --format onnx --model task --out trial/onnx",
    "export-int8": "export --format onnx --model task --out trial/onnx --int8",
    **{
        f"convert-{name}": f"convert {preset} trial/model --format {name}"
        for name, preset in CONVERTED.items()
    },
}
RESUMED = ("finetune", "pretrain", "prepare", "similar")  # a repeated call resumes these
DIFFERENT = ("export", "export-bert")  # TensorFlow writes other bytes each time
SHARES = (0.0, 0.2, 0.5, 0.8, 0.95)  # of the room that a whole run needs
ROOM, BLOCK = 64 << 20, 4096  # bytes
CAUSES = "No space left on device|Read-only file system|is not writable|folder that is writable"


def write_all_files(folder: Path) -> None:
    """Write what the commands read."""
    import keras

    import keras_bert_d2l as kb

    write_files(folder)
    lines = filter(None, (folder / "text.txt").read_text().splitlines())
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    bert, tokenizer, _ = kb.load_pretrained(folder / "bert", verbose=False)
    keras.utils.set_random_seed(0)
    classifier = kb.SequenceClassifier(bert, ["False", "True"])
    kb.save_pretrained(classifier, folder / "task", tokenizer=tokenizer)
    for preset in set(CONVERTED.values()):
        config = kb.BERTConfig.preset(preset, vocab_size=len(tokenizer.vocab), **SIZES)
        model = kb.BERTModel.from_bert_config(config)
        kb.save_pretrained(model, folder / preset, tokenizer=tokenizer)
    os.chdir(folder)
    data = {"task": "classify", "model": "bert", "train": "texts.tsv"}
    kb.finetune_files("run", **data, epochs=1, verbose=0)


class Disk:
    """A small disk.

    Args:
        folder: Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir()
        self._mount(f"size={ROOM}", "-t", "tmpfs", "tmpfs")

    def _mount(self, options: str, *kind: str) -> None:
        subprocess.run(["mount", "-o", options, *kind, self.folder], check=True)

    def clear(self, room: int | None = None) -> None:
        """Delete all files, and leave some room, in bytes. `None`: all of it."""
        self.set_room(None)
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.set_room(room)

    def set_room(self, room: int | None) -> None:
        """Make the disk writable, and leave some room, in bytes. `None`: all of it."""
        self._mount(f"remount,rw,size={ROOM}")
        self._ballast.unlink(missing_ok=True)
        if room is not None:
            with open(self._ballast, "wb") as ballast:
                free = shutil.disk_usage(self.folder).free
                os.posix_fallocate(ballast.fileno(), 0, free - room)

    def protect(self) -> None:
        """Make the disk read-only."""
        self._mount(f"remount,ro,size={ROOM}")

    def content(self) -> dict[str, bytes]:
        """Return the files, without what may differ between two runs."""
        return {name: x for name, x in content(self.folder).items() if name != self._ballast.name}


class Drill:
    """Stops a command in all ways, and repeats it each time.

    Args:
        runner: Runs the command.
        disk: The disk that it writes to.
        name: One of `COMMANDS`.
        seed: Random seed of the moments of signals.
    """

    def __init__(self, runner: Runner, disk: Disk, name: str, seed: int) -> None:
        self.runner, self.disk, self.name = runner, disk, name
        self.choose = random.Random(f"{seed} {name}")
        self.trials = self.stopped = 0
        self.faults: list[str] = []
        disk.clear()
        self.whole = self._run(Moment())
        if self.whole.code != 0:
            raise SystemExit(f"{name}: the undisturbed run failed.\n{self.whole.output}")
        self.expected, self.room = disk.content(), shutil.disk_usage(disk.folder).used

    def without_room(self, share: float | None) -> None:
        """Run the command on a disk with a share of the room, or on a read-only disk."""
        self.disk.clear(None if share is None else int(share * self.room) // BLOCK * BLOCK)
        if share is None:
            self.disk.protect()
        ended = self._run(Moment())
        if ended.code == 0:  # the largest file is a smaller one at this moment
            return
        *_, last = ["", *ended.output.splitlines()]
        is_clear = last.startswith("error: ") and "trial" in last and re.search(CAUSES, last)
        if (
            ended.code != 2
            or not is_clear
            or len(re.findall(r"(?m)^error|^Trace", ended.output)) > 1
        ):
            self._report(ended, "the exit code or the message is wrong")
        self._check_rest(ended)
        self._repeat(ended)

    def killed(self, number: signal.Signals) -> None:
        """Send the command a signal just before a random file operation."""
        self.disk.clear()
        operation = self.choose.randint(1, self.whole.operations)
        ended = self._run(Moment(operation=operation), number)
        has_written = self.disk.content().keys() == self.expected.keys()
        if ended.code == 0 or (has_written and self.name in DIFFERENT):
            return  # a repeated export would write another version
        if ended.code != {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143}[number]:
            self._report(ended, "the exit code is wrong")
        if number == signal.SIGTERM:
            self._check_rest(ended)
        self._repeat(ended)

    def _run(self, moment: Moment, number: int = signal.SIGKILL) -> Ended:
        return self.runner.run(COMMANDS[self.name], moment, number)

    def _check_rest(self, ended: Ended) -> None:
        found = self.disk.content()
        if not self.name.startswith(RESUMED) and found and found.keys() != self.expected.keys():
            self._report(ended, f"it left {sorted(found)}")

    def _repeat(self, stopped: Ended) -> None:
        self.stopped += 1
        self.disk.set_room(None)
        ended = self._run(Moment())
        found = self.disk.content()
        wrong = sorted(name for name, x in self.expected.items() if found.get(name) != x)
        if self.name in DIFFERENT:
            wrong = sorted(self.expected.keys() - found.keys())
        if more := sorted(found.keys() - self.expected.keys()):
            self._report(stopped, f"after the repeated call, there is also {more}")
        if ended.code != 0 or wrong:
            self._report(stopped, f"the repeated call {ended.output!r}; other content: {wrong}")

    def _report(self, ended: Ended, fault: str) -> None:
        self.faults.append(fault)
        print(f"{self.name}, exit code {ended.code}: {fault}\n{ended.output}", flush=True)


def main() -> int:
    """Run all drills, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commands", nargs="*", choices=[*COMMANDS, []], help="Default: all.")
    parser.add_argument("--kills", type=int, default=10, help="Signals of each kind per command.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed of their moments.")
    arguments = parser.parse_args()
    num_faults = 0
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), write_all_files, (*IMPORTS, *MORE_IMPORTS))
        disk = Disk(Path(folder, "trial"))
        try:
            for name in arguments.commands or COMMANDS:
                drill = Drill(runner, disk, name, arguments.seed)
                for share in (*SHARES, None):
                    drill.without_room(share)
                for number in (signal.SIGKILL, signal.SIGTERM):
                    for _ in range(arguments.kills):
                        drill.killed(number)
                num_faults += len(drill.faults)
                print(
                    f"{name}: stopped {drill.stopped} times, {len(drill.faults)} faults", flush=True
                )
        finally:
            subprocess.run(["umount", disk.folder], check=True)
    return 1 if num_faults else 0


if __name__ == "__main__":
    sys.exit(main())
