"""`keras-bert-d2l classify`."""

from typing import Any

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import BatchSize, File, Flag, Json, TaskModel, Texts
from keras_bert_d2l.cli.input_output import load, print_answers, read_pairs, read_texts
from keras_bert_d2l.tasks.classify.task import TextTask
from keras_bert_d2l.tasks.task import tasks


def classify(
    *texts: Texts,
    model: TaskModel,
    file: File = None,
    pairs: Flag = False,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Predict the label or the score of a text or a pair of texts.

    Texts that are too long for the model are truncated, as in training.

    For example:

    - `keras-bert-d2l classify "what a film" "a bore" --model runs/reviews`
    - `keras-bert-d2l classify --pairs "a man sleeps" "a man is awake" --model runs/nli`
    - `cat lines.txt | keras-bert-d2l classify - --json --model runs/reviews`

    Args:
        pairs: Read pairs of texts: two arguments per pair, or one tab-separated pair per line.
    """
    sides = read_pairs(texts, file) if pairs else (read_texts(texts, file),)
    loaded = load(model, heads=False).model
    known = tasks().get(getattr(loaded, "task", ""))
    ask: Any = known.ask if isinstance(known, TextTask) else kb.classify  # rejects the others

    print_answers(
        dict(zip(("text", "text_b"), sides, strict=False)),
        lambda part: ask(loaded, *(side[part] for side in sides), batch_size=batch_size),
        lambda *found: f"{_line(found[-1])}  {' | '.join(found[:-1])}",
        json=json,
    )


def _line(one: "kb.Classification | kb.Regression") -> str:
    if isinstance(one, kb.Classification):
        return ", ".join(f"{label} {one.scores[label]:.3f}" for label in one.labels) or "-"
    return ", ".join(f"{name} {score:.3f}" for name, score in one.scores.items())
