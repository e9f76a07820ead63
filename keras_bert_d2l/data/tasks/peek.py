"""Preview of task examples as the model sees them, as text for a terminal."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.contract.registry import task_named
from keras_bert_d2l.contract.task import AnyTask
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many, share
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.printing import one_line
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_Lines: TypeAlias = Sequence[tuple[str | Text, str]]

_MEASURED = 20_000  # maximum number of measured examples
_SHOWN = 5
_SHOWN_LABELS = 20
_SHOWN_TOKENS = 120
_BAR = 24  # characters
_FAINT = "dim"


def peek(
    examples: TaskExamples, tokenizer: Tokenizer, max_len: int, *, overlap: int | None = None
) -> str:
    """Preview examples as the model sees them.

    The preview has the label counts, the lengths in tokens, the numbers of dropped and truncated
    examples, and five encoded examples. Lengths are measured on at most 20,000 evenly spaced
    examples.

    Args:
        examples: The examples.
        tokenizer: The tokenizer of the model.
        max_len: Maximum number of tokens in a row.
        overlap: For `"answer"`, as in `TaskRows.encode`.

    Returns:
        Text as wide as the terminal, in color if the terminal supports it.

    Raises:
        ValueError: As in `TaskRows.encode`, but any labels are accepted.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a crane flies".split())
    examples = kb.TextExamples(texts=["a crane", "flies"], labels=["noun", "verb"])
    print(kb.peek(examples, kb.Tokenizer(vocab), max_len=8))
    ```
    """
    check_type("examples", examples, TaskExamples, "Read a file with `read_examples`.")
    task = task_named(examples.task)
    step = -(-len(examples) // _MEASURED)
    measured = examples.subset(range(0, len(examples), step)) if step > 1 else examples
    # Any labels are accepted; only answers are needed, to show where they are.
    encoded = measured.without_labels() if task.predicts_labels else measured
    rows = TaskRows.encode(encoded, tokenizer, max_len=max_len, overlap=overlap)
    source = os.path.basename(examples.source) or "the examples"
    groups: dict[str, _Lines] = {
        "examples": [("total", f"{len(examples):,}")],
        "columns": [(f"`{role}`", name) for role, name in examples.columns.items()],
        "format": [(note, "") for note in examples.notes],
        "labels": _labels(task, examples),
        "tokens": _lengths(measured, rows, max_len, len(examples)),
        "dropped": _dropped(examples, rows),
    }
    table = grouped_table(source, groups.items())
    console = Console()
    with console.capture() as captured:
        console.print(Group(table, *_shown_examples(measured, rows, tokenizer)))
    return captured.get()


def grouped_table(
    source: str, groups: Iterable[tuple[str, Iterable[tuple[str | Text, str]]]]
) -> Table:
    """Return a table of groups of measurements: the title of each, and its names and values."""
    table = Table(title=cell(f"{source} as the model sees it"), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    for title, lines in groups:
        for number, (name, value) in enumerate(lines):
            name = name if isinstance(name, Text) else cell(name)
            table.add_row("" if number else title, name, cell(value))
        table.add_section()
    return table


def cell(text: str, style: str = "") -> Text:
    """Return a line of text for Rich, which would read brackets in a string as styles."""
    return Text(one_line(text), style)


def _labels(task: AnyTask, examples: TaskExamples) -> _Lines:
    if not examples.has_labels:
        return [("none", "")]
    lines = task.label_lines(examples)
    return _label_counts(examples) if lines is None else lines


def _label_counts(examples: TaskExamples) -> _Lines:
    counts = examples.label_counts()
    total = len(examples) if examples.multi_label else counts.total()
    shown = counts.most_common(_SHOWN_LABELS)
    names = [one_line(label) for label, _ in shown]
    width = max(map(cell_len, names), default=0) + 2
    lines: list[tuple[str | Text, str]] = []
    for label, (_, count) in zip(names, shown, strict=True):
        bar = "█" * max(1, round(_BAR * count / shown[0][1]))
        name = Text.assemble(set_cell_size(label, width), (bar, "cyan"))
        lines.append((name, share(count, total)))
    if len(counts) > len(shown):
        rest = counts.total() - sum(count for _, count in shown)
        more = how_many(len(counts) - len(shown), "more label")
        lines.append((more, share(rest, counts.total())))
    if examples.multi_label:
        lines.append(("mean labels per example", f"{counts.total() / len(examples):.2f}"))
    return lines


def _lengths(examples: TaskExamples, rows: TaskRows, max_len: int, num_all: int) -> _Lines:
    lengths = rows.full_lengths[rows.full_lengths > 0]
    lines: list[tuple[str | Text, str]] = []
    if len(examples) < num_all:
        lines.append(("measured on", f"{len(examples):,} of {num_all:,} examples"))
    lines += [
        ("median per example", f"{np.median(lengths):,.0f}"),
        ("95th percentile", f"{np.quantile(lengths, 0.95):,.0f}"),
        ("maximum", f"{lengths.max():,}"),
    ]
    truncated = f"examples truncated to {max_len} tokens"
    if task_named(examples.task).splits_long_texts:
        truncated = f"longer than {max_len} tokens, split into rows"
    elif examples.have_pairs_in_rows:
        truncated += ", longer text first"
    lines.append((truncated, share(rows.num_truncated, len(examples))))
    if rows.is_grouped or task_named(examples.task).splits_long_texts:
        lines.append(("rows", f"{len(rows):,}"))
    return lines


def _dropped(examples: TaskExamples, rows: TaskRows) -> _Lines:
    lines: list[tuple[str | Text, str]] = []
    for reason, count in (*examples.dropped.items(), *rows.dropped.items()):
        place = examples.first_dropped.get(reason)
        lines.append((reason + (f" (first: {place})" if place else ""), f"{count:,}"))
    return lines or [("none", "0")]


def _shown_examples(
    examples: TaskExamples, rows: TaskRows, tokenizer: Tokenizer
) -> Iterator[RenderableType]:
    task, owners = task_named(examples.task), np.unique(rows.examples)
    places = np.linspace(0, len(owners) - 1, min(_SHOWN, len(owners))).round().astype(int)
    for number in owners[places].tolist():
        label, tokens = task.shown(examples, rows, number, tokenizer.vocab)
        more = len(tokens) - _SHOWN_TOKENS
        rest = [cell(f"… and {how_many(more, 'more token')}", _FAINT)] if more > 0 else []
        yield Text()
        yield Text.assemble(cell(examples.ids[number]), "  ", cell(label, "bold"))
        yield Padding(Text(" ").join([*map(_token, tokens[:_SHOWN_TOKENS]), *rest]), (0, 0, 0, 2))


def _token(token: str) -> Text:
    """Return a token, dimmed if it is special, such as `[CLS]`."""
    is_special = token.startswith("[") and token.endswith("]") and len(token) > 2
    return cell(token, _FAINT if is_special else "")
