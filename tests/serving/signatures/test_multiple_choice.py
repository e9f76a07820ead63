"""An exported MultipleChoice model answers over REST as `choose` does."""

import keras
import pytest

from keras_bert_d2l.serving.client.client import ServingClient
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served_model import ServedModel
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.choose.predictions import choose

pytestmark = pytest.mark.slow

TEXTS = ["red green", "blueish, red" * 9]
CHOICES = [["red", "blueish", "green , red"], ["green " * 20, "red"]]
PADDED = [CHOICES[0], [*CHOICES[1], ""]]


@pytest.fixture(scope="module")
def chooser(make_model, tokenizer):
    model = MultipleChoice(make_model(), tokenizer=tokenizer)
    model.head.kernel.assign(2 * keras.random.normal(model.head.kernel.shape, seed=3))
    return model


@pytest.fixture(scope="module")
def folder(chooser, tmp_path_factory):
    return export_saved_model(chooser, tmp_path_factory.mktemp("models") / "chooser")


@pytest.mark.filterwarnings("ignore:Truncated to")
def test_the_client_gives_the_same_choices(chooser, folder):
    server = LocalServer(ServedModel(folder.parent), "demo")
    with running(server) as url, ServingClient(url, "demo") as client:
        expected = choose(chooser, TEXTS, CHOICES)
        assert [one.choice for one in client.choose(TEXTS, PADDED)] == [x.choice for x in expected]
        single = client.choose(TEXTS[0], CHOICES[0])
        assert single.scores == pytest.approx(expected[0].scores, abs=1e-5)
        with pytest.raises(ValueError, match="Query a model for this task"):
            client.classify(TEXTS)
