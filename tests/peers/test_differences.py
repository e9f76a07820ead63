"""Deliberate differences from other libraries, as listed in docs/differences.md.

Each test states what the other library does and what this package does with the same input. If a
new version of the library fails one of them, change the table.
"""

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.pretraining.masking import mask_tokens
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.layers.kernels.attention import masked_softmax

tensorflow_text = pytest.importorskip("tensorflow_text", reason="needs tensorflow-text")
learner = pytest.importorskip(
    "tensorflow_text.tools.wordpiece_vocab.wordpiece_tokenizer_learner_lib"
)
keras_hub = pytest.importorskip("keras_hub", reason="needs KerasHub: make test-peers")
torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

# Facts about other libraries, which only their new versions change.
pytestmark = pytest.mark.long

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIALS, *"a b c fox . , [ ] mask caf ##e 日 本".split()]
CLS, SEP, MASK, A, B, FOX = map(WORDS.index, ("[CLS]", "[SEP]", "[MASK]", "a", "b", "fox"))
SIZES = {"vocab_size": len(WORDS), "num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2}
CONFIG = kb.BERTConfig.preset("huggingface", **SIZES, num_blks=1, max_len=16)
THEIR_CONFIG = transformers.BertConfig(
    vocab_size=len(WORDS),
    hidden_size=8,
    intermediate_size=16,
    num_attention_heads=2,
    num_hidden_layers=1,
    max_position_embeddings=16,
)
TOKENS = np.array([[CLS, A, B, SEP, 0, 0]], "int32")
SEGMENTS, LENS = np.zeros_like(TOKENS), np.array([4])
MANY = 2000


@pytest.fixture(scope="module")
def ours():
    return kb.Tokenizer(kb.Vocab(WORDS))


@pytest.fixture(scope="module")
def hugging_face():
    return hugging_face_tokenizer(WORDS)


@pytest.fixture(scope="module")
def hub():
    return keras_hub.models.BertTokenizer(vocabulary=WORDS, lowercase=True)


@pytest.fixture(scope="module")
def tf_text():
    ids = tf.lookup.KeyValueTensorInitializer(WORDS, np.arange(len(WORDS)), tf.string, tf.int64)
    table = tf.lookup.StaticVocabularyTable(ids, 1)
    return tensorflow_text.BertTokenizer(table, lower_case=True, token_out_type=tf.int64)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Our BERT and that of transformers with the same weights."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    theirs = transformers.BertForPreTraining(THEIR_CONFIG).eval()
    theirs.save_pretrained(folder)
    return kb.load_pretrained(folder, verbose=False).model, theirs


def hugging_face_tokenizer(words):
    return transformers.BertTokenizer(vocab={word: number for number, word in enumerate(words)})


def flat(ids):
    return np.asarray(ids.flat_values if hasattr(ids, "flat_values") else ids).ravel().tolist()


def masked(num_words, rate=0.15, num_rows=1, **options):
    """Mask rows of the word `a` with our masking."""
    rows = tf.tile([[CLS, *[A] * num_words, SEP]], (num_rows, 1))
    return mask_tokens(
        rows,
        tf.fill(num_rows, num_words + 2),
        tf.range(num_rows, dtype=tf.int64),
        vocab=kb.Vocab(WORDS),
        masking=kb.Masking("token", rate, **options),
        num_predictions=num_words,
    )


# Tokenizers


def test_a_vocabulary_needs_all_five_special_tokens():
    without = [word for word in WORDS if word != "[MASK]"]
    assert hugging_face_tokenizer(without)("a")["input_ids"] == [CLS, A - 1, SEP]
    with pytest.raises(ValueError, match=r"Missing: \[MASK\]"):
        kb.Vocab(without)
    with pytest.raises(ValueError, match=r"\[MASK\]"):
        keras_hub.models.BertTokenizer(vocabulary=without)


def test_special_tokens_in_a_text_stay_whole(ours, hugging_face, hub, tf_text):
    text, parts = "a [MASK]", [A, *(WORDS.index(word) for word in ("[", "mask", "]"))]
    assert flat(ours.tokenize(text)) == hugging_face(text)["input_ids"][1:-1] == [A, MASK]
    assert flat(hub(text)) == flat(tf_text.tokenize([text])) == parts
    assert flat(kb.Tokenizer(ours.vocab, split_special_tokens=True).tokenize(text)) == parts


def test_accents_and_invisible_characters_are_removed(ours, hugging_face, hub):
    for text, expected, of_hub in [
        ("café", [WORDS.index("caf"), WORDS.index("##e")], [WORDS.index("[UNK]")]),
        ("f\u00adox", [FOX], [WORDS.index("[UNK]")] * 2),
    ]:
        assert flat(ours.tokenize(text)) == hugging_face(text)["input_ids"][1:-1] == expected
        assert flat(hub(text)) == of_hub


def test_long_words_and_control_characters(ours, hugging_face, hub, tf_text):
    variant = kb.Tokenizer(ours.vocab, compat="huggingface")
    word, unknown = "caf" + 98 * "e", [WORDS.index("[UNK]")]
    assert len(word) == 101
    assert len(flat(ours.tokenize(word))) == 99
    for ids in (variant.tokenize(word), hugging_face(word)["input_ids"][1:-1], hub(word)):
        assert flat(ids) == unknown
    assert flat(tf_text.tokenize([word])) == unknown
    assert flat(ours.tokenize("f\x01ox")) == [FOX]
    assert flat(tf_text.tokenize(["f\x01ox"])) == 2 * unknown


@pytest.mark.parametrize(
    ("lengths", "kept", "round_robin", "shrink_longest"),
    [
        ((3, 3, 3), (1, 2), (2, 1), (1, 2)),
        ((6, 3, 3), (2, 1), (2, 1), (1, 2)),
        ((3, 6, 3), (1, 2), (2, 1), (1, 2)),
        ((9, 1, 4), (3, 1), (3, 1), (3, 1)),
    ],
)
def test_the_odd_token_of_longest_first(
    ours, hugging_face, lengths, kept, round_robin, shrink_longest
):
    num_a, num_b, room = lengths
    a, b = "a " * num_a, "b " * num_b

    def counts(ids):
        return ids.count(A), ids.count(B)

    assert counts(flat(ours(a, b, max_len=room + 3)["tokens"])) == kept
    theirs = hugging_face(a, b, max_length=room + 3, truncation="longest_first")
    assert counts(theirs["input_ids"]) == kept
    packer = keras_hub.layers.MultiSegmentPacker(room + 3, start_value=CLS, end_value=SEP)
    packed, _ = packer((np.full(num_a, A), np.full(num_b, B)))
    assert counts(flat(packed)) == round_robin
    texts = [tf.ragged.constant([[A] * num_a]), tf.ragged.constant([[B] * num_b])]
    for trimmer, expected in [
        (tensorflow_text.RoundRobinTrimmer(room), round_robin),
        (tensorflow_text.ShrinkLongestTrimmer(room), shrink_longest),
    ]:
        assert tuple(len(flat(part)) for part in trimmer.trim(texts)) == expected


def test_a_row_must_have_room_for_text(ours, hugging_face):
    assert hugging_face("a b", max_length=2, truncation=True)["input_ids"] == [CLS, SEP]
    with pytest.raises(ValueError, match="`max_len` must be an integer of at least 3"):
        ours("a b", max_len=2)


@pytest.mark.parametrize(("num_a", "num_b"), [(6, 3), (9, 3), (5, 1), (5, 3), (8, 8)])
def test_truncating_only_the_second_text_never_removes_it(ours, hugging_face, num_a, num_b):
    texts = [tf.ragged.constant([[A] * num_a]), tf.ragged.constant([[B] * num_b])]
    trimmed = tensorflow_text.WaterfallTrimmer(5).trim(texts)
    assert [flat(part) for part in trimmed] == [[A] * 5, []]
    packer = keras_hub.layers.MultiSegmentPacker(
        8, start_value=CLS, end_value=SEP, truncate="waterfall"
    )
    packed, _ = packer((np.full(num_a, A), np.full(num_b, B)))
    assert flat(packed) == [CLS, *[A] * 5, SEP, SEP]
    a, b = "a " * num_a, "b " * num_b
    with pytest.raises(Exception, match="too short to respect the provided max_length"):
        hugging_face(a, b, max_length=8, truncation="only_second")
    with pytest.raises(ValueError, match="Truncation would remove one text"):
        ours(a, b, max_len=8, truncation="only_second")
    assert B in flat(ours(a, b, max_len=8)["tokens"])


def test_an_empty_second_text_is_a_text(ours, hugging_face):
    assert flat(ours("a", "")["tokens"]) == [CLS, A, SEP, SEP]
    assert hugging_face(["a"], [""])["input_ids"] == [[CLS, A, SEP, SEP]]
    assert hugging_face("a", "")["input_ids"] == [CLS, A, SEP]


@pytest.mark.parametrize(("num_words", "num_rows"), [(6, 1), (7, 2), (10, 3), (20, 6)])
def test_long_sentences_of_a_tagger_become_overlapping_rows(
    ours, hugging_face, num_words, num_rows
):
    words = ["a"] * num_words
    examples = kb.WordExamples(words=[words], labels=[["x"] * (num_words - 1) + ["y"]])
    rows = TaskRows.encode(examples, ours, max_len=8)
    assert len(rows) == num_rows
    theirs = hugging_face(words, is_split_into_words=True, truncation=True, max_length=8)
    assert theirs["input_ids"].count(A) == min(num_words, 6)
    assert rows.word_ids[rows.word_ids >= 0].tolist() == [*range(num_words)]  # each word once


def test_truncation_keeps_the_last_sep(ours):
    padded, _ = tensorflow_text.pad_model_inputs(tf.ragged.constant([[CLS, A, B, A, SEP]]), 4)
    assert flat(padded) == [CLS, A, B, A]
    assert flat(ours("a b a", max_len=4)["tokens"]) == [CLS, A, B, SEP]


def test_offsets_count_characters(ours, tf_text):
    text = ["日本 fox"]
    assert ours.with_offsets(text)["ends"].to_list() == [[1, 2, 6]]
    assert flat(tf_text.tokenize_with_offsets(text)[2].merge_dims(1, 2)) == [3, 6, 10]


def test_detokenizing_drops_special_tokens_and_joins_punctuation(ours, hugging_face, hub):
    ids = [CLS, FOX, WORDS.index("."), SEP, 0]
    assert ours.detokenize([ids]).numpy().tolist() == [b"fox."]
    assert hugging_face.decode(ids) == "[CLS] fox. [SEP] [PAD]"
    assert hub.detokenize(ids) == "[CLS] fox . [SEP] [PAD]"


def test_detokenizing_keeps_unknown_tokens(ours, hugging_face):
    ids = [CLS, 1, FOX, SEP]
    assert hugging_face.decode(ids, skip_special_tokens=True) == "fox"
    assert ours.detokenize([ids]).numpy().tolist() == [b"[UNK] fox"]


# Vocabularies


SENTENCES = ["the cat sat on the mat", "the cats sat quietly"] * 12 + ["my zebra"] * 5 + ["œuvre"]


def learned(least_count):
    words = Counter(" ".join(SENTENCES).split())
    return learner.learn(words, 200, SPECIALS, lower_thresh=least_count)


def test_the_learner_fills_the_vocabulary_down_to_a_count_of_2():
    ours, defaults, of_all = kb.learn_vocab([SENTENCES], 200), learned(10), learned(2)
    assert "quietly" in defaults
    assert "zebra" not in defaults  # occurs 5 times
    longer = [[one for one in some if len(one.strip("#")) > 1] for some in (ours, of_all)]
    assert longer[0][5:] == longer[1][5:] != []
    assert "zebra" in longer[0]
    hub = keras_hub.tokenizers.compute_word_piece_vocabulary(
        tf.data.Dataset.from_tensor_slices(SENTENCES), 200, reserved_tokens=SPECIALS
    )
    assert set(hub) == set(defaults)


def test_a_character_seen_once_is_no_token():
    ours, theirs = kb.learn_vocab([SENTENCES], 200), learned(2)
    assert {"œ", "##œ", "v", "##v", "z", "##z"} <= set(theirs)
    assert {"œ", "##œ", "v", "##v", "##z"}.isdisjoint(ours)
    assert "z" in ours  # no word of the text continues with it


@pytest.mark.parametrize("size", [30, 45, 60])
def test_a_learned_vocabulary_has_the_requested_size(size):
    draw = np.random.default_rng(0)
    text = [" ".join("".join(draw.choice([*"aeinst"], 4)) for _ in range(2000))]
    assert len(kb.learn_vocab([text], size)) == size
    # Words and pieces are about equally frequent, so every minimum count gives too many or too few.
    assert len(learner.learn(Counter(text[0].split()), size, SPECIALS)) > size


def test_unknown_tokens_and_ids(ours, hugging_face, hub):
    assert ours.vocab[["dog"]] == hugging_face.convert_tokens_to_ids(["dog"]) == [1]
    with pytest.raises(ValueError, match="'dog' is not in the vocabulary"):
        hub.token_to_id("dog")
    assert hugging_face.convert_ids_to_tokens([99]) == [None]
    with pytest.raises(ValueError, match=r"must be in 0\.\.\d+.*Received: 99"):
        ours.vocab.to_tokens([99])


# Masking


def test_the_number_of_predictions(hugging_face):
    assert int(tf.reduce_sum(masked(100).weights)) == 15
    assert int(tf.reduce_sum(masked(3).weights)) == 1
    hub = keras_hub.layers.MaskedLMMaskGenerator(len(WORDS), 0.15, MASK, mask_selection_length=100)
    counts = {int(np.sum(hub(np.full(100, A))["mask_weights"])) for _ in range(20)}
    collator = transformers.DataCollatorForLanguageModeling(hugging_face, seed=0)
    theirs = [collator([{"input_ids": [A] * 100}])["labels"] for _ in range(20)]
    assert len(counts) > 1
    assert len({int((labels != -100).sum()) for labels in theirs}) > 1
    selector = tensorflow_text.RandomItemSelector(100, 0.15)
    chooser = tensorflow_text.MaskValuesChooser(len(WORDS), MASK, 0.8)
    rows = tf.ragged.constant([[A] * 100])
    _, positions, _ = tensorflow_text.mask_language_model(rows, selector, chooser)
    assert len(flat(positions)) == 16  # 0.15 * 100 is above 15 in float32


def test_random_replacements_are_never_special_tokens(hugging_face):
    specials = set(range(5))
    tokens = masked(10, 0.9, MANY // 10, replace=(0.0, 1.0, 0.0)).tokens[:, 1:-1]
    assert specials.isdisjoint(flat(tokens))
    hub = keras_hub.layers.MaskedLMMaskGenerator(
        len(WORDS), 1.0, MASK, mask_selection_length=MANY, mask_token_rate=0, random_token_rate=1
    )
    assert specials <= set(flat(hub(np.full(MANY, A))["token_ids"]))
    collator = transformers.DataCollatorForLanguageModeling(
        hugging_face, mlm_probability=0.9, mask_replace_prob=0, random_replace_prob=1, seed=0
    )
    assert specials <= set(flat(collator([{"input_ids": [A] * MANY}])["input_ids"]))
    chooser = tensorflow_text.MaskValuesChooser(len(WORDS), MASK, 0.0, 1.0)
    chosen = chooser.get_mask_values(tf.ragged.constant([[A] * MANY]))
    assert specials <= set(flat(chosen))


# Models and losses


def test_next_sentence_columns_are_swapped(models):
    ours, theirs = models
    ids, is_token = torch.tensor(TOKENS).long(), torch.tensor(TOKENS > 0).long()
    expected = theirs(ids, attention_mask=is_token).seq_relationship_logits.detach().numpy()
    logits = ours(TOKENS, SEGMENTS, LENS)[2]
    np.testing.assert_allclose(logits, expected[:, ::-1], rtol=0, atol=1e-6)


def test_attention_without_any_valid_token(models):
    _, theirs = models
    theirs.set_attn_implementation("eager")
    ids, nothing = torch.tensor(TOKENS).long(), torch.zeros(1, 6).long()
    uniform = theirs(ids, attention_mask=nothing, output_attentions=True).attentions[0].detach()
    np.testing.assert_allclose(uniform, 1 / 6, rtol=1e-6)
    weights = masked_softmax(tf.constant([[0.0, 4.0]]), tf.constant([[False, False]]))
    np.testing.assert_allclose(weights, tf.nn.softmax([[0.0, 4.0]]), rtol=1e-6)


def test_a_classifier_has_at_least_two_labels():
    config = transformers.BertConfig(**{**THEIR_CONFIG.to_dict(), "id2label": {0: "x"}})
    theirs = transformers.BertForSequenceClassification(config)
    theirs(torch.tensor(TOKENS).long(), labels=torch.tensor([2.5]))
    assert theirs.config.problem_type == "regression"
    with pytest.raises(ValueError, match="at least 2 different names"):
        kb.SequenceClassifier(kb.BERTModel.from_bert_config(CONFIG), ["x"])


def test_a_batch_without_predictions_has_no_mlm_loss(models):
    ours, theirs = models
    ids = torch.tensor(TOKENS).long()
    loss = theirs(ids, labels=torch.full((1, 6), -100), next_sentence_label=torch.tensor([0])).loss
    assert torch.isnan(loss)
    ours.compile("sgd")
    found = ours.evaluate(
        {"tokens": TOKENS, "segments": SEGMENTS, "pred_positions": np.array([[0]])},
        {"mlm": np.array([[0]]), "nsp": np.array([1])},
        sample_weight={"mlm": np.array([[0.0]]), "nsp": np.array([1.0])},
        verbose=0,
        return_dict=True,
    )
    assert found["mlm_loss"] == 0
    assert found["loss"] == found["nsp_loss"] > 0


def test_the_mlm_loss_is_the_mean_over_real_predictions(models):
    backbone = keras_hub.models.BertBackbone(len(WORDS), 1, 2, 8, 16, max_sequence_length=16)
    theirs = keras_hub.models.BertMaskedLM(backbone=backbone)
    x = {
        "token_ids": TOKENS,
        "segment_ids": SEGMENTS,
        "padding_mask": TOKENS > 0,
        "mask_positions": np.array([[1, 0]]),
    }
    labels, weights = np.array([[A, 0]]), np.array([[1.0, 0.0]])
    loss = theirs.evaluate(x, labels, sample_weight=weights, verbose=0)[0]
    logits = theirs(x)
    per_slot = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    assert loss == pytest.approx(float(per_slot[0, 0]) / 2, rel=1e-5)  # divided by both slots
    ours = kb.WeightedCrossEntropy()(labels, logits, weights)
    assert float(ours) == pytest.approx(float(per_slot[0, 0]), rel=1e-5)


LABELS = np.array([[1, 2, 0], [0, 1, 1]])
LOGITS = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")


def test_one_weight_per_row_is_the_weight_of_all_its_labels():
    weights = np.array([1.0, 3.0])
    loss = kb.WeightedCrossEntropy()(LABELS, LOGITS, weights)
    each = -np.take_along_axis(LOGITS, LABELS[..., None], -1)[..., 0]
    each += np.log(np.exp(LOGITS).sum(-1))
    assert float(loss) == pytest.approx((each.mean(1) * weights).sum() / 4, rel=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        keras.losses.SparseCategoricalCrossentropy(from_logits=True)(LABELS, LOGITS, weights)


@pytest.mark.parametrize("label", [-1, -2, -99])
def test_every_negative_label_is_ignored(label):
    labels, logits = np.array([1, label, 0]), LOGITS[0]
    theirs = torch.nn.CrossEntropyLoss()
    with pytest.raises(IndexError, match="out of bounds"):
        theirs(torch.tensor(logits), torch.tensor(labels))
    expected = theirs(torch.tensor(logits), torch.tensor([1, -100, 0]))
    found = kb.WeightedCrossEntropy()(labels, logits)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_labels_are_ids():
    shares = np.full((3, 4), 0.25, "float32")
    assert float(torch.nn.CrossEntropyLoss()(torch.tensor(LOGITS[0]), torch.tensor(shares))) > 0
    with pytest.raises(ValueError, match="with classes given as ids"):
        kb.WeightedCrossEntropy()(shares, LOGITS[0])


def test_predictions_of_one_mask_are_a_list_too(models, ours, hugging_face):
    model, theirs = models
    lm = transformers.BertForMaskedLM(THEIR_CONFIG)
    lm.load_state_dict(theirs.state_dict(), strict=False)
    flat_list = transformers.pipeline("fill-mask", model=lm, tokenizer=hugging_face)("a [MASK]")
    [predictions] = kb.fill_mask(model, "a [MASK]", tokenizer=ours)
    assert [found.id for found in predictions] == [found["token"] for found in flat_list]


def test_a_batch_without_predictions_is_an_error():
    generator = keras_hub.layers.MaskedLMMaskGenerator(10, 0.5, MASK, mask_selection_length=0)
    assert generator(TOKENS)["mask_ids"].shape == (1, 0)
    with pytest.raises(ValueError, match="num_predictions=0"):
        kb.MaskTokens(kb.Vocab(WORDS), num_predictions=0)


def test_lists_of_pairs_are_not_taken_for_pairs(ours, hugging_face):
    assert hugging_face([["a", ""]])["input_ids"] == [[CLS, A, SEP, SEP]]
    assert ours(["a"], [""])["tokens"].numpy().tolist() == [[CLS, A, SEP, SEP]]
    with pytest.raises(ValueError, match=r"\['a', ''\] at index 0"):
        ours([["a", ""]])


def test_labels_are_lists_and_scores_are_in_their_order(ours, hugging_face):
    net, labels = transformers.BertForSequenceClassification(THEIR_CONFIG), ["entailment", "not"]
    net.config.id2label, net.config.label2id = dict(enumerate(labels)), {"entailment": 0, "not": 1}
    theirs = {"model": net, "tokenizer": hugging_face, "device": "cpu"}
    found = transformers.pipeline("zero-shot-classification", **theirs)("a", "b, fox")
    assert sorted(found["labels"]) == ["b", "fox"]
    model = kb.SequenceClassifier(kb.BERTModel.from_bert_config(CONFIG), labels, tokenizer=ours)
    with pytest.raises(ValueError, match="labels='b, fox'"):
        kb.zero_shot(model, "a", "b, fox")
    model.head.bias.assign([0.0, 1.0])
    assert list(kb.classify(model, "a").scores) == labels
    net.classifier.bias.data = torch.tensor([0.0, 1.0])
    ranked = transformers.pipeline("text-classification", **theirs)("a", top_k=None)
    assert [one["label"] for one in ranked] == labels[::-1]
