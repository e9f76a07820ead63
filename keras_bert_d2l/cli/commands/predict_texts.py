"""Commands that apply a fine-tuned model to some texts: `classify` to `choose`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import (
    Aggregate,
    BatchSize,
    File,
    Flag,
    Json,
    NullThreshold,
    TaskModel,
    Texts,
    TopK,
    Truncate,
)
from keras_bert_d2l.cli.input_output import load, print_answers, read_file, read_pairs, read_texts
from keras_bert_d2l.tasks.classify.task import TextTask
from keras_bert_d2l.tasks.registry import tasks


def classify(
    *texts: Texts,
    model: TaskModel,
    file: File = None,
    pairs: Flag = False,
    truncate: Truncate = True,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Predict the label or the score of a text or a pair of texts.

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

    def line(*texts: str, one: "kb.Classification | kb.Regression") -> str:
        names = one.labels if isinstance(one, kb.Classification) else one.scores
        return f"{_scores(one.scores, names) or '-'}  {' | '.join(texts)}"

    options = {"batch_size": batch_size, "truncate": truncate}
    print_answers(
        dict(zip(("text", "text_b"), sides, strict=False)),
        lambda part: ask(loaded, *(side[part] for side in sides), **options),
        lambda *found: line(*found[:-1], one=found[-1]),
        json=json,
    )


def _scores(scores: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {scores[name]:.3f}" for name in names)


def zero_shot(
    *texts: Texts,
    labels: Annotated[list[str], Parameter(name="--label", negative="")],
    model: TaskModel,
    file: File = None,
    template: str = "This example is {}.",
    multi_label: Flag = False,
    truncate: Truncate = True,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Classify texts into any labels, with a model for natural language inference (NLI).

    Prints the probability of each label, highest first.

    For example:
    `keras-bert-d2l zero-shot "the match ended 3 : 1" --label sports --label politics -m runs/nli`

    Args:
        labels: A label to choose from. Repeat the option for each label.
        template: Hypothesis about the text, with {} in place of the label.
        multi_label: Judge each label alone, because a text can have any number of them.
    """
    found = read_texts(texts, file)
    task = load(model, heads=False).model

    options: dict[str, Any] = {"template": template, "multi_label": multi_label}
    options["truncate"] = truncate

    def line(text: str, one: "kb.Classification") -> str:
        ranked = sorted(one.scores, key=one.scores.__getitem__, reverse=True)
        return f"{_scores(one.scores, ranked)}  {text}"

    print_answers(
        {"text": found},
        lambda part: kb.zero_shot(task, found[part], labels, batch_size=batch_size, **options),
        line,
        json=json,
    )


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
        _word_lines,
        "tags" if aggregate == "none" else "entities",
        json=json,
    )


def _word_lines(text: str, found: "list[kb.Tag] | list[kb.Entity]") -> str:
    parts = [one.word if isinstance(one, kb.Tag) else one.text for one in found]
    labels, scores = [one.label for one in found], [one.score for one in found]
    width, width_of_label = (max(map(len, texts), default=0) for texts in (parts, labels))
    rows = (
        f"{part:{width}}  {label:{width_of_label}}  {score:.3f}"
        for part, label, score in zip(parts, labels, scores, strict=True)
    )
    return "\n    ".join([text, *rows])


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

    def line(one: "kb.FoundAnswer") -> str:
        return f"{one.score:.3f}  {' '.join(one.text.split()) or '(no answer)'}"

    print_answers(
        {"question": asked},
        lambda part: kb.answer(task, asked[part], contexts[part], batch_size=batch_size, **options),
        lambda question, found: "\n    ".join([question, *map(line, found)]),
        "answers",
        json=json,
    )


def choose(
    text: str,
    *choices: Annotated[str, Parameter(name="CHOICE")],
    model: TaskModel,
    truncate: Truncate = True,
    json: Json = False,
) -> None:
    """Find the choice that fits a text best. For a file of texts, use `predict`.

    For example: `keras-bert-d2l choose "she opens" "the door" "the sky" --model runs/swag`

    Args:
        text: The text, for example the beginning of a story.
        choices: At least two choices.
    """
    task = load(model, heads=False).model
    print_answers(
        {"text": [text]},
        lambda _: kb.choose(task, [text], [choices], truncate=truncate),
        lambda _, found: f"{found.score:.3f}  {found.index + 1}: {found.choice}",
        json=json,
    )
