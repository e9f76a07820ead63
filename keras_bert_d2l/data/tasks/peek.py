"""Preview of task examples as the model sees them, as text for a terminal."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keras_bert_d2l.checks import check_integer, check_type
from keras_bert_d2l.data.tasks.examples import (
    ChoiceExamples,
    PairExamples,
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    are_scored,
    how_many,
    names_of,
)
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_Lines: TypeAlias = list[tuple[str | Text, str]]

_MEASURED, _MEASURED_QUESTIONS = 200_000, 20_000  # maximum numbers of measured examples
_SHOWN = 5
_SHOWN_LABELS = 20
_SHOWN_TOKENS = 120
_AROUND_ANSWER = 40  # tokens shown before and after an answer
_BAR = 24  # characters
_FAINT = "dim"


def peek(
    examples: TaskExamples,
    tokenizer: Tokenizer,
    max_len: int,
    *,
    overlap: int | None = None,
    batch_size: int = 32,
) -> str:
    """Preview examples as the model sees them.

    The preview has the label counts, the lengths in tokens, the numbers of dropped and truncated
    examples, and five encoded examples. Lengths are measured on at most 200,000 evenly spaced
    examples (20,000 questions).

    Args:
        examples: The examples.
        tokenizer: The tokenizer of the model.
        max_len: Maximum number of tokens in a row.
        overlap: For `"answer"`, as in `TaskRows.encode`.
        batch_size: Batch size for which the padding is reported.

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
    check_integer("batch_size", batch_size, 1)
    is_long = isinstance(examples, QuestionExamples)
    step = -(-len(examples) // (_MEASURED_QUESTIONS if is_long else _MEASURED))
    measured = examples.subset(range(0, len(examples), step)) if step > 1 else examples
    encoded = measured if is_long else measured.without_labels()  # any labels are accepted
    rows = TaskRows.encode(encoded, tokenizer, max_len=max_len, overlap=overlap)
    source = os.path.basename(examples.source) or "the examples"
    groups: dict[str, _Lines] = {
        "examples": _sizes(examples),
        "columns": [(f"`{role}`", name) for role, name in examples.columns.items()],
        "labels": _labels(examples),
        "tokens": _lengths(measured, rows, max_len, batch_size, len(examples)),
        "dropped": _dropped(examples, rows),
    }
    table = grouped_table(source, groups.items())
    console = Console()
    with console.capture() as captured:
        console.print(Group(table, *_shown_examples(measured, rows, tokenizer, console.width)))
    return captured.get()


def grouped_table(
    source: str, groups: Iterable[tuple[str, Iterable[tuple[str | Text, str]]]]
) -> Table:
    """Return a table of groups of measurements: the title of each, and its names and values."""
    table = Table(title=Text(f"{source} as the model sees it"), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    for title, lines in groups:
        for number, (name, value) in enumerate(lines):
            name = name if isinstance(name, Text) else Text(name)  # brackets are not read as markup
            table.add_row("" if number else title, name, Text(value))
        table.add_section()
    return table


def _sizes(examples: TaskExamples) -> _Lines:
    lines: _Lines = [("total", f"{len(examples):,}")]
    if isinstance(examples, WordExamples):
        lines.append(("words", f"{sum(map(len, examples.words)):,}"))
    if isinstance(examples, QuestionExamples):
        lines.append(("different contexts", f"{len(set(examples.contexts)):,}"))
    return lines


def _labels(examples: TaskExamples) -> _Lines:
    if not examples.has_labels:
        return [("none", "")]
    if isinstance(examples, QuestionExamples):
        counts = np.array([len(answers) for answers in examples.answers or ()])
        return [
            ("with an answer", _share((counts > 0).sum(), len(counts))),
            ("with several answers", _share((counts > 1).sum(), len(counts))),
            ("without an answer", _share((counts == 0).sum(), len(counts))),
        ]
    if isinstance(examples, ChoiceExamples):
        positions = sorted(Counter(examples.labels or ()).items())
        return [(f"position {n}", _share(count, len(examples))) for n, count in positions]
    if isinstance(examples, PairExamples) and examples.labels is None:
        kind = "pairs" if examples.negatives is None else "triplets"
        return [(f"none, {kind} of similar texts", "")]
    if isinstance(examples, TextExamples) and are_scored(examples):
        scores = np.array(examples.labels, np.float64)
        lines = {"minimum": scores.min(), "mean": scores.mean(), "maximum": scores.max()}
        lines["standard deviation"] = scores.std()
        return [(name, f"{value:,.3f}") for name, value in lines.items()]
    return _label_counts(examples)


def _label_counts(examples: TaskExamples) -> _Lines:
    counts = examples.label_counts()
    is_multi = isinstance(examples, TextExamples) and examples.multi_label
    total = len(examples) if is_multi else counts.total()
    shown = counts.most_common(_SHOWN_LABELS)
    width = max((cell_len(label) for label, _ in shown), default=0) + 2
    lines: _Lines = []
    for label, count in shown:
        bar = "█" * max(1, round(_BAR * count / shown[0][1]))
        name = Text.assemble(set_cell_size(label, width), (bar, "cyan"))
        lines.append((name, _share(count, total)))
    if len(counts) > len(shown):
        rest = counts.total() - sum(count for _, count in shown)
        more = how_many(len(counts) - len(shown), "more label")
        lines.append((more, _share(rest, counts.total())))
    if is_multi:
        of_columns = examples.columns.get("label", "").split(", ")
        unused = [name for name in of_columns if name not in counts]
        if len(of_columns) > 1 and unused:
            lines.append((f"never used: {', '.join(unused)}", ""))
        lines.append(("mean labels per example", f"{counts.total() / len(examples):.2f}"))
    return lines


def _lengths(
    examples: TaskExamples, rows: TaskRows, max_len: int, batch_size: int, num_all: int
) -> _Lines:
    lengths = rows.full_lengths[rows.full_lengths > 0]
    lines: _Lines = []
    if len(examples) < num_all:
        lines.append(("measured on", f"{len(examples):,} of {num_all:,} examples"))
    lines += [
        ("median per example", f"{np.median(lengths):,.0f}"),
        ("95th percentile", f"{np.quantile(lengths, 0.95):,.0f}"),
        ("maximum", f"{lengths.max():,}"),
    ]
    truncated = f"examples truncated to {max_len} tokens"
    if isinstance(examples, WordExamples | QuestionExamples):
        truncated = f"longer than {max_len} tokens, split into rows"
    elif examples.task != "embed" and getattr(examples, "texts_b", True) is not None:
        truncated += ", longer text first"
    lines.append((truncated, _share(rows.num_truncated, len(examples))))
    if not isinstance(examples, TextExamples):
        lines.append(("rows", f"{len(rows):,}"))
    lines.append((f"padding, batch size {batch_size}", f"{rows.padding_share(batch_size):.1%}"))
    return lines


def _dropped(examples: TaskExamples, rows: TaskRows) -> _Lines:
    lines: _Lines = []
    for reason, count in (*examples.dropped.items(), *rows.dropped.items()):
        place = examples.first_dropped.get(reason)
        lines.append((reason + (f" (first: {place})" if place else ""), f"{count:,}"))
    return lines or [("none", "0")]


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / max(1, total):.1%})"


def _shown_examples(
    examples: TaskExamples, rows: TaskRows, tokenizer: Tokenizer, width: int
) -> Iterator[RenderableType]:
    owners = np.unique(rows.examples)
    places = np.linspace(0, len(owners) - 1, min(_SHOWN, len(owners))).round().astype(int)
    for number in owners[places].tolist():
        own = np.flatnonzero(rows.examples == number)
        row = int(own[0])
        if rows.task == "answer" and rows.labels is not None:  # the first row with the answer
            row = int(own[np.argmax(rows.labels[own, 0] > 0)])
        chosen = slice(rows.splits[row], rows.splits[row + 1])
        if isinstance(examples, PairExamples | ChoiceExamples):  # one row per text or choice
            chosen = slice(rows.splits[row], rows.splits[row + len(own)])
        tokens = [tokenizer.vocab.tokens[token] for token in rows.tokens[chosen]]
        label = ""
        shown: RenderableType = _joined(tokens)
        if isinstance(examples, WordExamples):
            shown = _tagged(tokens, _tags(examples, rows, number, chosen), width - 2)
        elif isinstance(examples, QuestionExamples):
            start, end = rows.labels[row].tolist() if rows.labels is not None else (0, 0)
            shown = _answered(tokens, start, end, int(rows.seconds[row]))
            if examples.answers is not None:
                answers = examples.answers[number]
                label = f"answer: {answers[0].text}" if answers else "no answer"
        elif isinstance(examples, ChoiceExamples):
            if examples.labels is not None:
                label = examples.choices[number][examples.labels[number]]
        elif isinstance(examples, TextExamples) and examples.labels is not None:
            found = examples.labels[number]
            label = str(found) if are_scored(examples) else ", ".join(names_of(found)) or "no label"
        if isinstance(examples, TextExamples) and len(tokens) < rows.full_lengths[number]:
            label = f"{label} (truncated)".lstrip()
        yield Text()
        yield Text.assemble(examples.ids[number], "  ", (label, "bold"))
        yield Padding(shown, (0, 0, 0, 2))


def _token(token: str, style: str = "") -> tuple[str, str]:
    """Return a token with its style, dimmed for special tokens such as `[CLS]`."""
    is_special = token.startswith("[") and token.endswith("]") and len(token) > 2
    return token, _FAINT if is_special else style


def _joined(tokens: Sequence[str]) -> Text:
    shown = [Text.assemble(_token(token)) for token in tokens[:_SHOWN_TOKENS]]
    return Text(" ").join([*shown, *_more(len(tokens))])


def _more(num_tokens: int) -> list[Text]:
    """Return a note on the number of omitted tokens, if there are any."""
    number = num_tokens - _SHOWN_TOKENS
    return [Text(f"… and {how_many(number, 'more token')}", _FAINT)] if number > 0 else []


def _answered(tokens: Sequence[str], start: int, end: int, second: int) -> Text:
    """Return the question and the part of the context around the answer."""
    middle = start or second
    first, last = max(second, middle - _AROUND_ANSWER), max(middle, end) + 1 + _AROUND_ANSWER
    parts = [_token(token) for token in tokens[:second]]
    if first > second:
        parts.append((f"… {how_many(first - second, 'token')} …", _FAINT))
    for place, token in enumerate(tokens[first:last], first):
        is_answer = 0 < start <= place <= end
        marked = "»" * (is_answer and place == start) + token + "«" * (is_answer and place == end)
        parts.append((marked, "bold green") if is_answer else _token(token))
    if last < len(tokens):
        parts.append((f"… {how_many(len(tokens) - last, 'token')}", _FAINT))
    return Text(" ").join(Text.assemble(part) for part in parts)


def _tags(examples: WordExamples, rows: TaskRows, number: int, chosen: slice) -> list[str]:
    """Return the label of each token: the label of a word for its first token, otherwise ""."""
    if examples.labels is None or rows.word_ids is None:
        return [""] * (chosen.stop - chosen.start)
    labels = examples.labels[number]
    return ["" if word < 0 else labels[word] for word in rows.word_ids[chosen].tolist()]


def _tagged(tokens: Sequence[str], tags: Sequence[str], width: int) -> RenderableType:
    """Return tokens with their tags below, wrapped to `width`."""
    lines = [(Text(), Text())]
    for token, tag in list(zip(tokens, tags, strict=True))[:_SHOWN_TOKENS]:
        size = max(cell_len(token), cell_len(tag)) + 1
        if lines[-1][0] and lines[-1][0].cell_len + size > width:
            lines.append((Text(), Text()))
        lines[-1][0].append(set_cell_size(token, size), _token(token)[1])
        lines[-1][1].append(set_cell_size(tag, size), "cyan")
    return Group(*(line for pair in lines for line in pair), *_more(len(tokens)))
