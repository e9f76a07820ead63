"""`keras-bert-d2l tag`."""

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Aggregate, BatchSize, File, Json, TaskModel, Texts
from keras_bert_d2l.cli.input_output import load, print_answers, read_texts


def tag(
    *texts: Texts,
    model: TaskModel,
    file: File = None,
    aggregate: Aggregate = "none",
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Predict the label of each word of a text, such as its part of speech, or the entities.

    For example:

    - `keras-bert-d2l tag "a man sleeps" --model runs/pos`
    - `keras-bert-d2l tag "Ada Lovelace lived in London." --model runs/names --aggregate first`
    """
    found = read_texts(texts, file)
    task = load(model, heads=False).model
    print_answers(
        {"text": found},
        lambda part: kb.tag(task, found[part], aggregate=aggregate, batch_size=batch_size),
        _lines,
        "tags" if aggregate == "none" else "entities",
        json=json,
    )


def _lines(text: str, found: "list[kb.Tag] | list[kb.Entity]") -> str:
    parts = [one.word if isinstance(one, kb.Tag) else one.text for one in found]
    labels, scores = [one.label for one in found], [one.score for one in found]
    width, width_of_label = (max(map(len, texts), default=0) for texts in (parts, labels))
    rows = (
        f"{part:{width}}  {label:{width_of_label}}  {score:.3f}"
        for part, label, score in zip(parts, labels, scores, strict=True)
    )
    return "\n    ".join([text, *rows])
