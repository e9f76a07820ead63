"""`keras-bert-d2l similar`."""

import sys

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Json, Model, Texts, TopK, Truncate
from keras_bert_d2l.cli.input_output import as_json_line, read_texts
from keras_bert_d2l.cli.loading import load_embedder


def similar(
    query: str,
    /,
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    top_k: TopK = 5,
    truncate: Truncate = False,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Find the texts most similar to a query. Prints score, line number (from 1) and text.

    The `index` in JSON counts from 0.

    For example: `keras-bert-d2l similar "how do i log in?" --file faq.txt --model minilm`

    Args:
        query: Text to search for.
    """
    found = read_texts(texts, file)
    if not query.strip():
        raise ValueError("QUERY must not be empty. Received: an empty text.")
    if model == OWN_MODEL:
        note = f"{OWN_MODEL} was not trained to compare texts. For better results: --model minilm"
        print(note, file=sys.stderr)
    embedder = load_embedder(model)
    width = len(str(len(found)))
    for match in kb.similar(
        embedder, query, found, top_k=top_k, batch_size=batch_size, truncate=truncate
    ):
        if json:
            print(as_json_line(match))
        else:
            print(f"{match.score:6.3f}  {match.index + 1:>{width}}  {match.text}")
