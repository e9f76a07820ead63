"""`keras-bert-d2l next-sentence`."""

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Json, Model, PairedTexts
from keras_bert_d2l.cli.input_output import print_answers, read_pairs
from keras_bert_d2l.cli.loading import load


def next_sentence(
    *texts: PairedTexts,
    file: File = None,
    model: Model = OWN_MODEL,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Estimate the probability that the second text of a pair follows the first.

    For example:

    - `keras-bert-d2l next-sentence "it began to rain" "she opened her umbrella" --model runs/mine`
    - `keras-bert-d2l next-sentence --file pairs.tsv --model runs/mine`
    """
    firsts, seconds = read_pairs(texts, file)
    bert = load(model).model

    def ask(part: slice) -> list[float]:
        pairs = firsts[part], seconds[part]
        return kb.next_sentence_score(bert, *pairs, batch_size=batch_size).tolist()

    print_answers(
        {"text": firsts, "text_b": seconds},
        ask,
        lambda a, b, score: f"{score:.3f}  {a} | {b}",
        "score",
        json=json,
    )
