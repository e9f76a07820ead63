"""Commands that query any BERT: masked words, text vectors and the playground."""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import (
    BatchSize,
    File,
    Json,
    Model,
    OptionalOut,
    Out,
    PositiveInt,
    Texts,
    TopK,
    Truncate,
    TruncateDim,
    refuse,
)
from keras_bert_d2l.cli.input_output import (
    PART,
    as_json_line,
    check_output,
    load,
    print_answers,
    read_texts,
)
from keras_bert_d2l.progress import parts, stage, without_bar

_DIGITS = 9  # enough to distinguish any two float32 numbers


def fill_mask(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    top_k: TopK = 5,
    truncate: Truncate = True,
    json: Json = False,
) -> None:
    """Predict the token for each [MASK] in a text.

    For example: `keras-bert-d2l fill-mask "paris is the [MASK] of france" --model runs/mine`
    """
    found = read_texts(texts, file)
    bert = load(model).model
    print_answers(
        found,
        lambda part: kb.fill_mask(bert, found[part], top_k=top_k, truncate=truncate),
        lambda text, masks: "\n    ".join([text, *map(_mask_line, masks)]),
        lambda masks: {"masks": masks},
        json=json,
    )


def _mask_line(predictions: list["kb.Prediction"]) -> str:
    return ", ".join(f"{one.token} {one.score:.3f}" for one in predictions)


def perplexity(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    truncate: Truncate = True,
    json: Json = False,
) -> None:
    """Measure how well a model predicts the tokens of a text.

    Each token is predicted from the other tokens. Prints the pseudo-perplexity, the number of
    tokens and the text. For several texts, the last line has the values of all texts together. A
    pseudo-perplexity of 10 means that the model is as uncertain as if it chose among 10 equally
    likely tokens. Each token is masked once, so a text of n tokens costs as much as n texts.

    For example: `keras-bert-d2l perplexity --file held_out.txt --model runs/mine`
    """
    found = read_texts(texts, file)
    bert = load(model).model
    measured: list[kb.Perplexity] = []

    def ask(part: slice) -> list["kb.Perplexity"]:
        answers = kb.pseudo_perplexity(bert, found[part], truncate=truncate)
        measured.extend(answers)
        return answers

    print_answers(found, ask, _perplexity_line, dataclasses.asdict, json=json)
    if len(measured) > 1:
        from keras_bert_d2l.inference.perplexity import joint_perplexity

        joint = joint_perplexity(measured)
        if json:
            print(as_json_line({"num_texts": len(measured), **dataclasses.asdict(joint)}))
        else:
            print(_perplexity_line(f"(all {len(measured):,} texts)", joint))


def _perplexity_line(text: str, one: "kb.Perplexity") -> str:
    return f"{one.perplexity:10.2f}  {one.num_tokens:>6}  {text}"


def embed(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    out: OptionalOut = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: TruncateDim = None,
    sparse: Annotated[bool, Parameter(negative="")] = False,
    truncate: Truncate = True,
    batch_size: BatchSize = 32,
) -> None:
    """Encode texts as vectors.

    A TextEmbedder and a model of sentence-transformers use their own pooling and prompts. A plain
    BERT uses the mean of the token vectors, normalized to length 1.

    With --sparse, a masked language model such as SPLADE prints one JSON object per text, with the
    ids of tokens as `indices`, their weights as `values`, and `tokens`.

    For example:

    - `keras-bert-d2l embed --file lines.txt --model minilm --out vectors.npy`
    - `cat lines.txt | keras-bert-d2l embed - --model minilm > vectors.jsonl`
    - `keras-bert-d2l embed "who wrote it?" --model bge-small --prompt-name query`

    Args:
        out: Output file: .npy, for an array with one row per text.
            [default: print JSON, one object per line]
        prompt_name: Name of the prompt of the model to put before each text, such as query or
            document. [default: the default prompt of the model]
        prompt: Text to put before each text, instead of a prompt of the model.
        sparse: Print sparse vectors.
    """
    prompts = {"prompt_name": prompt_name, "prompt": prompt, "truncate_dim": truncate_dim}
    if sparse:
        refuse("vectors without --sparse", out=out, **prompts)
        found, bert = read_texts(texts, file), load(model).model
        for one in kb.embed_sparse(bert, found, truncate=truncate, batch_size=batch_size):
            print(as_json_line(dataclasses.asdict(one)))
        return
    check_output("out", out, inputs=[file], suffixes=[".npy"])
    found = read_texts(texts, file)
    embedder = load(model, as_embedder=True).model
    how: dict[str, Any] = {"batch_size": batch_size, "truncate": truncate, **prompts}
    vectors = (
        vector
        for part in parts("Encoding", len(found), PART)
        for vector in kb.embed(embedder, found[part], **how)
    )
    if out is None:
        for text, vector in zip(found, vectors, strict=True):
            with without_bar():
                print(as_json_line({"text": text, "vector": vector.tolist()}, _DIGITS))
        return
    import numpy as np

    from keras_bert_d2l.data.tasks.examples import how_many
    from keras_bert_d2l.files import replacing_file

    rows = np.array(list(vectors))
    # If it can only write to the stream, NumPy uses the system, and hides why it cannot write.
    with replacing_file(out) as temporary, open(temporary, "w+b") as stream:
        np.save(stream, rows)
    print(f"{how_many(len(found), 'vector')} with {rows.shape[1]} dimensions in {out}")


def similar(
    query: str,
    /,
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    top_k: TopK = 5,
    vectors: Path | None = None,
    truncate_dim: TruncateDim = None,
    truncate: Truncate = True,
    json: Json = False,
) -> None:
    """Find the texts most similar to a query.

    Prints the score, the line number (from 1) and the text. The `index` in JSON counts from 0. The
    query gets the prompt of the model for queries, and the texts that for documents.

    For example:

    - `keras-bert-d2l similar "how do i log in?" --file faq.txt --model minilm`
    - `keras-bert-d2l embed --file faq.txt --model bge-small --prompt-name document --out faq.npy`,
      then `keras-bert-d2l similar "log in" --file faq.txt --model bge-small --vectors faq.npy`

    Args:
        query: Text to search for.
        vectors: File, .npy, with the vectors of the texts, which `embed --prompt-name document
            --out` writes. They are read instead of encoding the texts.
    """
    found = read_texts(texts, file)
    if not query.strip():
        raise ValueError("QUERY must not be empty. Received: an empty text.")
    if model == OWN_MODEL:
        note = f"{OWN_MODEL} was not trained to compare texts. Better results: --model bge-small"
        print(note, file=sys.stderr)
    embedder = load(model, as_embedder=True).model
    options: dict[str, Any] = {"top_k": top_k, "truncate": truncate, "truncate_dim": truncate_dim}
    if vectors is not None:
        import numpy as np

        options["vectors"] = np.load(vectors)
    _print_ranked(kb.similar(embedder, query, found, **options), len(found), json=json)


def rerank(
    query: str,
    /,
    *texts: Texts,
    file: File = None,
    model: Model,
    top: PositiveInt | None = None,
    batch_size: BatchSize = 32,
    truncate: Truncate = True,
    json: Json = False,
) -> None:
    """Sort texts by how well they answer a query.

    Prints the score, the line number (from 1) and the text. The `index` in JSON counts from 0.

    For example: `keras-bert-d2l rerank "how do i log in?" --file faq.txt --model ms-marco-minilm`

    Args:
        query: Text to answer.
        top: Number of texts to print. [default: all]
    """
    found = read_texts(texts, file)
    if not query.strip():
        raise ValueError("QUERY must not be empty. Received: an empty text.")
    options: dict[str, Any] = {"top_k": top, "batch_size": batch_size, "truncate": truncate}
    _print_ranked(kb.rerank(model, query, found, **options), len(found), json=json)


def _print_ranked(ranked: Iterable["kb.Match | kb.Ranked"], number: int, *, json: bool) -> None:
    width = len(str(number))
    for one in ranked:
        if json:
            print(as_json_line(one))
        else:
            print(f"{one.score:6.3f}  {one.index + 1:>{width}}  {one.text}")


def playground(*texts: Texts, file: File = None, model: Model = OWN_MODEL, out: Out) -> None:
    """Write an HTML page to try a model and look inside it.

    The page contains the model and needs no network or server. It shows the candidates for masked
    words, also after each block, the attention of every head, and the texts most similar to the
    typed one. For a model of more than 30 million weights, one of BERT's relatives or a tokenizer
    other than WordPiece, texts are required: their answers are computed in advance.

    For example:

    - `keras-bert-d2l playground --model runs/mine --out page.html`
    - `keras-bert-d2l playground --file lines.txt --model bert-base-uncased --out page.html`

    Args:
        out: Output file.
    """
    check_output("out", out, suffixes=[".html"])
    found = read_texts(texts, file) if texts or file else None
    loaded = load(model, as_embedder=None)
    with stage("Writing the page"):
        page = kb.playground(loaded.model, out, texts=found)
    print(f"{page.num_bytes / 1e6:.1f} MB in {out}")
