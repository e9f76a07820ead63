"""Plot the learning curves of a fine-tuning run."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:  # at run time, matplotlib is only imported to draw a plot
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TRAIN, _DEV, _BEST = "tab:blue", "tab:orange", "0.55"
_INCHES, _DPI = (9.0, 3.8), 130


def draw_curves(
    path: PathLike,
    history: Sequence[Mapping[str, float | None]],
    *,
    points: Sequence[tuple[float, float]],
    monitor: str,
    best_epoch: int | None,
    title: str = "",
) -> None:
    """Plot the loss and the monitored metric side by side and save them as a PNG file.

    Args:
        path: The PNG file to write.
        history: The metrics of each epoch; `None` marks a value that is not finite.
        points: The training loss within the epochs, as pairs `(x, loss)`. `x` is the number of
            epochs done, including fractions.
        monitor: The metric of `history` that is plotted next to the loss.
        best_epoch: The best epoch, counted from 1, or `None` if there is none yet.
        title: Title of the figure.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    figure, is_loss = new_figure(), monitor == "val_loss"
    losses, *others = figure.subplots(1, 1 if is_loss else 2, squeeze=False)[0]
    if points:
        losses.plot(*zip(*points, strict=True), color=_TRAIN, linewidth=1.3, label="training")
    _plot(losses, history, "val_loss")
    losses.set(title="Loss", ylim=(0, None) if min(losses.get_ylim()) > -1 else None)
    name = monitor.removeprefix("val_")
    for scores in others:
        _plot(scores, history, monitor)
        scores.set(title=f"Development data: {name}")
    for axes in (losses, *others):
        _finish(axes, len(history), best_epoch)
    value = None if best_epoch is None else history[best_epoch - 1].get(monitor)
    if best_epoch is not None and value is not None:
        axes = losses if is_loss else others[0]
        axes.plot(best_epoch, value, "o", color=_DEV, markersize=11, markerfacecolor="none")
        axes.set_xlabel(f"epoch  (best: {best_epoch}, {name} {value:.4f})")
    losses.legend(frameon=False)
    if title:
        figure.suptitle(textwrap.shorten(title, 90, placeholder=" ..."), fontsize="medium")
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format="png")


def new_figure() -> "Figure":
    """Return an empty figure, or raise `ImportError` if Matplotlib is not installed."""
    try:  # pyplot would look for a display and keep every figure in memory
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Learning curves require Matplotlib: pip install "keras-bert-d2l[tasks]".'
        ) from error
    return Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")


def _plot(axes: "Axes", history: Sequence[Mapping[str, float | None]], name: str) -> None:
    values = [(epoch, metrics.get(name)) for epoch, metrics in enumerate(history, 1)]
    found = [(epoch, value) for epoch, value in values if value is not None]
    if found:
        axes.plot(*zip(*found, strict=True), "o-", color=_DEV, markersize=4.5, label="development")


def _finish(axes: "Axes", num_epochs: int, best_epoch: int | None) -> None:
    from matplotlib.ticker import MaxNLocator

    if best_epoch is not None:
        axes.axvline(best_epoch, color=_BEST, linestyle=":", linewidth=1.2, label="best epoch")
    axes.set_xlabel("epoch")
    axes.set_xlim(0, num_epochs + 0.25)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(True, color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
