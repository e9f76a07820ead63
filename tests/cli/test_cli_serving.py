import json

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.checkpoints.pretrained import save_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import SequenceRegressor
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab


def write_model(folder, op):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.meta_graphs.add().graph_def.node.add(name="node", op=op)
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return folder


def test_audit_lists_what_the_server_does_not_know(run, error, tmp_path):
    assert run("audit", write_model(tmp_path / "good", "MatMul")).stdout == (
        "TensorFlow Serving knows all operations.\n"
    )
    bad = write_model(tmp_path / "bad", "TFText>RoundRobinTrim")
    assert run("audit", bad, exit_code=1).stdout == (
        "TFText>RoundRobinTrim (tensorflow-text 2.21.1) at node\n"
    )
    assert "saved_model.pb" in error("audit", tmp_path)


@pytest.mark.slow
def test_export_takes_the_model_of_a_task(run, tmp_path):
    vocab = Vocab([*GOOGLE_SPECIALS, "red", "green"])
    bert = BERTModel.from_bert_config(BERTConfig.preset("tiny", vocab_size=len(vocab), num_blks=1))
    save_pretrained(SequenceRegressor(bert), tmp_path / "task", Tokenizer(vocab))
    out = run("export", "--model", tmp_path / "task", "--out", tmp_path / "out", "--pairs").stdout
    assert out == f"Exported to {tmp_path / 'out' / '1'}\n"
    card = json.loads((tmp_path / "out" / "1" / "model_card.json").read_text(encoding="utf-8"))
    assert (card["task"]["kind"], card["training"]) == ("SequenceRegressor", None)
    assert set(card["signatures"]["serving_default"]["inputs"]) == {"text", "text_b"}
