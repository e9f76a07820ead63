"""Windows: questions with each part of a long context, and the tokens of answers."""

import itertools
import json

import pytest
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.framing import answer_spans
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = "abcdefghijkl"
A, J = 5, 14


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


def test_windows_overlap_and_the_last_one_ends_with_the_context(tokenizer):
    windows = tokenizer.windows(["k l", "l"], [" ".join(WORDS[:6]), "a"], max_len=8, overlap=1)
    k, l = A + 10, A + 11  # noqa: E741
    assert windows["tokens"].numpy().tolist() == [
        [CLS, k, l, SEP, A, A + 1, A + 2, SEP],
        [CLS, k, l, SEP, A + 2, A + 3, A + 4, SEP],
        [CLS, k, l, SEP, A + 4, A + 5, SEP, PAD],
        [CLS, l, SEP, A, SEP, PAD, PAD, PAD],
    ]
    assert windows["rows"].numpy().tolist() == [0, 0, 0, 1]
    assert windows["valid_lens"].numpy().tolist() == [8, 8, 7, 5]
    assert windows["starts"][1].numpy().tolist() == [0, 0, 2, 0, 4, 6, 8, 0]
    assert windows["ends"][1].numpy().tolist() == [0, 1, 3, 0, 5, 7, 9, 0]


def test_an_empty_context_is_a_window(tokenizer):
    windows = tokenizer.windows("a", "", max_len=6)
    assert windows["tokens"].numpy().tolist() == [[CLS, A, SEP, SEP, PAD, PAD]]
    assert answer_spans(windows, [0], [1]).numpy().tolist() == [[0, 0]]


def test_every_token_is_in_a_window_for_any_length(tokenizer):
    contexts = [" ".join("a" * n) for n in range(30)]
    for overlap in (0, 1, 4):
        windows = tokenizer.windows(["b"] * 30, contexts, max_len=9, overlap=overlap)
        for row, context in enumerate(contexts):
            mine = windows["rows"] == row
            starts = tf.boolean_mask(windows["starts"], mine)[:, 3:].numpy()
            lengths = tf.boolean_mask(windows["valid_lens"], mine).numpy() - 4
            places = [starts[w, :n].tolist() for w, n in enumerate(lengths)]
            assert sorted({p for place in places for p in place}) == [*range(0, len(context), 2)]
            for before, after in itertools.pairwise(places):
                assert before[len(before) - overlap :] == after[:overlap]


def test_an_answer_is_found_in_windows_that_contain_all_of_it(tokenizer):
    windows = tokenizer.windows("a", " ".join(WORDS[:8]), max_len=8, overlap=2)
    assert len(windows["rows"]) == 3
    assert answer_spans(windows, [4], [7]).numpy().tolist() == [[5, 6], [3, 4], [0, 0]]
    assert answer_spans(windows, [0], [1]).numpy().tolist() == [[3, 3], [0, 0], [0, 0]]
    assert answer_spans(windows, [2], [11]).numpy().tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("tail", ["\u0301", " ", "\u200b", " \u0301 "], ids=ascii)
def test_an_answer_may_start_and_end_with_characters_outside_all_tokens(tail, tokenizer):
    context = tail + " ".join(WORDS[:8]) + tail
    windows = tokenizer.windows(["a"] * 3, [context] * 3, max_len=8, overlap=2)
    last = len(context) - len(tail) - 1
    spans = answer_spans(windows, [0, last, 0], [len(tail) + 1, len(context), len(context)])
    nowhere = [0, 0]
    assert spans.numpy().reshape(3, 3, 2).tolist() == [
        [[3, 3], nowhere, nowhere],
        [nowhere, nowhere, [6, 6]],
        [nowhere] * 3,
    ]


@pytest.mark.slow
def test_a_graph_gives_the_same_result(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def windows(questions, contexts):
        return tokenizer.windows(questions, contexts, max_len=8, overlap=2)

    texts = tf.constant(["a", "b c"]), tf.constant([" ".join(WORDS), "d"])
    for name, tensor in tokenizer.windows(*texts, max_len=8, overlap=2).items():
        assert windows(*texts)[name].numpy().tolist() == tensor.numpy().tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match="leaves no more than overlap=2"):
        windows(tf.constant(["a b c"]), tf.constant(["d"]))


@pytest.mark.parametrize(
    ("question", "max_len", "overlap", "message"),
    [
        ("a b c", 8, 2, r"overlap=2 tokens of max_len=8"),
        ("a b c d e", 8, 0, r"overlap=0 tokens of max_len=8"),
        ("a", 4, 0, "`max_len` must be an integer of at least 5"),
        ("a", None, 0, "`max_len` must be an integer"),
        ("a", 8, -1, "`overlap` must be an integer of at least 0"),
        ("a", 8, 1.0, "`overlap` must be an integer"),
    ],
)
def test_windows_without_room_for_the_context_are_rejected(
    tokenizer, question, max_len, overlap, message
):
    with pytest.raises(ValueError, match=message):
        tokenizer.windows(question, "a b c", max_len, overlap)


def test_different_numbers_of_questions_and_contexts_are_rejected(tokenizer):
    with pytest.raises(ValueError, match="Received: 1 and 2"):
        tokenizer.windows(["a"], ["a", "b"], 8)


@pytest.mark.slow
def test_windows_of_squad_match_hugging_face(data_dir):
    vocab = Vocab.from_file(data_dir / "vocab" / "bert-base-uncased-vocab.txt")
    tokenizer = Tokenizer(vocab, compat="huggingface")
    path = data_dir / "golden" / "tokenization" / "qa_windows.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 20
    for line in lines:
        windows = tokenizer.windows(
            line["question"], line["context"], line["max_length"], line["overlap"]
        )
        rows = {name: tensor.numpy().tolist() for name, tensor in windows.items()}
        for i, length in enumerate(rows["valid_lens"]):
            assert rows["tokens"][i][:length] == line["input_ids"][i]
            assert rows["segments"][i][:length] == line["token_type_ids"][i]
            offsets = zip(rows["starts"][i][:length], rows["ends"][i][:length], strict=True)
            assert [list(pair) for pair in offsets] == line["offsets"][i]
        assert len(rows["rows"]) == len(line["input_ids"])
        start = line["answer_start"]
        spans = answer_spans(windows, [start], [start + len(line["answer_text"])])
        assert spans.numpy().tolist() == line["span"]
