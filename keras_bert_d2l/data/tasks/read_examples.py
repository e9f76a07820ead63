"""A file of a task in, its examples out: nothing is left out unsaid."""

import os
import pathlib

from keras_bert_d2l.data.tasks.examples import TASKS, TaskExamples, how_many
from keras_bert_d2l.data.tasks.readers.columns import Column, Wanted
from keras_bert_d2l.data.tasks.readers.files import read_file
from keras_bert_d2l.data.tasks.readers.questions import question_examples
from keras_bert_d2l.data.tasks.readers.texts import folder_examples, text_examples
from keras_bert_d2l.data.tasks.readers.words import word_examples

_SOUGHT = {"classify": "labels", "regress": "scores", "tag": "labels", "answer": "answers"}


def read_examples(
    task: str,
    path: str | os.PathLike[str],
    *,
    text: Column | None = None,
    text_b: Column | None = None,
    label: Column | None = None,
    id: Column | None = None,
    multi_label: bool = False,
    separator: str = ",",
    header: bool | None = None,
    labeled: bool | None = None,
) -> TaskExamples:
    """Reads the examples of a task from a file, which may be packed (`.gz`, `.xz`).

    - `"classify"`, `"regress"`: a table: `.tsv` (tabs separate, quotes are text), `.csv` (quotes
      quote) or JSON objects, one a line or in a list; to classify also fastText's lines of
      `__label__x text`, and a folder with a folder of `.txt` files for each label.
    - `"tag"`: CoNLL-U; CoNLL, that is a word and its labels in each line and a blank line after
      each sentence; or a table with lists of words and tags.
    - `"answer"`: SQuAD 1.1 or 2.0; or a table with a question, a context and answers.

    Columns are named, or counted from 1 on, as where a file has no header: `text=4, label=2`.
    Where none is named, one with a usual name is taken ("text", "sentence", "premise" and
    "hypothesis", "label", "score", "tags" and the like); without a header the texts are the one or
    two columns whose cells hold spaces, if one column is left for labels. A file without labels has
    examples without labels. Examples that cannot be used are counted by reason, `dropped` of the
    result.

    Args:
        task: `"classify"`, `"regress"`, `"tag"` or `"answer"`.
        path: The file, or the folder.
        text: The column of the texts (words; questions).
        text_b: That of the second texts of pairs (contexts).
        label: That of the labels (scores; tags, in CoNLL-U by name such as `"UPOS"`; answers).
            With `multi_label` also several with commas between, `"toxic,obscene"`, each of which
            holds 1 or 0 for the label of its name.
        id: That of names for the examples; otherwise these are lines. A table with a word in each
            row has sentences where it changes, or empty rows between them.
        multi_label: Whether a text can have any number of labels: a list, or a string.
        separator: What stands between the labels in such a string.
        header: Whether a table's first line has the names of its columns; None: it is looked at.
        labeled: Whether there must be labels; None: there may be, False: they are not looked at.

    Returns: `TextExamples`, `WordExamples` or `QuestionExamples`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A column is not there (the message says which are), labels are missing, the
            file is not what its kind has to be, or none of its examples can be used.
    """
    path = pathlib.Path(path)
    if task not in TASKS:
        raise ValueError(
            f"`task` must be one of {', '.join(map(repr, TASKS))}. Received: {task!r}."
        )
    if multi_label and (task != "classify" or not separator):
        raise ValueError(
            "`multi_label` is for the task 'classify', with a `separator`. Received: "
            f"task={task!r}, separator={separator!r}."
        )
    wanted = Wanted(task, text, text_b, label, id, labeled, header)
    examples: TaskExamples
    if path.is_dir():
        examples = folder_examples(path, wanted)
    elif not path.exists():
        raise FileNotFoundError(f"No file {os.fspath(path)!r}.")
    else:
        file = read_file(path)
        if not file.text.strip():
            raise ValueError(f"{os.fspath(path)!r} has nothing in it.")
        if task == "tag":
            examples = word_examples(file, wanted)
        elif task == "answer":
            examples = question_examples(file, wanted)
        else:
            examples = text_examples(file, wanted, multi_label, separator)
    if not len(examples):
        empty = "it has no folders of text files" if path.is_dir() else "there is only its header"
        why = "; ".join(examples.dropped_in_words()) or empty
        raise ValueError(f"There is no example to use in {os.fspath(path)!r}: {why}.")
    if labeled and not examples.has_labels:
        column = examples.columns.get("label")
        raise ValueError(
            f"There must be {_SOUGHT[task]} in {os.fspath(path)!r}. Received: "
            f"{how_many(len(examples), 'example')} without any"
            + (f", column {column!r} holds none." if column else ".")
        )
    return examples
