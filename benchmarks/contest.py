"""A contestant as a process of its own: a line goes in, a line of JSON comes back."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def add_only(parser: argparse.ArgumentParser, contestants: Iterable[str]) -> None:
    """Adds `--only`: some of the contestants, of which the first is the base."""
    names = list(contestants)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="CONTESTANT",
        help=f"of {', '.join(names)}; the first of them in this order is the base",
    )


class Contestant:
    """A process that works when it is told to, and says what it took.

    Attributes:
        first: What it said when it was ready, before it was told anything.
        last: What it said last.
        start_seconds: From its start until then.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self.name, self.log = name, log
        answers, answers_of_child = os.pipe()
        start = time.perf_counter()
        with open(log, "w") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", f"contestants.{module}"),
                    *(*arguments, f"--answers={answers_of_child}"),
                ],
                cwd=Path(__file__).parent,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[answers_of_child],
                text=True,
            )
        os.close(answers_of_child)
        self.answers = os.fdopen(answers)
        self.first = self.last = self._answer()
        self.start_seconds = time.perf_counter() - start

    def ask(self, question: Any) -> dict[str, Any]:
        self.process.stdin.write(f"{json.dumps(question)}\n")
        self.process.stdin.flush()
        self.last = self._answer()
        return self.last

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.answers.close()

    def _answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            tail = "".join(self.log.read_text(errors="replace").splitlines(True)[-15:])
            raise SystemExit(f"{self.name} ended with {self.process.wait()}:\n{tail}")
        return json.loads(line)
