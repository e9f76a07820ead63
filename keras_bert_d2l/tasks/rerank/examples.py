"""Queries with texts that answer them more or less well, read from a table.

N: queries, R: texts of all queries.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from keras_bert_d2l.checks import check_that, is_number
from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.examples import TaskExamples, are_strings, check_each, is_string
from keras_bert_d2l.data.tasks.readers.cells import NumberFormat, as_string, collect, unusable_if
from keras_bert_d2l.data.tasks.readers.columns import (
    ReadingOptions,
    find_columns,
    plain_name,
    with_likely_columns,
)
from keras_bert_d2l.data.tasks.readers.tables import Row, read_table
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.texts import TextExamples

if TYPE_CHECKING:
    from keras_bert_d2l.data.tasks.rows import Fields
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_NUMBERED = re.compile(r"(hard_)?negative_?\d+")  # columns with one wrong text each
RIGHT = 0.5  # smallest label of a text that answers its query


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RankExamples(TaskExamples):
    """Queries, each with texts and how relevant they are, from which a `Reranker` learns.

    Args:
        queries: N queries.
        documents: The texts for each query, at least one.
        labels: One number per text: 1 for a text that answers the query and 0 for others, grades,
            or the scores of a larger model. A text counts as right from 0.5. None if they are
            unknown.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: A query has no text, or its labels are not one finite number per text.

    Example:

        >>> import keras_bert_d2l as kb
        >>> examples = kb.RankExamples(
        ...     queries=["who wrote it?"], documents=[["ada did", "the end"]], labels=[[1, 0]]
        ... )
        >>> len(examples), examples.has_labels
        (1, True)
    """

    sequences: ClassVar[tuple[str, ...]] = ("queries", "documents", "labels")

    queries: tuple[str, ...]
    documents: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[float, ...], ...] | None = None
    task: str = "rerank"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(self, "queries", is_string, "a string")
        check_each(self, "documents", _are_texts, "a tuple of strings, at least one")
        check_each(self, "labels", _are_numbers, "a tuple of finite numbers, one per text")
        for texts, labels in zip(self.documents, self.labels or (), strict=False):
            check_that(len(texts) == len(labels), "labels", "one number per text", labels)

    @property
    def have_pairs_in_rows(self) -> bool:
        return True

    @property
    def pairs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The query of each of the R texts, and the texts."""
        pairs = zip(self.queries, self.documents, strict=True)
        queries = tuple(query for query, texts in pairs for _ in texts)
        return queries, tuple(itertools.chain(*self.documents))

    @property
    def has_wrong_texts(self) -> bool:
        """Whether a text does not answer its query."""
        return any(label < RIGHT for labels in self.labels or () for label in labels)

    def check_wrong_texts(self) -> None:
        """Raise `ValueError` if all texts are right, so that there is nothing to rank."""
        if not self.has_wrong_texts:
            raise ValueError(
                f"{self.source or 'The examples'}: each ranking needs wrong texts, with labels "
                f"below {RIGHT}. Received: only right texts. Add a column of negatives, or let "
                "`finetune` mine them with `mine_negatives` and `embedder`."
            )


def _are_texts(items: object) -> bool:
    return bool(items) and are_strings(items)


def _are_numbers(items: object) -> bool:
    if not isinstance(items, tuple | list):
        return False
    return all(is_number(item) and math.isfinite(item) for item in items)


def rank_examples(file: TextFile, options: ReadingOptions) -> RankExamples:
    """Read the queries of a table.

    A row has a query, one or several texts, and wrong texts or labels. Texts in `negative` have the
    label 0, and others 1 without a column of labels. With labels, rows with the same query become
    one example; the highest label of a repeated text counts. If a row has wrong texts and a label,
    which then is a margin, it remains an example of its own.

    Raises:
        ValueError: The file has a different format, or a column does not exist.
    """
    table = read_table(file, options.is_header)
    options = with_likely_columns(table, options)
    columns = find_columns(file, table, options)
    wrong = [] if columns.negative is None else [columns.negative]
    if "negative" not in options.columns:
        names = enumerate(table.columns or ())
        wrong += [place for place, name in names if _NUMBERED.fullmatch(plain_name(name))]
    is_labeled = columns.label is not None
    has_labels = any(row.text(columns.label).strip() for row in table.rows) or not is_labeled
    has_labels = has_labels and options.labeled is not False
    labels_of = (_cells(row.cell(columns.label)) for row in table.rows)
    numbers = NumberFormat.of(itertools.chain.from_iterable(labels_of if is_labeled else ()))

    def example(row: Row) -> dict[str, object]:
        query, right = row.text(columns.text).strip(), _cells(row.cell(columns.text_b))
        texts = (*right, *itertools.chain(*(_cells(row.cell(place)) for place in wrong)))
        unusable_if(not query, "empty query")
        unusable_if(not right or not all(text.strip() for text in texts), "empty text")
        labels = [1.0] * len(right) + [0.0] * (len(texts) - len(right))
        if is_labeled and has_labels:
            labels = _labels(row.cell(columns.label), labels, numbers)
        return {
            "ids": row.text(columns.id) or str(row.line),
            "queries": query,
            "documents": texts,
            "labels": tuple(labels) if has_labels else None,
        }

    rows = ((f"line {row.line:,}", row) for row in table.rows)
    named = columns.named(table)
    notes = (*table.notes, *numbers.notes())
    examples = collect(RankExamples, file, rows, example, notes, columns=named)
    are_margins = is_labeled and bool(wrong)
    return examples if are_margins or not examples.labels else _by_query(examples)


def _cells(cell: object) -> list[str]:
    """Return the texts of a cell, which may be a list."""
    return [*map(as_string, cell)] if isinstance(cell, list) else [as_string(cell)]


def _labels(cell: object, usual: Sequence[float], numbers: NumberFormat) -> list[float]:
    """Return one label per text: a list, or a single label for the texts that are not wrong."""
    found = [numbers.checked(label, "label") for label in _cells(cell)]
    if not isinstance(cell, list):
        return [found[0] * one for one in usual]
    unusable_if(len(found) != len(usual), "not one label per text")
    return found


def _by_query(examples: RankExamples) -> RankExamples:
    """Return one example per different query, with the id of its first one."""
    found: dict[str, tuple[str, dict[str, float]]] = {}
    columns = (examples.ids, examples.queries, examples.documents, examples.labels or ())
    for one, query, texts, labels in zip(*columns, strict=True):
        known = found.setdefault(query, (one, {}))[1]
        for text, label in zip(texts, labels, strict=True):
            known[text] = max(label, known.get(text, label))
    ids, rankings = zip(*found.values(), strict=True)
    documents, labels_of = map(tuple, rankings), (tuple(known.values()) for known in rankings)
    fields: dict[str, Any] = {"ids": ids, "queries": tuple(found)}
    fields |= {"documents": tuple(documents), "labels": tuple(labels_of)}
    return dataclasses.replace(examples, **fields)


def with_negatives(examples: RankExamples, negatives: Iterable[Sequence[str]]) -> RankExamples:
    """Return the examples with wrong texts: those of each right text, except right ones."""
    more, documents = iter(negatives), []
    for texts in examples.documents:
        wrong = itertools.chain(*itertools.islice(more, len(texts)))
        documents.append(tuple(dict.fromkeys((*texts, *wrong))))
    pairs = zip(examples.documents, documents, strict=True)
    sizes = ((len(right), len(texts)) for right, texts in pairs)
    labels = tuple(tuple(float(n < right) for n in range(size)) for right, size in sizes)
    return dataclasses.replace(examples, documents=tuple(documents), labels=labels)


def encoded_rankings(
    examples: RankExamples, tokenizer: "Tokenizer", options: EncodingOptions
) -> "Fields":
    """Encode each query with each of its texts, one row after the other."""
    import numpy as np

    from keras_bert_d2l.data.tasks.rows import encoded_texts

    texts, texts_b = examples.pairs
    pairs = TextExamples(texts=texts, texts_b=texts_b)
    fields = encoded_texts(pairs, tokenizer, options._replace(labels=None))
    counts = [*map(len, examples.documents)]
    full_lengths = np.maximum.reduceat(fields["full_lengths"], np.cumsum([0, *counts[:-1]]))
    labels = examples.labels and np.array([*itertools.chain(*examples.labels)], np.float32)
    return {
        **fields,
        "labels": labels,
        "examples": np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        "full_lengths": full_lengths,
        "num_truncated": int((full_lengths > options.max_len).sum()),
    }
