import struct
import sys

import pytest

from keras_bert_d2l.training.finetuning.curves import draw_curves

HISTORY = [
    {"loss": 0.5, "val_loss": 0.4, "val_f1": 0.7},
    {"loss": 0.3, "val_loss": None, "val_f1": 0.9},
    {"loss": 0.2, "val_loss": 0.5, "val_f1": 0.8},
]
POINTS = [(n / 5, 0.6 - n / 50) for n in range(1, 16)]


@pytest.fixture
def drawn(monkeypatch):
    """A list that collects the figures drawn by Matplotlib."""
    figure = pytest.importorskip("matplotlib.figure")
    figures, init = [], figure.Figure.__init__
    monkeypatch.setattr(
        figure.Figure,
        "__init__",
        lambda self, *arguments, **options: (
            figures.append(self),
            init(self, *arguments, **options),
        )[1],
    )
    return figures


def test_the_figure_shows_the_losses_the_metric_and_the_best_epoch(tmp_path, drawn):
    draw_curves(
        tmp_path / "curves.png", HISTORY, points=POINTS, monitor="val_f1", best_epoch=2, title="run"
    )
    content = (tmp_path / "curves.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (1170, 494)
    losses, scores = drawn[0].axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in losses.get_lines()}
    assert lines["training"] == [list(point) for point in POINTS]
    assert lines["development"] == [[1, 0.4], [3, 0.5]]  # values that are not finite are skipped
    assert scores.get_lines()[0].get_ydata().tolist() == [0.7, 0.9, 0.8]
    assert scores.get_xlabel() == "epoch  (best: 2, f1 0.9000)"
    assert [text.get_text() for text in losses.get_legend().get_texts()] == [
        "training",
        "development",
        "best epoch",
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "curves.png"]


def test_a_monitored_loss_is_plotted_only_once(tmp_path, drawn):
    draw_curves(
        tmp_path / "curves.png", HISTORY[:1], points=[], monitor="val_loss", best_epoch=None
    )
    assert len(drawn[0].axes) == 1


def test_without_matplotlib_the_error_names_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install \"keras-bert-d2l\[tasks\]\""):
        draw_curves(tmp_path / "c.png", HISTORY, points=[], monitor="val_f1", best_epoch=1)
