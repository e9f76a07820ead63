"""Progress of long stages, on stderr: a bar in a terminal, otherwise a line every 30 seconds.

Any function may open a `stage`. It is displayed if it takes longer than two seconds, and only
within `showing_stages`: commands and runs that print enter it, other functions are silent.
"""

import contextlib
import contextvars
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from keras_bert_d2l.printing import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

_DELAY_SECONDS, _UPDATE_SECONDS, _LINE_SECONDS = 2.0, 0.1, 30.0

_is_shown = contextvars.ContextVar("is_shown", default=False)
_innermost: contextvars.ContextVar["Stage | None"] = contextvars.ContextVar(
    "innermost", default=None
)


class Stage:
    """Work whose progress is displayed.

    Args:
        title: What is done, such as "Loading the model".
        total: Amount of the work, in any unit. `None`: it is not known. The display then shows how
            far the stage within this one is, if there is one, and otherwise the time.

    Attributes:
        remark: Text that the display adds. With a remark and without a total, the display does not
            show how far the stage within this one is.
        inner: The stage within this one, if there is one.
    """

    def __init__(self, title: str, total: float | None = None) -> None:
        self.title, self.total, self.remark = one_line(title), total, ""
        self.inner: Stage | None = None
        self.display: _Display | None = None  # of the outermost stage
        self.completed, self._part = 0.0, 0.0
        self._start = time.monotonic()

    def advance(self, amount: float = 1) -> None:
        """Report that a further amount of the work is completed."""
        self.completed += amount

    @contextlib.contextmanager
    def part(self, amount: float) -> Iterator[None]:
        """Complete a further amount, and display how far the stages within it are."""
        self._part = amount
        yield
        self._part = 0.0
        self.advance(amount)

    def state(self) -> tuple[float | None, str]:
        """Return the completed share, if it is known, and a description."""
        (share, start), remark = self._share(), self._remark()
        seconds = time.monotonic() - start
        texts = [duration(seconds)]
        if share is not None:
            texts = [f"{share:.0%}"]
            if share:
                texts.append(f"{duration(seconds * (1 - share) / share)} left")
        return share, ", ".join([remark, *texts] if remark else texts)

    def _remark(self) -> str:
        """Return the remark, or that of the stage within this one."""
        inner = self.inner
        return self.remark if self.remark or inner is None else inner._remark()

    def _share(self) -> tuple[float | None, float]:
        """Return the completed share, if it is known, and since when it has been growing."""
        inner = self.inner  # another thread may end it
        share, start = (None, 0.0) if inner is None else inner._share()
        if self.total is not None:
            completed = self.completed + self._part * (share or 0.0)
            return min(completed / max(self.total, 1), 1.0), self._start
        return (None, self._start) if share is None or self.remark else (share, start)


@contextlib.contextmanager
def showing_stages(is_shown: bool = True) -> Iterator[None]:
    """Display the stages within this context, or none of them."""
    before = _is_shown.get()
    _is_shown.set(is_shown)
    try:
        yield
    finally:
        _is_shown.set(before)


@contextlib.contextmanager
def stage(title: str, total: float | None = None) -> Iterator[Stage]:
    """Display the progress of some work. Within another stage, the title of that stage stays.

    Args:
        title: As for `Stage`.
        total: As for `Stage`.
    """
    this, outer = Stage(title, total), _innermost.get()
    if not _is_shown.get():
        yield this
        return
    _innermost.set(this)
    if outer is None:
        this.display = _Display(this)
        this.display.start()
    else:
        outer.inner, this.display = this, outer.display
    try:
        yield this
    finally:
        _innermost.set(outer)  # not `reset`, which fails if a generator ends in another context
        if outer is not None:
            outer.inner = None
        elif this.display is not None:
            this.display.end()


def parts(title: str, total: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` of `total` items, and display how many have been processed."""
    with stage(title, total) as work:
        for start in range(0, total, size):
            stop = min(start + size, total)
            with work.part(stop - start):
                yield slice(start, stop)


@contextlib.contextmanager
def without_bar() -> Iterator[None]:
    """Remove the bar, if there is one, while this context prints lines."""
    now = _innermost.get()
    with now.display.erased() if now and now.display else contextlib.nullcontext():
        yield


def duration(seconds: float) -> str:
    """Return a time span in its two largest units, or in seconds below a minute."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


class _Display(threading.Thread):
    """Thread that displays a stage, so that the work itself only has to count."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="progress", daemon=True)
        self._stage = stage
        self._stream = _own_stderr()
        self._bar: Progress | None = None
        self._lock, self._has_ended = threading.Lock(), threading.Event()

    def end(self) -> None:
        """Remove the bar and end the thread."""
        self._has_ended.set()
        self.join()

    @contextlib.contextmanager
    def erased(self) -> Iterator[None]:
        """Remove the bar within this context."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            yield

    def run(self) -> None:
        with contextlib.suppress(OSError), self._stream as stream:  # the terminal may be closed
            if stream.isatty() and os.environ.get("TERM") != "dumb":
                self._show_bar(stream)
                return
            while not self._has_ended.wait(_LINE_SECONDS):
                print(f"{self._stage.title}: {self._stage.state()[1]}", file=stream, flush=True)

    def _show_bar(self, stream: IO[str]) -> None:
        if self._has_ended.wait(_DELAY_SECONDS):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            console=Console(file=stream),
            transient=True,
            auto_refresh=False,
            # The main thread may replace these streams as well.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bar.add_task(self._stage.title)
        [task] = self._bar.tasks
        try:
            while not self._has_ended.wait(_UPDATE_SECONDS):
                with self._lock:
                    share, task.fields["state"] = self._stage.state()
                    task.total = None if share is None else 1.0
                    task.completed = share or 0.0
                    self._bar.start()
                    self._bar.refresh()
        finally:
            self._bar.stop()


def _own_stderr() -> contextlib.AbstractContextManager[IO[str]]:
    """Return stderr with a descriptor of its own, because it is hidden while TensorFlow starts."""
    try:
        return open(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    except (OSError, ValueError):  # not a file, for example in a notebook
        return contextlib.nullcontext(sys.stderr)
