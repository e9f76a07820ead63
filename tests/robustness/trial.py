"""Load a damaged folder and judge what happens."""

import contextlib
import dataclasses
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.robustness.folders import KINDS
from tests.robustness.mutations import mutate, sign_again

SECONDS = 10  # of the processor: limit for loading a damaged folder
SAME, OTHER, ERROR = "same content", "other content", "clear error"
WRONG, UNCLEAR, CRASH = "wrong content", "unclear error", "traceback"
SLOW, BIG = "too slow", "too much memory"
FAULTS = (WRONG, UNCLEAR, CRASH, SLOW, BIG)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What happened to a mutant.

    Attributes:
        kind: Kind of folder.
        seed: Argument of `Trials.run`.
        damage: Kind of damage and the damaged file.
        outcome: One of the outcomes above.
        detail: The error or the difference.
        seconds: Processor time to load it.
        megabytes: Growth of the process's peak memory.
    """

    kind: str
    seed: str
    damage: str
    outcome: str
    detail: str
    seconds: float
    megabytes: float


class _TooSlowError(BaseException):
    pass


class Trials:
    """Damages copies of one folder of a kind and loads them.

    Args:
        kind: Kind of folder.
        original: An undamaged folder.
    """

    def __init__(self, kind: str, original: Path) -> None:
        self.kind, self.original = kind, original
        _, first = self._judge(original)  # the first load of a process needs more time and memory
        with measured() as used:
            outcome, self._expected = self._judge(original)
        assert (outcome, self._expected) == (OTHER, first)
        self._megabytes = used.megabytes

    def run(self, seed: str) -> Trial:
        """Create the mutant of a seed, load it and return the outcome.

        Every second mutant gets new checksums, as if the damage had been intended. Such a mutant
        may have other content, but every other rule holds.
        """
        rng = random.Random(f"{self.kind} {seed}")
        with tempfile.TemporaryDirectory() as scratch:
            mutant = Path(scratch, f"mutant{KINDS[self.kind].suffix}")
            copy = shutil.copytree if self.original.is_dir() else shutil.copyfile
            copy(self.original, mutant)
            damage = mutate(mutant, rng)
            is_intended = rng.random() < 0.5 and mutant.is_dir() and self.kind != "ONNX"
            if is_intended:
                sign_again(mutant)
                damage += ", signed"
            with measured() as used:
                outcome, detail = self._judge(mutant)
        if outcome == OTHER and detail == self._expected:
            outcome = SAME
        elif outcome == OTHER and not is_intended:
            outcome = WRONG
        if outcome not in FAULTS and used.megabytes > self._megabytes + KINDS[self.kind].megabytes:
            outcome = BIG
        return Trial(self.kind, seed, damage, outcome, detail, used.seconds, used.megabytes)

    def _judge(self, path: Path) -> tuple[str, str]:
        kind = KINDS[self.kind]
        return judge(lambda: str(kind.load(path)), path, kind.errors)


def judge(
    load: Callable[[], object],
    path: Path,
    errors: tuple[type[Exception], ...] = (ValueError, OSError),
) -> tuple[str, str]:
    """Call a function that reads a folder or file; return the outcome and a detail.

    An error is clear if it is one of `errors` and a message of at most 1,000 characters that names
    the path, or another file that the folder names.
    """
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), _time_limit():
            return OTHER, str(load())
    except _TooSlowError:
        return SLOW, "".join(traceback.format_exc(limit=-3))
    except errors as error:
        message = str(error)
        names_a_file = path.name in message or f"'{os.sep}" in message
        is_clear = Exception in errors or (names_a_file and len(message) <= 1000)
        return ERROR if is_clear else UNCLEAR, f"{type(error).__name__}: {message}"
    except Exception:
        return CRASH, "".join(traceback.format_exc(limit=-3))


@dataclasses.dataclass
class _Used:
    seconds: float = 0.0
    megabytes: float = 0.0


@contextlib.contextmanager
def measured() -> Iterator[_Used]:
    """Measure processor time and, on Linux, the peak memory beyond the size of this process."""
    used, start, before = _Used(), time.process_time(), _reset_peak()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield used
    used.seconds = time.process_time() - start
    used.megabytes = _status("VmHWM") - before


def _reset_peak() -> float:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(field: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    [line] = (line for line in lines if line.startswith(field))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooSlowError

    # The processor time, which other processes do not affect, and more for a load that only waits.
    limits = (
        (signal.SIGPROF, signal.ITIMER_PROF, SECONDS),
        (signal.SIGALRM, signal.ITIMER_REAL, 6 * SECONDS),
    )
    before = [signal.signal(number, stop) for number, _, _ in limits]
    for _, timer, seconds in limits:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
