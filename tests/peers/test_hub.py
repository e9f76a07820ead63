"""Models travel by way of a hub between transformers and this package."""

import numpy as np
import pytest

import keras_bert_d2l as kb

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat ##s in paris .".split()
LABELS = ["O", "B-LOC", "I-LOC"]
TEXTS = ["the cats sat in Paris.", "the mat"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
MAKERS = {
    "BertForTokenClassification": lambda bert: kb.TokenClassifier(bert, LABELS),
    "BertForSequenceClassification": lambda bert: kb.SequenceClassifier(bert, LABELS),
    "BertForQuestionAnswering": kb.QuestionAnswerer,
    "BertForPreTraining": lambda bert: bert,
}


def assert_equal(ours, theirs, their_tokenizer):
    """Compare the tokens and the logits, without those of the padding."""
    batch = dict(ours.tokenizer(TEXTS))
    encoded = their_tokenizer(TEXTS, padding=True, return_tensors="pt")
    np.testing.assert_array_equal(batch["tokens"], encoded["input_ids"])
    with torch.no_grad():
        expected = theirs.eval()(**encoded)
    if isinstance(ours, kb.BERTModel):
        batch["pred_positions"] = np.tile(np.arange(batch["tokens"].shape[1]), (len(TEXTS), 1))
        found = ours(batch)
        pairs = [(found["mlm"], expected.prediction_logits)]
        pairs += [(found["nsp"][:, ::-1], expected.seq_relationship_logits)]  # see differences.md
    elif isinstance(ours, kb.QuestionAnswerer):
        found = ours(batch)
        pairs = [(found["start"], expected.start_logits), (found["end"], expected.end_logits)]
    else:
        pairs = [(ours(batch), expected.logits)]
    is_token = encoded["attention_mask"].numpy() == 1
    for our_logits, their_logits in pairs:
        a, b = np.asarray(our_logits), their_logits.numpy()
        mask = is_token if a.shape[:2] == is_token.shape else slice(None)
        if isinstance(ours, kb.QuestionAnswerer):  # only tokens of the context can be answers
            mask = is_token & (a > -1e3)
        np.testing.assert_allclose(a[mask], b[mask], atol=1e-5)


def test_a_token_classifier_of_transformers_is_loaded_by_name(local_hub, tmp_path):
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        intermediate_size=24,
        max_position_embeddings=16,
        id2label=dict(enumerate(LABELS)),
        initializer_range=0.5,
        **SIZES,
    )
    theirs = transformers.BertForTokenClassification(config)
    tokenizer = transformers.BertTokenizer(vocab={w: n for n, w in enumerate(WORDS)})
    theirs.save_pretrained(tmp_path / "ner")
    tokenizer.save_pretrained(tmp_path / "ner")
    local_hub.add("someone/ner", tmp_path / "ner")
    ours = kb.TokenClassifier.from_pretrained("someone/ner")
    assert ours.labels == tuple(LABELS)
    assert_equal(ours, theirs, tokenizer)


@pytest.mark.parametrize("architecture", MAKERS)
def test_transformers_loads_an_uploaded_folder(architecture, local_hub, tmp_path):
    sizes = {"num_hiddens": 16, "ffn_num_hiddens": 24, "num_heads": 2, "num_blks": 2}
    config = kb.BERTConfig.preset("huggingface", vocab_size=len(WORDS), **sizes)
    model = MAKERS[architecture](kb.BERTModel.from_bert_config(config))
    folder = tmp_path / "mine"
    kb.save_pretrained(model, folder, tokenizer=kb.Tokenizer(kb.Vocab(WORDS)), format="huggingface")
    local_hub.add("OWNER/mine", folder)
    theirs = getattr(transformers, architecture).from_pretrained("OWNER/mine")
    tokenizer = transformers.AutoTokenizer.from_pretrained("OWNER/mine")
    assert_equal(kb.load_pretrained("OWNER/mine").model, theirs, tokenizer)
