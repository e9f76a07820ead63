"""A task that this module defines: which of two sentences comes first."""

import dataclasses
import json
import types

import keras
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.cli import main
from keras_bert_d2l.cli.commands.finetune import _tasks_in_words
from keras_bert_d2l.contract import registry
from keras_bert_d2l.data.tasks.encoding import encoded_texts
from keras_bert_d2l.data.tasks.texts import text_examples
from keras_bert_d2l.inference.asking import text_outputs
from keras_bert_d2l.inference.evaluation import Mistake, evaluation_of
from keras_bert_d2l.models.keras_objects import Training
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.signatures.signature import TEXT, TEXT_B
from keras_bert_d2l.signatures.texts import TextSignatures

ORDERS = ("right", "swapped")
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] he wakes sleeps up . then she eats and leaves".split()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SentencePairs(kb.TextExamples):
    task: str = "order"


@keras.saving.register_keras_serializable("tests")
class SentenceOrderer(TaskModel):
    task, pools, fields, labels = "order", True, ("pooling",), ORDERS

    def __init__(self, bert, **options):
        super().__init__(bert, head=2, **options)

    def default_training(self, class_weights):
        return Training(WeightedCrossEntropy(), label_metrics())


class OrderSignatures(TextSignatures):
    specs = (TEXT, TEXT_B)

    def answer(self, *texts):
        batch, truncated = self.batches(*texts)
        return {"is_swapped": self.run(**batch)["logits"][:, 1] > 0, "truncated": truncated}


class OrderTask(kb.Task):
    """The order of two sentences."""

    name, examples, model, signatures = "order", (SentencePairs,), SentenceOrderer, OrderSignatures
    columns = types.MappingProxyType({"text": "first", "text_b": "second", "label": "order"})
    needs_text_b = True
    monitors = ("val_share_in_order",)
    encode = staticmethod(encoded_texts)

    def read(self, file, options):
        return text_examples(file, options, SentencePairs)

    def _orders(self, model, examples, batch_size, max_len):
        texts = examples.texts, examples.texts_b
        outputs = text_outputs(model, model.tokenizer, *texts, batch_size, max_len)
        return [ORDERS[int(logits.argmax())] for logits in outputs]

    def records(self, model, examples, options):
        for name, order in zip(examples.ids, self._orders(model, examples, **options), strict=True):
            yield {"id": name, "order": order}

    def evaluate(self, model, examples, options):
        found = self._orders(model, examples, options["batch_size"], options["max_len"])
        rows = zip(examples.ids, examples.shown_texts, examples.labels, found, strict=True)
        wrong = [Mistake(name, *texts, 1.0) for name, *texts in rows if texts[1] != texts[2]]
        share = 1 - len(wrong) / len(found)
        return evaluation_of(examples, {"share_in_order": share}, found, wrong)

    def prediction(self, example, found):
        [text], [right] = example.shown_texts, example.labels
        return kb.Sample(text, right, found, is_right=found == right)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", registry.tasks())
    kb.register_task(OrderTask())


@pytest.mark.long
def test_a_task_of_another_module_is_trained_evaluated_reported_exported_and_asked(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert _tasks_in_words().endswith("similar texts), order (the order of two sentences).")
    texts = ("he wakes up .", "then she eats ."), ("then she leaves .", "he wakes .")
    rows = list(zip(*texts, ORDERS, strict=True)) * 16
    lines = map("\t".join, [("first", "second", "order"), *rows])
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    bert = kb.BERTModel(len(WORDS), 16, 32, num_heads=2, num_blks=1, dropout=0.0, max_len=16)
    kb.save_pretrained(bert, "bert", tokenizer=kb.Tokenizer(kb.Vocab(WORDS)))
    options = {"precision": "float32", "learning_rate": 0.01, "epochs": 4, "verbose": 0}
    files = {"model": "bert", "train": "train.tsv", "dev": "train.tsv"}
    model, metrics = kb.finetune_files("run", task="order", **files, **options)
    assert metrics["best"]["val_share_in_order"] == 1
    assert kb.evaluate(model, "train.tsv").metrics == {"share_in_order": 1}
    assert "then she eats . | he wakes ." in (tmp_path / "run/report.html").read_text()
    folder = kb.export_saved_model(model, "export")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answers = served(text=tf.constant(texts[0]), text_b=tf.constant(texts[1]))
    assert answers["is_swapped"].numpy().tolist() == [False, True]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["predict", "train.tsv", "--model", "run"])
    found = [json.loads(line)["order"] for line in capsys.readouterr().out.splitlines()]
    assert found == [*ORDERS] * 16
