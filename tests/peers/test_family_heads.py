"""Task models of BERT's relatives exchanged with transformers in both directions are equal."""

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.formats.test_huggingface_family import TASKS, outputs_of

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

family = pytest.importorskip("scripts.originals.family")
OTHER_SIZES = {  # wider, deeper and with other options than in the stored originals
    "vocab_size": 53,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "max_position_embeddings": 21,
}
OPTIONS = {
    "electra": {"embedding_size": 24, "hidden_act": "relu"},
    "distilbert": {"activation": "gelu_new"},
    "roberta": {"hidden_act": "relu", "pad_token_id": 0, "type_vocab_size": 2},
    "albert": {"embedding_size": 24, "classifier_dropout_prob": 0.3},
    "modernbert": {"classifier_pooling": "cls", "classifier_activation": "relu"},
    "deberta": {"position_biased_input": True, "type_vocab_size": 2, "pos_att_type": "c2p|p2c"},
    "deberta-v2": {"position_buckets": -1, "norm_rel_ebd": "none", "pooler_hidden_act": "tanh"},
}
MODELS = [(name, ending) for name in family.MODEL_TYPES for ending in family.classes_of(name)]
MODELS.remove(("electra", "ForPreTraining"))


def assert_equal(ours, theirs):
    inputs = {key: x.numpy() for key, x in family.inputs_of(theirs).items()}
    found, expected = outputs_of(ours, inputs), family.outputs_of(theirs)
    keys = found.keys() & expected.keys()
    assert keys
    for key in keys:
        is_token = inputs["attention_mask"].astype(bool)
        is_token = is_token if expected[key].shape[:2] == is_token.shape else ...
        np.testing.assert_allclose(
            np.asarray(found[key])[is_token], expected[key][is_token], rtol=0, atol=1e-5
        )


def assert_read_back(ours, theirs, folder):
    """Assert that transformers reads what we write, with nothing missing and all weights equal."""
    kb.save_pretrained(ours, folder, format="huggingface")
    back, info = type(theirs).from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], kind
    for (name, weight), (_, other) in zip(
        theirs.named_parameters(), back.named_parameters(), strict=True
    ):
        assert torch.equal(weight, other), name
    assert_equal(ours, back.eval())
    return back


@pytest.mark.parametrize("options", [{}, OTHER_SIZES], ids=["small", "other"])
@pytest.mark.parametrize("which", MODELS, ids=" ".join)
def test_models_of_transformers_are_loaded_and_written_back(which, options, tmp_path):
    name, ending = which
    options = options and {**options, **OPTIONS.get(name, {})}
    theirs = family.original(name, ending, **options)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="8KB" if options else "1GB")
    ours = kb.load_pretrained(tmp_path / "theirs", verbose=False).model
    assert type(ours) is TASKS.get(ending, kb.BERTModel)
    assert_equal(ours, theirs)
    if name in ("camembert", "xlm-roberta"):  # written as RoBERTa, which has the same layers
        ending = ending.removeprefix("Model")
        theirs_as = getattr(transformers, f"AutoModel{ending}")
        kb.save_pretrained(ours, tmp_path / "ours", format="huggingface")
        assert_equal(ours, theirs_as.from_pretrained(tmp_path / "ours").eval())
    else:
        assert_read_back(ours, theirs, tmp_path / "ours")


@pytest.mark.parametrize("name", family.MODEL_TYPES)
def test_a_pytorch_file_gives_the_same_model(name, tmp_path):
    theirs = family.original(name, "ForMaskedLM")
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    assert_equal(kb.load_pretrained(tmp_path, verbose=False).model, theirs)


@pytest.mark.parametrize("problem", ["regression", "single_label_classification"])
@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_scores_and_single_labels_keep_their_kind(name, problem, tmp_path):
    theirs = family.original(name, "ForSequenceClassification", problem_type=problem)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = kb.load_pretrained(tmp_path / "theirs", verbose=False).model
    kind = kb.SequenceRegressor if problem == "regression" else kb.SequenceClassifier
    assert type(ours) is kind
    assert not getattr(ours, "multi_label", False)
    back = assert_read_back(ours, theirs, tmp_path / "ours")
    assert back.config.problem_type == problem
    assert back.config.id2label == family.LABELS


@pytest.mark.parametrize("name", ["mpnet", "roberta", "modernbert"])
def test_embedders_are_written_for_sentence_transformers(name, tmp_path):
    theirs = family.original(name, "Model")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = kb.TextEmbedder.from_pretrained(tmp_path / "theirs", verbose=False)
    kb.save_pretrained(ours, tmp_path / "ours", format="huggingface")
    assert (tmp_path / "ours/modules.json").exists()
    inputs = family.inputs_of(theirs)
    with torch.no_grad():
        back = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
        encoded = back(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((encoded * mask).sum(1) / mask.sum(1))
    found = ours(inputs["input_ids"].numpy(), None, mask.sum((1, 2)).numpy())
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-6)


def test_task_models_of_modernbert_start_with_the_layers_of_the_mlm_head(tmp_path):
    family.original("modernbert", "ForMaskedLM").save_pretrained(tmp_path)
    auto = transformers.AutoModelForSequenceClassification
    theirs = auto.from_pretrained(tmp_path, id2label=family.LABELS).eval()
    labels, head = [*family.LABELS.values()], theirs.classifier
    ours = kb.SequenceClassifier.from_pretrained(tmp_path, labels=labels, pooling="mean")
    ours.head.kernel.assign(head.weight.detach().numpy().T)  # random in both
    ours.head.bias.assign(head.bias.detach().numpy())
    assert_equal(ours, theirs)
