"""`keras-bert-d2l answer`."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import BatchSize, File, Json, NullThreshold, TaskModel, TopK
from keras_bert_d2l.cli.input_output import load, print_answers, read_file, read_pairs, read_texts


def answer(
    *texts: Annotated[str, Parameter(name="TEXT")],
    model: TaskModel,
    file: File = None,
    context: Path | None = None,
    top_k: TopK = 1,
    null_threshold: NullThreshold = None,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Find the answers to questions in texts.

    For example:

    - `keras-bert-d2l answer "who wrote it?" "ada wrote it in 1843" --model runs/squad`
    - `keras-bert-d2l answer "who wrote it?" "and when?" --context page.txt --model runs/squad`

    Args:
        texts: Questions, each followed by the text that answers it, or - to read one pair per line,
            separated by a tab, from standard input. With --context, only questions.
        context: File with the text, of any length, that all questions are about.
    """
    if context is None:
        hint = " Add the text that contains the answer, or specify its file with --context."
        asked, contexts = read_pairs(texts, file, hint)
    else:
        asked = read_texts(texts, file)
        contexts = [read_file(context)] * len(asked)
    task = load(model, heads=False).model
    if null_threshold is None:
        from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

        null_threshold = tuned_null_threshold(model)
    options: dict[str, Any] = {"top_k": top_k, "null_threshold": null_threshold}
    print_answers(
        {"question": asked},
        lambda part: kb.answer(task, asked[part], contexts[part], batch_size=batch_size, **options),
        lambda question, found: "\n    ".join([question, *map(_line, found)]),
        "answers",
        json=json,
    )


def _line(found: "kb.FoundAnswer") -> str:
    return f"{found.score:.3f}  {' '.join(found.text.split()) or '(no answer)'}"
