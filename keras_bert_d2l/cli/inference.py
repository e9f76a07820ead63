"""Commands that ask a model."""

import dataclasses
import pathlib
from collections.abc import Collection
from typing import Annotated, Any

import numpy as np
import typer

from keras_bert_d2l.checkpoints.loading import HEADS
from keras_bert_d2l.cli.lines import (
    BatchSize,
    File,
    Json,
    PairedTexts,
    Texts,
    as_json_line,
    echo_json,
    in_parts,
    read_file,
    read_pairs,
    read_texts,
)
from keras_bert_d2l.cli.options import Model, NullThreshold, load
from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.inference.pretraining.fill_mask import fill_mask
from keras_bert_d2l.inference.pretraining.perplexity import (
    Perplexity,
    joint_perplexity,
    pseudo_perplexity,
)
from keras_bert_d2l.inference.pretraining.sentence_pairs import next_sentence_score
from keras_bert_d2l.inference.tasks.answers import answer
from keras_bert_d2l.inference.tasks.embeddings import embed, similar
from keras_bert_d2l.inference.tasks.labels import classify, regress, tag
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import SequenceRegressor, TextEmbedder
from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

_DIGITS = 9  # of the numbers of a vector: they tell one float32 from the next

TaskCheckpoint = Annotated[
    pathlib.Path,
    typer.Option(
        "--model", "-m", metavar="FOLDER", help="A checkpoint that was trained for the task."
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate", help="Cut texts that are too long for the model.  [default: an error]"
    ),
]


def answer_masks(
    texts: Texts = None,
    file: File = None,
    model: Model = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Answers for each mask.")] = 5,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Says which tokens a model expects behind the masks of a text, written [MASK].

    Example: `keras-bert-d2l fill-mask "paris is the [MASK] of france" --model runs/mine`
    """
    found = read_texts(texts, file)
    bert, tokenizer = _load(model)
    for part in in_parts(len(found)):
        answers = fill_mask(bert, tokenizer, found[part], top_k, batch_size=batch_size)
        for text, masks in zip(found[part], answers, strict=True):
            if as_json:
                rows = [[dataclasses.asdict(one) for one in predictions] for predictions in masks]
                echo_json({"text": text, "masks": rows})
                continue
            typer.echo(text)
            for predictions in masks:
                line = ", ".join(f"{one.token} {one.score:.3f}" for one in predictions)
                typer.echo(f"    {line}")


def embed_texts(
    texts: Texts = None,
    file: File = None,
    model: Model = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write: .npy, an array with a row for each text, or .jsonl.  "
            "[default: JSON lines on standard output]",
        ),
    ] = None,
    truncate: Truncate = False,
    batch_size: BatchSize = 32,
) -> None:
    """Makes texts vectors, by which they can be compared.

    Of the checkpoint of a TextEmbedder the vectors are as it was made; of a plain BERT the mean
    over the tokens, of the length 1.

    Examples:

    - `keras-bert-d2l embed --file lines.txt --model downloads/minilm --out vectors.npy`
    - `cat lines.txt | keras-bert-d2l embed - --model downloads/minilm > vectors.jsonl`
    """
    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise ValueError(f"--out must end in .npy or .jsonl. Received: {str(out)!r}.")
    found = read_texts(texts, file)
    embedder = _embedder(model)
    options: dict[str, Any] = {"batch_size": batch_size, "truncate": truncate}
    if out is None:
        for part in in_parts(len(found)):
            vectors = embed(embedder, found[part], **options)
            for text, vector in zip(found[part], vectors, strict=True):
                echo_json(_vector_record(text, vector), _DIGITS)
        return
    parts = [
        embed(embedder, found[part], **options) for part in in_parts(len(found), to_stdout=False)
    ]
    vectors = np.concatenate(parts)
    with replacing_file(out) as temporary, open(temporary, "wb") as stream:
        if out.suffix == ".npy":
            np.save(stream, vectors)
        else:
            for text, vector in zip(found, vectors, strict=True):
                line = as_json_line(_vector_record(text, vector), _DIGITS)
                stream.write(f"{line}\n".encode())
    typer.echo(f"{how_many(len(vectors), 'vector')} of {vectors.shape[1]} numbers in {out}")


def find_similar(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="What to look for.", show_default=False)
    ],
    texts: Texts = None,
    file: File = None,
    model: Model = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Texts to find.")] = 5,
    truncate: Truncate = False,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Finds the texts that are most like a query: their scores, their numbers, from 1, and they.

    Example: `keras-bert-d2l similar "how do i log in?" --file faq.txt --model downloads/minilm`
    """
    found = read_texts(texts, file)
    if not query.strip():
        raise ValueError("QUERY must be a text. Received: an empty one.")
    embedder = _embedder(model)
    options: dict[str, Any] = {"batch_size": batch_size, "truncate": truncate}
    width = len(str(len(found)))
    for match in similar(embedder, found, query, top_k, **options):
        if as_json:
            echo_json(dataclasses.asdict(match))
        else:
            typer.echo(f"{match.score:6.3f}  {match.index + 1:>{width}}  {match.text}")


def score_next_sentences(
    texts: PairedTexts = None,
    file: File = None,
    model: Model = None,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Says how likely the second text of a pair follows the first.

    Examples:

    - `keras-bert-d2l next-sentence "it began to rain" "she opened her umbrella" --model runs/mine`
    - `keras-bert-d2l next-sentence --file pairs.tsv --model runs/mine`
    """
    firsts, seconds = read_pairs(texts, file)
    bert, tokenizer = _load(model)
    for part in in_parts(len(firsts)):
        pairs = firsts[part], seconds[part]
        scores = next_sentence_score(bert, tokenizer, *pairs, batch_size).tolist()
        for a, b, score in zip(*pairs, scores, strict=True):
            if as_json:
                echo_json({"text": a, "text_b": b, "score": score})
            else:
                typer.echo(f"{score:.3f}  {a} | {b}")


def measure_perplexity(
    texts: Texts = None,
    file: File = None,
    model: Model = None,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Measures how well a model guesses each token of a text from all others.

    It is the pseudo-perplexity: among how many equally likely tokens the model guesses, on
    average. Beside it stands the number of tokens. Each token is masked once, so that a text of n
    tokens takes as long as n texts.

    Example: `keras-bert-d2l perplexity --file held_out.txt --model runs/mine`
    """
    found = read_texts(texts, file)
    bert, tokenizer = _load(model)
    measured: list[Perplexity] = []
    for part in in_parts(len(found)):
        answers = pseudo_perplexity(bert, tokenizer, found[part], batch_size)
        measured += answers
        for text, one in zip(found[part], answers, strict=True):
            if as_json:
                echo_json({"text": text, **dataclasses.asdict(one)})
            else:
                typer.echo(_perplexity_line(one, text))
    if not as_json and len(measured) > 1:
        typer.echo(_perplexity_line(joint_perplexity(measured), f"(all {len(measured):,} texts)"))


def classify_texts(
    model: TaskCheckpoint,
    texts: Texts = None,
    file: File = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs", help="The texts are pairs: two arguments, or lines with a tab between."
        ),
    ] = False,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Says which label a text or a pair of texts has, or, by a regression, which score.

    What is too long for the model is cut, as in training.

    Examples:

    - `keras-bert-d2l classify "what a film" "a bore" --model runs/reviews`
    - `keras-bert-d2l classify --pairs "a man sleeps" "a man is awake" --model runs/nli`
    - `cat lines.txt | keras-bert-d2l classify - --json --model runs/reviews`
    """
    firsts, seconds = read_pairs(texts, file) if pairs else (read_texts(texts, file), None)
    task = load(model, heads=()).model
    ask: Any = regress if isinstance(task, SequenceRegressor) else classify
    for part in in_parts(len(firsts)):
        texts_b = None if seconds is None else seconds[part]
        answers = ask(task, firsts[part], texts_b, batch_size=batch_size)
        for number, one in enumerate(answers, part.start):
            text = {"text": firsts[number]} | ({"text_b": seconds[number]} if seconds else {})
            if as_json:
                echo_json({**text, **dataclasses.asdict(one)})
            else:
                typer.echo(f"{_label_line(one)}  {' | '.join(text.values())}")


def tag_words(
    model: TaskCheckpoint,
    texts: Texts = None,
    file: File = None,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Gives every word of a text its label.

    Example: `keras-bert-d2l tag "Ada Lovelace lived in London." --model runs/names`
    """
    found = read_texts(texts, file)
    task: Any = load(model, heads=()).model
    for part in in_parts(len(found)):
        for text, words in zip(
            found[part], tag(task, found[part], batch_size=batch_size), strict=True
        ):
            if as_json:
                echo_json({"text": text, "tags": [dataclasses.asdict(one) for one in words]})
                continue
            typer.echo(text)
            widths = [
                max(map(len, cells), default=0)
                for cells in ([one.word for one in words], [one.label for one in words])
            ]
            for one in words:
                cells = f"{one.word:{widths[0]}}  {one.label:{widths[1]}}  {one.score:.3f}"
                typer.echo(f"    {cells}")


def answer_questions(
    model: TaskCheckpoint,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="A question and the text with its answer, or more pairs of them; **-** for "
            "standard input, a pair on a line, with a tab between. With --context, questions.",
            show_default=False,
        ),
    ] = None,
    file: File = None,
    context: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="The text that all questions are about, of any length."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Answers to each.")] = 1,
    null_threshold: NullThreshold = None,
    batch_size: BatchSize = 32,
    as_json: Json = False,
) -> None:
    """Finds the answers to questions in texts.

    Examples:

    - `keras-bert-d2l answer "who wrote it?" "ada wrote it in 1843" --model runs/squad`
    - `keras-bert-d2l answer "who wrote it?" "and when?" --context page.txt --model runs/squad`
    """
    if context is None:
        hint = " Give the text with the answer as well, or its file with --context."
        asked, contexts = read_pairs(texts, file, hint)
    else:
        asked = read_texts(texts, file)
        contexts = [read_file(context)] * len(asked)
    task: Any = load(model, heads=()).model
    if null_threshold is None:
        null_threshold = tuned_null_threshold(model)
    options: dict[str, Any] = {"top_k": top_k, "null_threshold": null_threshold}
    for part in in_parts(len(asked)):
        rows = answer(task, asked[part], contexts[part], batch_size=batch_size, **options)
        for question, found in zip(asked[part], rows, strict=True):
            if as_json:
                answers = [dataclasses.asdict(one) for one in found]
                echo_json({"question": question, "answers": answers})
                continue
            typer.echo(question)
            for one in found:
                typer.echo(f"    {one.score:.3f}  {' '.join(one.text.split()) or '(no answer)'}")


def _load(path: pathlib.Path | None, heads: Collection[str] = HEADS) -> tuple[Any, Any]:
    """Returns the model and the tokenizer of a checkpoint."""
    model, tokenizer, _ = load(path, heads)
    if tokenizer is None:
        raise ValueError("The checkpoint has no vocabulary, without which no text can be read.")
    return model, tokenizer


def _embedder(path: pathlib.Path | None) -> Any:
    """Returns the model that gives vectors, made once for all parts."""
    model, tokenizer = _load(path, heads=())
    return TextEmbedder(model, tokenizer=tokenizer) if isinstance(model, BERTModel) else model


def _vector_record(text: str, vector: np.ndarray) -> dict[str, Any]:
    return {"text": text, "vector": vector.tolist()}


def _perplexity_line(one: Perplexity, text: str) -> str:
    return f"{one.perplexity:10.2f}  {one.num_tokens:>6}  {text}"


def _label_line(one: Any) -> str:
    if hasattr(one, "labels"):
        return ", ".join(f"{label} {one.scores[label]:.3f}" for label in one.labels) or "-"
    return ", ".join(f"{name} {score:.3f}" for name, score in one.scores.items())
