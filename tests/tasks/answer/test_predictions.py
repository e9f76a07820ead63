import itertools
import math

import numpy as np
import pytest

from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import FoundAnswer, answer, best_spans

LONG = "the mat on rug sat ran good mat the rug on bad cat sat dog ran the mat on rug good"
QUESTIONS = ["the rug", "good dog ran"]
CONTEXTS = ["the cat sat on the mat", LONG]


@pytest.fixture(scope="module")
def reader(open_task):
    """A question answerer whose answers start with a cat and end with a dog."""
    return open_task(QuestionAnswerer, {("cat", 0): 1.0, ("dog", 1): 1.0})


@pytest.fixture(scope="module")
def random_reader(words_bert, words_tokenizer):
    model = QuestionAnswerer(words_bert, tokenizer=words_tokenizer)
    model.head.kernel.assign(np.random.default_rng(1).normal(0, 1, (8, 2)))
    model.run_eagerly = True
    return model


def all_spans(model, question, context, max_len, overlap, max_answer_len):
    """Return the logit of every span by its character range, and the lowest no-answer logit."""
    windows = {
        name: values.numpy()
        for name, values in model.tokenizer.windows(question, context, max_len, overlap).items()
    }
    logits = model({name: windows[name] for name in ("tokens", "segments", "valid_lens")})
    start, end = np.asarray(logits["start"], "float64"), np.asarray(logits["end"], "float64")
    scores = {}
    for window, segments in enumerate(windows["segments"]):
        places = [
            t for t in np.flatnonzero(segments) if windows["ends"][window, t] > 0
        ]  # not the separator
        for first, last in itertools.combinations_with_replacement(places, 2):
            if last - first < max_answer_len:
                place = (windows["starts"][window, first], windows["ends"][window, last])
                score = start[window, first] + end[window, last]
                scores[place] = max(score, scores.get(place, -math.inf))
    return scores, (start[:, 0] + end[:, 0]).min()


def test_an_answer_is_an_exact_substring_of_its_context(reader):
    context = "  On:\tÇAT's  sat, Dogs."
    [found] = answer(reader, "cat dog", context)
    assert found.text == context[found.start : found.end] == "ÇAT's  sat, Dog"
    for max_answer_len, is_short in ((6, False), (5, True)):  # cat ' s sat , dog
        [found] = answer(reader, "cat dog", context, max_answer_len=max_answer_len)
        assert (found.text != "ÇAT's  sat, Dog") == is_short


def test_combining_accents_belong_to_the_answer(reader):
    for context in ("the cat dog\u0301", "the cat dog\u0301\u0301 sat"):
        found = answer(reader, "dog", context, top_k=9)
        assert found[0].text == context[found[0].start : found[0].end]
        assert found[0].text.startswith("cat dog\u0301")
        assert "dog" not in [one.text.split()[-1] for one in found]


def test_a_context_without_tokens_has_the_empty_answer(reader):
    found = answer(reader, ["cat", "dog"], ["\u200b", "cat dog"], null_threshold=99.0)
    assert [best.text for [best] in found] == ["", "cat dog"]
    assert found[0][0] == FoundAnswer("", 0.0, 0, 0, found[0][0].null_logit, found[0][0].null_logit)


@pytest.mark.slow
def test_the_best_spans_of_all_windows_are_found(random_reader):
    for row, sizes in ((0, (16, 5, 30)), (1, (13, 3, 2))):
        question, context = QUESTIONS[row], CONTEXTS[row]
        expected, null = all_spans(random_reader, question, context, *sizes)
        ranking = sorted(expected.values(), reverse=True)[:5]
        options = dict(zip(("max_len", "overlap", "max_answer_len"), sizes, strict=True))
        found = answer(random_reader, question, context, top_k=5, **options)
        assert [one.logit for one in found] == pytest.approx(ranking, abs=1e-5)
        for one in found:
            assert one.logit == pytest.approx(expected[one.start, one.end], abs=1e-5)
            assert one.text == context[one.start : one.end]
            assert one.null_logit == pytest.approx(null, abs=1e-5)


def test_a_score_is_the_probability_among_the_20_best_answers(random_reader):
    expected, _ = all_spans(random_reader, QUESTIONS[1], LONG, 16, 5, 30)
    best = np.exp(sorted(expected.values(), reverse=True)[:20])
    found = answer(random_reader, QUESTIONS[1], LONG, top_k=20)
    assert [one.score for one in found] == pytest.approx(best / best.sum(), abs=1e-5)


@pytest.mark.long
def test_answers_do_not_depend_on_the_batch_size(random_reader):
    alone = [
        answer(random_reader, *pair, top_k=2) for pair in zip(QUESTIONS, CONTEXTS, strict=True)
    ]
    found = answer(random_reader, QUESTIONS, CONTEXTS, top_k=2, batch_size=2)
    for one, other in zip(found, alone, strict=True):
        assert [(x.start, x.end) for x in one] == [(x.start, x.end) for x in other]
        assert [x.logit for x in one] == pytest.approx([x.logit for x in other], abs=1e-5)
    assert answer(random_reader, [], []) == []


def test_several_questions_can_share_one_context(reader):
    found = answer(reader, ["the rug", "on a mat"], LONG)
    assert [best.text for [best] in found] == ["cat sat dog"] * 2


@pytest.mark.long
def test_questions_keep_their_order_across_chunks(reader):
    contexts = ["cat dog", "cat on dog"] * 260
    found = answer(reader, ["the"] * 520, contexts, batch_size=520)
    assert [best.text for [best] in found] == contexts


def test_no_answer_is_ranked_first_above_the_threshold(random_reader):
    [best] = answer(random_reader, QUESTIONS[0], LONG)
    margin = best.null_logit - best.logit
    assert best.null_margin == pytest.approx(margin)
    for threshold, text in ((margin + 0.01, best.text), (margin - 0.01, "")):
        found = answer(random_reader, QUESTIONS[0], LONG, top_k=3, null_threshold=threshold)
        assert len(found) == 3
        assert [one.text == "" for one in found] == [text == "", False, False]
        spans = [one for one in found if one.text]
        assert spans[0].text == best.text
        null_share = spans[0].score * math.exp(margin)
        if not text:
            assert found[0] == FoundAnswer(
                "", pytest.approx(null_share), 0, 0, best.null_logit, best.null_logit
            )
        assert spans[0].score == pytest.approx(
            best.score / (1 + best.score * math.exp(margin)), rel=1e-6
        )


def test_a_context_with_fewer_than_top_k_spans_has_fewer_answers(reader):
    assert [one.text for one in answer(reader, "the", "cat", top_k=9)] == ["cat"]
    found = answer(reader, "the", "cat dog", top_k=9)
    assert sorted(one.text for one in found) == ["cat", "cat dog", "dog"]
    assert sum(one.score for one in found) == pytest.approx(1)


def test_spans_are_ranked_by_the_sum_of_their_logits():
    logits = {"start": np.array([[1.0, 2.0, 3.0]]), "end": np.array([[10.0, 20.0, 30.0]])}
    segments, ends = np.array([[0, 1, 1, 1]]), np.array([[1, 2, 3, 0]])  # extra padding
    windows = {"segments": segments, "starts": np.zeros_like(ends), "ends": ends}

    def found(max_answer_len, num_best):
        values = best_spans(windows, logits, max_answer_len=max_answer_len, num_best=num_best)
        return list(zip(*(one.numpy().tolist() for one in values), strict=True))

    best = [(33.0, 0, 2, 2), (32.0, 0, 1, 2), (22.0, 0, 1, 1)]
    assert found(2, 2) == best[:2]
    assert found(2, 9) == best
    assert found(1, 9) == [best[0], best[2]]


def test_the_error_names_a_question_that_leaves_no_space_for_its_context(reader):
    with pytest.raises(ValueError, match="at most 7 tokens.*9 tokens in question 1; shorten it"):
        answer(reader, ["dog", "the cat sat on the mat the rug sat"], "cat dog")
    assert answer(reader, "the cat sat on the mat the rug sat", "cat dog", overlap=0)[0].text


def test_the_limit_of_an_answer_may_exceed_its_context(reader):
    expected = answer(reader, "dog", "cat sat dog", max_answer_len=3)
    assert answer(reader, "dog", "cat sat dog", max_answer_len=2**30) == expected


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["dog", " "], ["cat", "dog"]), {}, "question must.*' ' at index 1"),
        (("dog", ""), {}, "A context must not be empty"),
        ((["dog", "cat"], ["rug"]), {}, "2 questions and 1 contexts"),
        (("dog", "cat"), {"max_answer_len": 0}, "`max_answer_len`.*=0"),
        (("dog", "cat"), {"max_len": 17}, "`max_len` must be from 6 to 16"),
        (("dog", "cat"), {"overlap": -1}, "`overlap`.*=-1"),
        (("dog", "cat"), {"null_threshold": math.nan}, "`null_threshold`.*=nan"),
    ],
)
def test_arguments_are_checked(arguments, options, message, reader):
    with pytest.raises(ValueError, match=message):
        answer(reader, *arguments, **options)
