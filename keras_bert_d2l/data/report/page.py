"""A `DataReport` in, a self-contained HTML page out."""

import os

import jinja2

from keras_bert_d2l.data.report.report import DataReport, Histogram
from keras_bert_d2l.files import write_text

_TEMPLATE = "report.html.jinja"


def report_page(report: DataReport) -> str:
    """Returns the page: one file, without scripts and without anything from elsewhere.

    What comes from the text is escaped.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("keras_bert_d2l.data.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["bars"] = _bars
    return environment.get_template(_TEMPLATE).render(report=report)


def write_page(report: DataReport, path: str | os.PathLike[str]) -> None:
    """Writes the page to a file, whole or not at all."""
    write_text(path, report_page(report))


def _bars(histogram: Histogram) -> list[tuple[str, int, float]]:
    """For each bar the lengths in words, the count, and the height in percent of the highest."""
    highest = max(histogram.counts)
    bars = []
    for number, count in enumerate(histogram.counts):
        first = number * histogram.width
        is_last = number == len(histogram.counts) - 1
        last = first + histogram.width - 1
        name = (
            f"{first} and more" if is_last else f"{first} to {last}" if last > first else f"{first}"
        )
        bars.append((name, count, 100 * count / highest))
    return bars
