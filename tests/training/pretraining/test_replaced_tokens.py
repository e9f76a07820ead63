"""`pretrain` with objective rtd: what it writes, and what else can use that."""

import dataclasses
import json
import re

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from tests.nightly import nightly_except
from tests.training.conftest import CONFIG

pytestmark = pytest.mark.usefixtures("eager")
FIELDS = {"tie_embeddings": True, "embedding_norm": True, "layer_norm_epsilon": 1e-12}


@pytest.mark.long
@pytest.mark.parametrize("embeddings", nightly_except(["disentangled"], ["shared", "disentangled"]))
def test_a_run_keeps_the_discriminator_and_its_generator(embeddings, text, options, tmp_path):
    config = dataclasses.replace(CONFIG, **FIELDS, embedding_dropout=CONFIG.dropout)
    given = {**options, "bert_config": config, "generator_embeddings": embeddings, "steps": 4}
    run = tmp_path / "run"
    result = pretrain(text, run, **given, objective="rtd")
    assert result.metrics[-1].keys() >= {"val_rtd_auc", "val_rtd_accuracy", "val_mlm_cross_entropy"}
    assert json.loads((run / "last/training_state.json").read_text())["best_step"] == 4
    assert (run / "report.html").read_text().count("Replaced-token AUC")
    found = kb.load_pretrained(run, verbose=False).model
    batch = {"tokens": np.array([[2, 7, 8, 9, 3]])}
    np.testing.assert_allclose(found(batch)["rtd"], result.model(batch)["rtd"], atol=1e-6)
    generator = kb.load_pretrained(run / "generator", verbose=False).model
    assert [*found.usable_heads, *generator.usable_heads] == ["rtd", "mlm"]
    tables = [model.encoder.token_embedding.embeddings for model in (found, generator)]
    assert np.array_equal(*tables) == (embeddings == "shared")
    classes = {found: "ElectraForPreTraining", generator: "ElectraForMaskedLM"}
    for number, (model, name) in enumerate(classes.items()):
        kb.save_pretrained(model, tmp_path / f"{number}", format="huggingface")
        assert f'["{name}"]' in re.sub(r"\s", "", (tmp_path / f"{number}/config.json").read_text())
    on = {k: v for k, v in options.items() if k not in ("bert_config", "vocab")} | {"steps": 1}
    masked = pretrain(text, tmp_path / "masked", **on, init=run, objective="none").model
    assert (masked.rtd, list(masked.usable_heads)) == (None, ["mlm"])
