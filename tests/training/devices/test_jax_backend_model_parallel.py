"""Runs that divide weights as well as batches over devices, with the JAX backend."""

import dataclasses
import importlib.util
import json
import os

import pytest

from keras_bert_d2l import BERTConfig, BERTModel, Tokenizer, Vocab, save_pretrained
from tests.training.conftest import CONFIG
from tests.training.devices.test_jax_backend_processes import JAX, RUN, assert_same_run

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None,
        reason='needs JAX: pip install "keras-bert-d2l[jax]", or make test-peers',
    ),
]

FLAGS = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
EIGHT = {**JAX, "XLA_FLAGS": FLAGS}


@pytest.fixture
def given(options, tmp_path):
    """Options of a run of 20 steps, with dropout, as JSON knows them."""
    dataclasses.replace(CONFIG, num_heads=4).to_json(tmp_path / "config.json")
    options["vocab"].to_file(tmp_path / "vocab.txt")
    files = {"vocab": tmp_path / "vocab.txt", "bert_config": tmp_path / "config.json"}
    files["cache_dir"] = options["cache_dir"]
    return {
        **{name: str(file) for name, file in files.items()},
        "layout": "lines",
        "steps": 20,
        "evaluate_every": 10,
        "batch_size": 8,
        "max_len": 24,
        "learning_rate": 1e-3,
        "held_out": 0.2,
    }


def test_a_run_on_eight_devices_that_resumes_on_others_equals_one_device(
    text, given, tmp_path, fresh_process
):
    code = """
        import json, sys
        import keras
        from keras_bert_d2l import pretrain

        class Stop(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                self.model.stop_training = not epoch

        text, run, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
        given["verbose"] = 0
        pretrain(text, f"{run}/whole", **given)
        pretrain(text, f"{run}/parts", **given, devices="data=4,model=2", callbacks=[Stop()])
        assert json.load(open(f"{run}/parts/last/training_state.json"))["step"] == 10
        pretrain(text, f"{run}/parts", resume=True, devices="data=2,model=4")
    """
    fresh_process(code, text, tmp_path, json.dumps(given), **EIGHT)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_packed_rows_muon_and_lora_on_eight_devices_equal_one(text, given, tmp_path, fresh_process):
    config = BERTConfig.from_json(given.pop("bert_config"))
    bert = BERTModel.from_bert_config(dataclasses.replace(config, tie_embeddings=True))
    save_pretrained(
        bert, tmp_path / "bert", tokenizer=Tokenizer(Vocab.from_file(given.pop("vocab")))
    )
    given |= {"init": str(tmp_path / "bert"), "lora": 2, "lora_layers": "W_q,W_o,dense1,dense2"}
    given |= {"rows": "packed", "micro_batches": 2, "optimizer": "muon", "remat": "blocks"}
    runs = {
        str(tmp_path / str(devices)): {**given, "devices": devices}
        for devices in (None, "data=4,model=2")
    }
    fresh_process(RUN, text, json.dumps(runs), **EIGHT)
    assert_same_run(tmp_path / "data=4,model=2", tmp_path / "None")


def test_weights_and_moments_are_divided_over_the_model_axis(given, fresh_process):
    code = """
        import sys
        from keras_bert_d2l import BERTAdamW, BERTConfig, BERTModel
        from keras_bert_d2l.training.devices.distribution import distributed
        config = BERTConfig.from_json(sys.argv[1])
        with distributed("data=4,model=2"):
            model = BERTModel.from_bert_config(config)
            model.compile(BERTAdamW(1e-3))
            model.optimizer.build(model.trainable_variables)
        for number, weight in enumerate(model.trainable_variables):
            moments = model.optimizer._first_moments, model.optimizer._second_moments
            shapes = {
                variable.value.addressable_shards[0].data.shape
                for variable in (weight, *(all[number] for all in moments))
            }
            print(weight.path, tuple(weight.shape), *shapes, sep="|")
    """
    divided = {}
    for line in fresh_process(code, given["bert_config"], **EIGHT).splitlines():
        path, whole, *parts = line.split("|")
        if whole not in parts:
            divided[path] = whole, *parts
    block = {
        **{f"attention/W_{x}/kernel": ("(8, 8)", "(8, 4)") for x in "qkv"},
        **{f"attention/W_{x}/bias": ("(8,)", "(4,)") for x in "qkv"},
        "attention/W_o/kernel": ("(8, 8)", "(4, 8)"),
        "ffn/dense1/kernel": ("(8, 16)", "(8, 8)"),
        "ffn/dense1/bias": ("(16,)", "(8,)"),
        "ffn/dense2/kernel": ("(16, 8)", "(8, 8)"),
    }
    expected = {f"encoder/blk_0/{path}": both for path, both in block.items()}
    expected["encoder/token_embedding/embeddings"] = ("(53, 8)", "(53, 4)")
    expected["mlm/mlp/logits/kernel"] = ("(8, 53)", "(4, 53)")
    assert divided == expected


def test_sizes_that_do_not_fit_are_rejected(text, given, tmp_path, fresh_process):
    code = """
        import json, sys
        import pytest
        from keras_bert_d2l import pretrain
        text, run, given = sys.argv[1:]
        for devices, message in (
            ("data=2,model=2", "devices='data=2,model=2' for 8 devices"),
            ("model=8", "`num_heads` .* must be a multiple of 8. Received: num_heads=4"),
        ):
            with pytest.raises(ValueError, match=message):
                pretrain(text, run, verbose=0, **json.loads(given), devices=devices)
    """
    fresh_process(code, text, tmp_path / "run", json.dumps(given), **EIGHT)
    assert not (tmp_path / "run" / "run.yaml").exists()
