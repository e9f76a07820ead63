"""`keras-bert-d2l playground`."""

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import File, Model, Out, Texts
from keras_bert_d2l.cli.input_output import read_texts
from keras_bert_d2l.cli.loading import load
from keras_bert_d2l.cli.outputs import check_output
from keras_bert_d2l.progress import stage


def playground(*texts: Texts, file: File = None, model: Model = OWN_MODEL, out: Out) -> None:
    """Write an HTML page to try a model and look inside it, without a server.

    The page contains the model and needs no network. It shows the candidates for masked words,
    also after each block, the attention of every head, and the texts most similar to the typed
    one. For a model of more than 30 million weights, texts are required: their answers are
    computed in advance.

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
