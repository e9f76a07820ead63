"""Progress bars of long stages, on stderr.

Any function may open a `stage`. Its bar is displayed in a terminal if it takes longer than two
seconds, and only within `showing_stages`: commands and runs that print enter it, other functions
are silent. A stage within another has a line of its own.
"""

import contextlib
import contextvars
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_bert_d2l.printing import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

_DELAY_SECONDS = 2.0

_is_shown = contextvars.ContextVar("is_shown", default=False)
_bars: contextvars.ContextVar["Progress | None"] = contextvars.ContextVar("bars", default=None)


class Stage:
    """Work whose progress is displayed. The display reads its numbers, so the work only counts.

    Args:
        title: What is done, such as "Loading the model".
        total: Amount of the work, in any unit. `None`: it is not known.

    Attributes:
        completed: The completed amount.
        remark: Text that the display adds.
    """

    def __init__(self, title: str, total: float | None = None) -> None:
        self.title, self.total = one_line(title), total
        self.completed, self.remark = 0.0, ""

    def advance(self, amount: float = 1) -> None:
        """Report that a further amount of the work is completed."""
        self.completed += amount


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
    """Display the progress of some work.

    Args:
        title: As for `Stage`.
        total: As for `Stage`.
    """
    work, outer = Stage(title, total), _bars.get()
    with contextlib.ExitStack() as stack:
        if _is_shown.get():
            bars = outer or stack.enter_context(_display())
            if bars is not None:
                row = bars.add_task(work.title, total=total, stage=work)
                stack.callback(bars.remove_task, row)
            _bars.set(bars)
            stack.callback(_bars.set, outer)  # `reset` fails if a generator ends elsewhere
        yield work


def parts(title: str, total: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` of `total` items, and display how many have been processed."""
    with stage(title, total) as work:
        for start in range(0, total, size):
            stop = min(start + size, total)
            yield slice(start, stop)
            work.advance(stop - start)


@contextlib.contextmanager
def without_bar() -> Iterator[None]:
    """Remove the bars, if there are some, while this context prints lines."""
    bars = _bars.get()
    if bars is None:
        yield
        return
    bars.stop()
    yield
    bars.start()


def duration(seconds: float) -> str:
    """Return a time span in its two largest units, or in seconds below a minute."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


@contextlib.contextmanager
def _display() -> Iterator["Progress | None"]:
    """Display bars in this context, if stderr is a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich import progress
    from rich.console import Console, RenderableType

    class Bars(progress.Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            for row in self.tasks:
                work = row.fields["stage"]
                self.update(row.id, total=work.total, completed=work.completed)
            long = [row for row in self.tasks if (row.elapsed or 0.0) >= _DELAY_SECONDS]
            yield self.make_tasks_table(long)

    bars = Bars(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.TaskProgressColumn(show_speed=False),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[stage].remark}", markup=False),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=600,
        # The main thread may replace these streams as well.
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with contextlib.suppress(OSError):  # the terminal may be closed
        bars.start()
    try:
        yield bars
    finally:
        with contextlib.suppress(OSError):
            bars.stop()
