"""Examples of a task in, a glance at them out: what a terminal shows before a model is trained."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    how_many,
)
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_MEASURED, _MEASURED_QUESTIONS = 200_000, 20_000  # examples at most: of more every n-th
_SHOWN = 5
_SHOWN_LABELS = 20
_LONGEST_SHOWN = 120  # tokens of an example
_AROUND_ANSWER = 40  # tokens before and after an answer
_BAR = 24  # characters
_STYLES = {"special": "dim", "answer": "bold green", "tag": "cyan", "label": "bold"}


def peek(
    examples: TaskExamples,
    tokenizer: Tokenizer,
    max_len: int,
    *,
    overlap: int | None = None,
    batch_size: int = 32,
) -> str:
    """Shows what a model will see: labels, lengths, what is lost, and five examples.

    Of more than 200,000 examples (20,000 questions) lengths are those of a part, evenly taken.

    Args:
        examples: The examples.
        tokenizer: The tokenizer of the model.
        max_len: Tokens in a row at most.
        overlap: For `"answer"`, as for `TaskRows.encode`.
        batch_size: Of the batches whose padding is told.

    Returns: text as wide as the terminal, with colours where there is one.

    Raises:
        ValueError: As `TaskRows.encode`; but any labels will do.
    """
    is_long = isinstance(examples, QuestionExamples)
    step = -(-len(examples) // (_MEASURED_QUESTIONS if is_long else _MEASURED))
    measured = examples.subset(range(0, len(examples), step)) if step > 1 else examples
    encoded = measured if is_long else measured.without_labels()  # whatever labels there are
    rows = TaskRows.encode(encoded, tokenizer, max_len=max_len, overlap=overlap)
    source = os.path.basename(examples.source) or "the examples"
    table = Table(title=Text(f"What a model will see of {source}"), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    columns: _Figures = [(f"`{role}`", name) for role, name in examples.columns.items()]
    groups = (
        ("examples", _sizes(examples)),
        ("columns", columns),
        ("labels", _labels(examples)),
        ("tokens", _lengths(measured, rows, max_len, batch_size, len(examples))),
        ("dropped", _dropped(examples, rows)),
    )
    for title, figures in groups:
        if figures:
            table.add_section()
        for number, (name, value) in enumerate(figures):
            table.add_row("" if number else title, *map(_as_text, (name, value)))
    console = Console()
    with console.capture() as captured:
        console.print(Group(table, *_shown_examples(measured, rows, tokenizer)))
    return captured.get()


def _as_text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)  # brackets are no markup


_Figures = list[tuple[str | Text, str]]


def _sizes(examples: TaskExamples) -> _Figures:
    figures: _Figures = [("in all", f"{len(examples):,}")]
    if isinstance(examples, WordExamples):
        num_words = sum(len(words) for words in examples.words)
        figures += [("words", f"{num_words:,}")]
    if isinstance(examples, QuestionExamples):
        figures += [("different contexts", f"{len(set(examples.contexts)):,}")]
    return figures


def _labels(examples: TaskExamples) -> _Figures:
    if not examples.has_labels:
        return [("none", "")]
    if isinstance(examples, QuestionExamples):
        answers = examples.answers or ()
        num_without = sum(not own for own in answers)
        several = sum(len(own) > 1 for own in answers)
        return [
            ("with an answer", _share(len(answers) - num_without, len(answers))),
            ("with several answers", _share(several, len(answers))),
            ("without an answer", _share(num_without, len(answers))),
        ]
    if examples.task == "regress" and isinstance(examples, TextExamples):
        scores = np.array(examples.labels, np.float64)
        figures = {"least": scores.min(), "mean": scores.mean(), "greatest": scores.max()}
        figures["standard deviation"] = scores.std()
        return [(name, f"{value:,.3f}") for name, value in figures.items()]
    counts = examples.label_counts()
    is_multi = isinstance(examples, TextExamples) and examples.multi_label
    most, total = max(counts.values(), default=1), len(examples) if is_multi else counts.total()
    shown = counts.most_common(_SHOWN_LABELS)
    width = max((cell_len(label) for label, _ in shown), default=0)
    rows: _Figures = [
        (
            Text.assemble(
                set_cell_size(label, width + 2), ("█" * max(1, round(_BAR * count / most)), "cyan")
            ),
            _share(count, total),
        )
        for label, count in shown
    ]
    if len(counts) > len(shown):
        rest = counts.total() - sum(count for _, count in shown)
        rows.append(
            (how_many(len(counts) - len(shown), "more label"), _share(rest, counts.total()))
        )
    if is_multi:
        of_columns = examples.columns.get("label", "").split(", ")
        unset = [name for name in of_columns if name not in counts]
        if len(of_columns) > 1 and unset:
            rows.append((f"in no example: {', '.join(unset)}", ""))
        rows.append(("labels of an example, mean", f"{counts.total() / len(examples):.2f}"))
    return rows


def _lengths(
    examples: TaskExamples, rows: TaskRows, max_len: int, batch_size: int, num_all: int
) -> _Figures:
    lengths = rows.full_lengths[rows.full_lengths > 0]
    figures: _Figures = []
    if len(examples) < num_all:
        figures.append(("measured on", f"{len(examples):,} of {num_all:,} examples"))
    figures += [
        ("median of an example", f"{np.median(lengths):,.0f}"),
        ("95 % of the examples, at most", f"{np.quantile(lengths, 0.95):,.0f}"),
        ("the longest", f"{lengths.max():,}"),
    ]
    what = f"truncated at {max_len}"
    if rows.task == "answer":
        what = f"longer than {max_len}, so in several rows"
    elif isinstance(examples, TextExamples) and examples.texts_b is not None:
        what += ", the longer text first"
    figures.append((what, _share(rows.num_truncated, len(examples))))
    if rows.task == "answer":
        figures.append(("rows", f"{len(rows):,}"))
    if isinstance(examples, WordExamples):
        num_words = sum(len(words) for words in examples.words)
        figures.append(("words cut off or without a token", _share(rows.num_words_cut, num_words)))
    padding = rows.padding_share(batch_size)
    figures.append((f"padding in batches of {batch_size}", f"{padding:.1%}"))
    return figures


def _dropped(examples: TaskExamples, rows: TaskRows) -> _Figures:
    figures: _Figures = []
    for reason, count in examples.dropped.items():
        place = examples.first_dropped.get(reason)
        figures.append((reason + (f" (first: {place})" if place else ""), f"{count:,}"))
    figures += [(reason, f"{count:,}") for reason, count in rows.dropped.items()]
    return figures or [("nothing", "0")]


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / max(1, total):.1%})"


def _shown_examples(
    examples: TaskExamples, rows: TaskRows, tokenizer: Tokenizer
) -> Iterator[RenderableType]:
    owners = np.unique(rows.examples)
    places = np.linspace(0, len(owners) - 1, min(_SHOWN, len(owners))).round().astype(int)
    for number in owners[places].tolist():
        row = _row_to_show(rows, number)
        first, end = rows.splits[row], rows.splits[row + 1]
        tokens = [tokenizer.vocab.tokens[token] for token in rows.tokens[first:end]]
        label, shown = _shown_row(examples, rows, number, row, tokens)
        title = Text.assemble(examples.ids[number], "  ", (label, _STYLES["label"]))
        yield Text()
        yield title
        yield Padding(shown, (0, 0, 0, 2))


def _row_to_show(rows: TaskRows, number: int) -> int:
    """The first row of an example, or the first that holds its answer."""
    own = np.flatnonzero(rows.examples == number)
    if rows.task == "answer" and rows.labels is not None:
        return int(own[np.argmax(rows.labels[own, 0] > 0)])
    return int(own[0])


def _shown_row(
    examples: TaskExamples, rows: TaskRows, number: int, row: int, tokens: list[str]
) -> tuple[str, RenderableType]:
    """What an example's label is, in words, and its tokens."""
    cut = len(tokens) < rows.full_lengths[number]
    if isinstance(examples, WordExamples):
        first, end = rows.splits[row], rows.splits[row + 1]
        tags = [""] * len(tokens)
        if examples.labels is not None and rows.word_ids is not None:
            before = -1
            for place, word in enumerate(rows.word_ids[first:end].tolist()):
                if word not in (-1, before):
                    tags[place] = examples.labels[number][word]
                before = word
        return "(truncated)" if cut else "", _Tagged(tokens, tags)
    if isinstance(examples, QuestionExamples):
        start = end = 0
        label = ""
        if rows.labels is not None and examples.answers is not None:
            start, end = rows.labels[row].tolist()
            own = examples.answers[number]
            label = f"answer: {own[0].text}" if own else "no answer"
        second = int(rows.seconds[row])
        return label, _answered(tokens, start, end, second)
    label = ""
    if isinstance(examples, TextExamples) and examples.labels is not None:
        names = examples.labels[number]
        label = ", ".join(names) or "no label" if isinstance(names, tuple) else str(names)
    return f"{label} (truncated)" if cut else label, _joined(tokens[:_LONGEST_SHOWN], len(tokens))


def _joined(tokens: Sequence[str], number: int) -> Text:
    text = Text()
    for token in tokens:
        text.append(token, _STYLES["special"] if _is_special(token) else "")
        text.append(" ")
    if number > len(tokens):
        text.append(f"… and {how_many(number - len(tokens), 'more token')}", _STYLES["special"])
    return text


def _answered(tokens: Sequence[str], start: int, end: int, second: int) -> Text:
    """The question and the part of the context around the answer."""
    middle = start or second
    from_, to = max(second, middle - _AROUND_ANSWER), max(middle, end) + 1 + _AROUND_ANSWER
    text = _joined(tokens[:second], second)
    if from_ > second:
        text.append(f"… {how_many(from_ - second, 'token')} … ", _STYLES["special"])
    for place in range(from_, min(to, len(tokens))):
        is_answer = 0 < start <= place <= end
        text.append("»" if place == start and is_answer else "")
        style = _STYLES["answer"] if is_answer else ""
        text.append(tokens[place], _STYLES["special"] if _is_special(tokens[place]) else style)
        text.append("« " if place == end and is_answer else " ")
    if to < len(tokens):
        text.append(f"… {how_many(len(tokens) - to, 'token')}", _STYLES["special"])
    return text


def _is_special(token: str) -> bool:
    return token.startswith("[") and token.endswith("]") and len(token) > 2


@dataclasses.dataclass(frozen=True)
class _Tagged:
    """Tokens with their tags below them, in as many lines as they need."""

    tokens: list[str]
    tags: list[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Any:
        above, below = Text(no_wrap=True), Text(no_wrap=True)
        pairs = list(zip(self.tokens, self.tags, strict=True))[:_LONGEST_SHOWN]
        for token, tag in pairs:
            width = max(cell_len(token), cell_len(tag)) + 1
            if len(above) and above.cell_len + width > options.max_width:
                yield from (above, below)
                above, below = Text(no_wrap=True), Text(no_wrap=True)
            style = _STYLES["special"] if _is_special(token) else ""
            above.append(set_cell_size(token, width), style)
            below.append(set_cell_size(tag, width), _STYLES["tag"])
        yield from (above, below)
        if len(pairs) < len(self.tokens):
            rest = how_many(len(self.tokens) - len(pairs), "more token")
            yield Text(f"… and {rest}", _STYLES["special"])
