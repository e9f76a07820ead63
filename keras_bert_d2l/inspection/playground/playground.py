"""`playground`: an HTML page that shows what a model predicts and what it attends to."""

import base64
import gzip
import json
from collections.abc import Sequence
from typing import cast

import numpy as np

from keras_bert_d2l.checks import shown
from keras_bert_d2l.files import write_text
from keras_bert_d2l.inference.asked_model import asked_model, model_at
from keras_bert_d2l.inference.batching import text_list
from keras_bert_d2l.inference.tasks.embeddings import embed
from keras_bert_d2l.inspection.playground.model_data import (
    page_length,
    page_weights,
    tokenizer_data,
    weight_bytes,
)
from keras_bert_d2l.inspection.playground.stored_answers import NUM_CANDIDATES, stored_answers
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import TextEmbedder
from keras_bert_d2l.pages import Page, render
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import ConfigDict, PathLike

_MOST_WEIGHTS = 30_000_000  # in a page of at most 40 MB
SCRIPTS = ("unpack.js", "tokenizer.js", "encoder.js", "answers.js", "drawing.js", "page.js")


def playground(
    model: BERTModel | TextEmbedder | PathLike,
    path: PathLike | None = None,
    *,
    texts: Sequence[str] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Page:
    """Write a page to try a model and look inside it, without a server.

    The page is one HTML file that contains the model and needs no network. Type a text, click a
    word to mask it, and see the candidates for the word; the candidates after each block (the
    MLM head applied to its hidden states, the "logit lens"); the attention of every head; and the
    most similar of `texts`. Weights are rounded to 8 bits, with one scale per row, and large token
    embeddings to 6 bits.

    A model of more than 30 million weights is not put into the page. Its answers are computed in
    advance, for each of `texts` and each text with one word masked, with weights that are not
    rounded.

    Source: nostalgebraist 2020 (logit lens); Vig 2019 (the views of the attention).

    Args:
        model: The model, or the path or the name of its checkpoint. Without a trained MLM head,
            the page has no candidates.
        path: File to write. `None`: write no file; a notebook shows the result.
        texts: Texts to choose from and to compare with; required for large models.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.

    Returns: the page.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task, is quantized or is too large to be used
            without `texts`, `texts` is not a list of texts, or the tokenizer is missing or does
            not match the model.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.playground(model, "page.html", texts=["the cat", "the cat sat"], tokenizer=tokenizer)
    ```
    """
    model, tokenizer = asked_model(
        cast(BERTModel, model_at(model)), BERTModel, TextEmbedder, tokenizer=tokenizer
    )
    found = [] if texts is None else text_list("texts", texts)
    weights = page_weights(model)
    num_weights = sum(value.size for value in weights.values())
    is_large = num_weights > _MOST_WEIGHTS
    if is_large and not found:
        raise ValueError(
            f"`texts` is required for a model of more than {_MOST_WEIGHTS / 1e6:.0f} million "
            f"weights, because its answers are computed in advance. Received: texts={shown(texts)} "
            f"and a model of {num_weights / 1e6:.0f} million weights."
        )
    page = _page(model, tokenizer, found, {} if is_large else weights)
    if path is not None:
        write_text(path, page.html)
    return page


def _page(
    model: BERTModel | TextEmbedder,
    tokenizer: Tokenizer,
    texts: list[str],
    weights: dict[str, np.ndarray],
) -> Page:
    """Return the page of a model with these weights or, without weights, with stored answers."""
    is_embedder = isinstance(model, TextEmbedder)
    data: ConfigDict = {
        "config": {**model.bert_config.to_dict(), "max_len": page_length(model)},
        "numWeights": model.count_params(),
        "hasHead": not is_embedder and "mlm" in model.usable_heads,
        "numCandidates": min(NUM_CANDIDATES, len(tokenizer.vocab)),
        "maskToken": tokenizer.vocab.to_tokens(tokenizer.vocab.mask_id),
        "pooling": model.pooling if is_embedder else "mean",
        "texts": texts,
    }
    if weights:
        data["tokenizer"] = tokenizer_data(tokenizer)
    else:
        data["answers"] = list(stored_answers(model, tokenizer, texts))
    if texts:
        vectors = embed(model, texts, tokenizer=tokenizer, truncate=True)
        weights = {**weights, "vectors": vectors}
    data["shapes"] = {name: value.shape for name, value in weights.items()}
    floats, integers = weight_bytes(weights)
    return render(
        "inspection/playground/page/page.html.jinja",
        "BERT playground",
        styles=["inspection/playground/page/page.css"],
        scripts=[f"inspection/playground/page/{name}" for name in SCRIPTS],
        data={
            "data": _packed(json.dumps(data).encode()),
            "floats": _packed(floats),
            "integers": _packed(integers),
        },
    )


def _packed(data: bytes) -> str:
    """Return compressed data in base64; `unpack.js` reads it."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode()
