"""`keras-bert-d2l tag`."""

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import BatchSize, File, Json, TaskModel, Texts
from keras_bert_d2l.cli.input_output import print_answers, read_texts
from keras_bert_d2l.cli.loading import load


def tag(
    *texts: Texts,
    model: TaskModel,
    file: File = None,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Predict the label of each word of a text, such as its part of speech.

    For example: `keras-bert-d2l tag "Ada Lovelace lived in London." --model runs/names`
    """
    found = read_texts(texts, file)
    task = load(model, heads=False).model
    print_answers(
        {"text": found},
        lambda part: kb.tag(task, found[part], batch_size=batch_size),
        _lines,
        "tags",
        json=json,
    )


def _lines(text: str, words: list["kb.Tag"]) -> str:
    width = max((len(one.word) for one in words), default=0)
    width_of_label = max((len(one.label) for one in words), default=0)
    rows = (f"{one.word:{width}}  {one.label:{width_of_label}}  {one.score:.3f}" for one in words)
    return "\n    ".join([text, *rows])
