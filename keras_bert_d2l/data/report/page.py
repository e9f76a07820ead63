"""Render a `DataReport` as a self-contained HTML page."""

from keras_bert_d2l.data.report.report import DataReport, Histogram
from keras_bert_d2l.pages import render


def report_page(report: DataReport) -> str:
    """Return the page as HTML without scripts or external resources. All text is escaped."""
    page = render(
        "data/report/report.html.jinja",
        f"Data report for {report.source}",
        styles=["data/report/report.css"],
        report=report,
        bars=_bars,
    )
    return page.html


def _bars(histogram: Histogram) -> list[tuple[str, int, float]]:
    """Return the label, the count, and the height in percent of each bar."""
    highest = max(histogram.counts)
    bars = []
    for number, count in enumerate(histogram.counts):
        first = number * histogram.width
        is_last = number == len(histogram.counts) - 1
        last = first + histogram.width - 1
        name = (
            f"{first} or more" if is_last else f"{first} to {last}" if last > first else f"{first}"
        )
        bars.append((name, count, 100 * count / highest))
    return bars
