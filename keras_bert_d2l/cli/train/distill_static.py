"""`keras-bert-d2l distill-static`."""

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Model, OutFolder, PositiveInt
from keras_bert_d2l.cli.input_output import check_teacher_stays, load_embedder, read_texts
from keras_bert_d2l.progress import stage


def distill_static(
    *,
    out: OutFolder,
    model: Model = OWN_MODEL,
    file: File = None,
    num_hiddens: PositiveInt | None = None,
    batch_size: BatchSize = 32,
) -> None:
    """Distill a text embedder into a table with one vector per token, which is much faster.

    The result is a TextEmbedder without an encoder, for `embed`, `similar`, `finetune embed`,
    `evaluate` and `export`. It is much better with --file: a few thousand unlabeled texts like
    those that it will process.

    For example: `keras-bert-d2l distill-static --model minilm --file lines.txt --out static`

    Args:
        num_hiddens: Width of the vectors. [default: 256, or that of the model if it is smaller]
    """
    from keras_bert_d2l.checkpoints.saving import check_target

    check_target(out)
    check_teacher_stays(out, model)
    texts = None if file is None else read_texts((), file)
    teacher = load_embedder(model)
    with stage("Distilling"):
        student = kb.distill_static(teacher, texts, num_hiddens=num_hiddens, batch_size=batch_size)
    kb.save_pretrained(student, out)
    print(f"Written to {out}")
