"""Read the examples of a task from a file in any supported format, or from memory."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from keras_bert_d2l.checks import check_labels, check_that, shown
from keras_bert_d2l.contract.task import check_option, task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many
from keras_bert_d2l.data.tasks.readers.columns import Column, ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import InMemory, memory_file, read_file
from keras_bert_d2l.types import PathLike

_ROLES = ("text", "text_b", "negative", "choices", "label", "id")


def read_examples(
    task: str,
    data: PathLike | InMemory,
    *,
    text: Column | None = None,
    text_b: Column | None = None,
    negative: Column | None = None,
    choices: Column | None = None,
    label: Column | None = None,
    id: Column | None = None,
    multi_label: bool = False,
    separator: str = ",",
    header: bool | None = None,
    quotes: bool | None = None,
    labeled: bool | None = None,
    label_names: str | Sequence[str] | None = None,
) -> TaskExamples:
    r"""Read the examples of a task from a file or from memory.

    Files may be compressed (`.gz`, `.xz`). In memory, a data frame of pandas or polars, a table of
    pyarrow, a `Dataset` of Hugging Face, a list of dictionaries or a dictionary of lists is a table
    with named columns. A list, an array or a series of strings is a table of texts.

    - `"classify"` and `"regress"` read tables: `.tsv`, `.csv`, and JSON (one object per line, or
      one list of objects). `"classify"` also reads fastText lines of `__label__x text`, and a
      folder with one subfolder of `.txt` files per label.
    - `"tag"` reads CoNLL-U, CoNLL (one word with its labels per line and a blank line after each
      sentence), tables with lists of words and tags, and exports of doccano, Label Studio, Prodigy,
      NER Annotator and spaCy with spans of characters; in memory also the tuples of spaCy.
    - `"answer"` reads SQuAD 1.1 and 2.0, and tables with a question, a context and answers.
    - `"choose"` reads tables with a text, several choices, and the number (from 0 or 1), letter or
      text of the right one, such as SWAG, RACE and ARC. A `text_b`, such as the question about an
      article, becomes the beginning of every choice.
    - `"embed"` reads tables of pairs of similar texts, of pairs with a score, or of triplets: a
      text, a similar one and a different one, the negative.
    - `"rerank"` reads tables of queries with one or several texts each, as lists or in rows of
      their own: right and wrong ones (`negative`, `negative_1` and so on), or texts with labels.

    Columns are given by name, or by number (from 1) for files without a header: `text=4, label=2`.
    By default, columns with common names are used ("text", "sentence", "premise" and "hypothesis",
    "label", "score", "tags" and so on). A file without labels gives examples without labels.
    Unusable examples are counted by reason in the field `dropped` of the result.

    Args:
        task: `"classify"`, `"regress"`, `"tag"`, `"answer"`, `"choose"`, `"embed"`, `"rerank"`, or
            the name of a task that was registered.
        data: Path of the file or folder, or the data themselves. The number of a class in a
            `Dataset` becomes its name.
        text: Column of the texts, the words or the questions.
        text_b: Column of the second text of each pair, or of the contexts.
        negative: For `"embed"` and `"rerank"`, the column of the texts that do not belong to those
            of `text`.
        choices: For `"choose"`, the column with a list of choices, or one column per choice,
            separated by commas, such as `"ending0,ending1"`.
        label: Column of the labels, scores, tags (for CoNLL-U a name such as `"UPOS"`) or answers.
            For `"classify"`, also several columns separated by commas, such as `"toxic,obscene"`,
            each with 1 or 0 for the label that it is named after. By default, a table without a
            column of labels has its labels in all columns of 1 and 0.
        id: Column of example ids; by default, the line numbers. In a table with one word
            per row, a new sentence begins where the id changes or after an empty row.
        multi_label: Whether a text can have any number of labels, given as a list or a string.
            Columns, vectors and objects of 1 and 0 do not need it.
        separator: Separator of the labels in such a string.
        header: Whether the first row of a table contains column names. Detected by default.
        quotes: Whether quotes in a table enclose cells, as pandas and Excel write them, instead of
            being part of the text. Detected by default.
        labeled: True requires labels, False ignores them. By default, they are read if present.
            Pairs for `"embed"` may always lack scores; without labels, texts for `"rerank"` are
            right.
        label_names: The names of the labels in vectors of 1 and 0, such as `[0, 1, 0]`, in their
            order, as a list or separated by commas.

    Returns:
        `TextExamples`, `WordExamples`, `QuestionExamples`, `ChoiceExamples`, `PairExamples` or
        `RankExamples`.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: A column does not exist (the message lists the existing ones), labels are
            missing, the file has a different format, or it contains no usable example.

    Example:

        >>> import keras_bert_d2l as kb
        >>> with open("reviews.tsv", "w") as file:
        ...     print("text\tlabel", "A joy.\tgood", "A bore.\tbad", "\tbad", sep="\n", file=file)
        >>> examples = kb.read_examples("classify", "reviews.tsv")
        >>> examples.texts, examples.labels
        (('A joy.', 'A bore.'), ('good', 'bad'))
        >>> examples.dropped_in_words()
        ['1 dropped: empty text (first: line 4)']
        >>> kb.read_examples("classify", {"text": ["A joy."], "label": ["good"]}).labels
        ('good',)
    """
    record = task_named(task)
    if multi_label:
        check_option(task, "multi_label", multi_label)
    is_right = bool(separator) if multi_label else separator == ","
    check_that(is_right, "separator", "a text such as '|', and it needs `multi_label`", separator)
    columns = zip(_ROLES, (text, text_b, negative, choices, label, id), strict=True)
    given = {role: column for role, column in columns if column is not None}
    for role, column in given.items():
        if not isinstance(column, str | int):
            raise ValueError(f"`{role}` must name or number a column. Received: {shown(column)}.")
        if role != "id":
            check_option(task, role, column)
    names = label_names.split(",") if isinstance(label_names, str) else label_names or ()
    if names:
        check_option(task, "multi_label", True)
    names = check_labels([*map(str.strip, names)], 2) if names and labeled is not False else ()
    options = ReadingOptions(task, given, multi_label, separator, header, labeled, names)
    if isinstance(data, str | os.PathLike) and os.path.isdir(data):
        examples: TaskExamples = record.read_folder(pathlib.Path(data), options)
    else:
        if isinstance(data, str | os.PathLike):
            file = dataclasses.replace(read_file(pathlib.Path(data)), quotes=quotes)
        else:
            file = memory_file(data)
        if not file.text.strip():
            raise ValueError(f"{os.fspath(file.path)!r} is empty.")
        examples = record.read(file, options)
    name = examples.source
    if not len(examples):
        empty = "only a header" if examples.columns else "none"
        why = "; ".join(examples.dropped_in_words()) or empty
        raise ValueError(f"{name!r} must contain at least one usable example. Received: {why}.")
    if labeled and not examples.has_labels:
        named = examples.columns.get("label")
        raise ValueError(
            f"{name!r} must have {record.labels}. Received: {how_many(len(examples), 'example')} "
            "without any" + (f"; the column {shown(named)} is empty." if named else ".")
        )
    return examples
