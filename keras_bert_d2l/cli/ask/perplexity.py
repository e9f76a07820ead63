"""`keras-bert-d2l perplexity`."""

import dataclasses

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Json, Model, Texts
from keras_bert_d2l.cli.input_output import as_json_line, print_answers, read_texts
from keras_bert_d2l.cli.loading import load


def perplexity(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Measure how well a model predicts each token of a text from the other tokens.

    Prints the pseudo-perplexity, the number of tokens and the text. For several texts, the last
    line has the values of all texts together. A pseudo-perplexity of 10 means that the model is as
    uncertain as if it chose among 10 equally likely tokens. Each token is masked once, so a text of
    n tokens costs as much as n texts.

    For example: `keras-bert-d2l perplexity --file held_out.txt --model runs/mine`
    """
    found = read_texts(texts, file)
    bert = load(model).model
    measured: list[kb.Perplexity] = []

    def ask(part: slice) -> list["kb.Perplexity"]:
        answers = kb.pseudo_perplexity(bert, found[part], batch_size=batch_size)
        measured.extend(answers)
        return answers

    print_answers({"text": found}, ask, _line, json=json)
    if len(measured) > 1:
        from keras_bert_d2l.inference.pretraining.perplexity import joint_perplexity

        joint = joint_perplexity(measured)
        if json:
            print(as_json_line({"num_texts": len(measured), **dataclasses.asdict(joint)}))
        else:
            print(_line(f"(all {len(measured):,} texts)", joint))


def _line(text: str, one: "kb.Perplexity") -> str:
    return f"{one.perplexity:10.2f}  {one.num_tokens:>6}  {text}"
