"""Learning curves: the figures of a run in, a picture out."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bert_d2l.files import replacing_file

_TRAIN, _DEV, _BEST = "tab:blue", "tab:orange", "0.55"
_INCHES, _DPI = (9.0, 3.8), 130


def draw_curves(
    path: str | os.PathLike[str],
    history: Sequence[Mapping[str, float | None]],
    *,
    points: Sequence[tuple[float, float]],
    monitor: str,
    best_epoch: int | None,
    title: str = "",
) -> None:
    """Draws the loss, and beside it the figure by which the best epoch is chosen, as a PNG.

    Args:
        path: The picture to write, whole or not at all.
        history: The figures of each epoch; `None` stands for what was no number.
        points: The training loss within the epochs: epochs done, as a fraction, and the loss.
        monitor: The figure of `history` that is drawn beside the loss.
        best_epoch: The best epoch, from 1; `None`: there is none yet.
        title: Stands above.

    Raises:
        ImportError: Matplotlib is missing.
    """
    figure, is_loss = new_figure(), monitor == "val_loss"
    losses, *others = figure.subplots(1, 1 if is_loss else 2, squeeze=False)[0]
    if points:
        losses.plot(*zip(*points, strict=True), color=_TRAIN, linewidth=1.3, label="training")
    _plot(losses, history, "val_loss", "development")
    losses.set(title="Loss", ylim=(0, None) if min(losses.get_ylim()) > -1 else None)
    name = monitor.removeprefix("val_").replace("_", " ")
    for scores in others:
        _plot(scores, history, monitor, "development")
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


def new_figure() -> Any:
    """Returns an empty figure; raises an `ImportError` where matplotlib is missing."""
    try:  # not pyplot, which would look for a screen and keep the figure
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Learning curves need matplotlib: pip install "keras-bert-d2l[tasks]".'
        ) from error
    return Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")


def _plot(axes: Any, history: Sequence[Mapping[str, Any]], name: str, label: str) -> None:
    found = [(n, one[name]) for n, one in enumerate(history, 1) if one.get(name) is not None]
    if found:
        axes.plot(*zip(*found, strict=True), "o-", color=_DEV, markersize=4.5, label=label)


def _finish(axes: Any, num_epochs: int, best_epoch: int | None) -> None:
    from matplotlib.ticker import MaxNLocator

    if best_epoch is not None:
        axes.axvline(best_epoch, color=_BEST, linestyle=":", linewidth=1.2, label="best epoch")
    axes.set_xlabel("epoch")
    axes.set_xlim(0, num_epochs + 0.25)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(True, color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
