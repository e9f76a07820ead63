"""`keras-bert-d2l embed`."""

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Model, OptionalOut, Texts, Truncate
from keras_bert_d2l.cli.input_output import PART, as_json_line, read_texts
from keras_bert_d2l.cli.loading import load_embedder
from keras_bert_d2l.cli.outputs import check_output
from keras_bert_d2l.progress import parts, without_bar

_DIGITS = 9  # enough to distinguish any two float32 numbers


def embed(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    out: OptionalOut = None,
    truncate: Truncate = False,
    batch_size: BatchSize = 32,
) -> None:
    """Encode texts as vectors that can be compared.

    A TextEmbedder and a model of sentence-transformers use their own pooling. A plain BERT uses
    the mean of the token vectors, normalized to length 1.

    For example:

    - `keras-bert-d2l embed --file lines.txt --model minilm --out vectors.npy`
    - `cat lines.txt | keras-bert-d2l embed - --model minilm > vectors.jsonl`

    Args:
        out: Output file: .npy for an array with one row per text, or .jsonl. [default: print JSON,
            one object per line]
    """
    check_output("out", out, inputs=[file], suffixes=[".npy", ".jsonl"])
    found = read_texts(texts, file)
    embedder = load_embedder(model)
    vectors = (
        vector
        for part in parts("Encoding", len(found), PART)
        for vector in kb.embed(embedder, found[part], batch_size=batch_size, truncate=truncate)
    )
    lines = (
        as_json_line({"text": text, "vector": vector.tolist()}, _DIGITS)
        for text, vector in zip(found, vectors, strict=True)
    )
    if out is None:
        for line in lines:
            with without_bar():
                print(line)
        return
    import numpy as np

    from keras_bert_d2l.data.tasks.examples import how_many
    from keras_bert_d2l.files import replacing_file

    with replacing_file(out) as temporary, open(temporary, "wb") as stream:
        if out.suffix == ".npy":
            np.save(stream, list(vectors))
        else:
            stream.writelines(f"{line}\n".encode() for line in lines)
    width = embedder.bert_config.num_hiddens
    print(f"{how_many(len(found), 'vector')} with {width} dimensions in {out}")
