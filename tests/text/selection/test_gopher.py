"""The rules of Gopher (Rae et al. 2021, appendix A.1.1)."""

import collections
import random

import pytest

from keras_bert_d2l.text.selection.gopher import broken_rules

DRAW = random.Random(0)
WORDS = ["the", "of", *("".join(DRAW.choices("abcdefgh", k=5)) for _ in range(2000))]
PROSE = [" ".join(["the", "of", *DRAW.sample(WORDS, 10)]) for _ in range(10)]


def rule(document):
    (reason,) = broken_rules([document])
    return reason and reason.removeprefix("Gopher: ")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (PROSE, None),
        (PROSE[:4], "number of words"),  # 48 words
        ([*PROSE[:4], "two more"], None),
        ([text for number in range(8400) for text in PROSE[:1]], "number of words"),
        ([" ".join(word[:2] for word in text.split()) for text in PROSE], "length of words"),
        ([text.replace(" ", "abcdefgh ") for text in PROSE], "length of words"),
        ([f"# {text[3:]} #" for text in PROSE], "symbols"),
        ([f"{text[3:]} ... a ... b" for text in PROSE], "symbols"),
        ([f"- {text}" for text in PROSE], "bullet points"),
        ([f"- {text}" for text in PROSE[:9]] + PROSE[9:], None),
        ([f"{text}..." for text in PROSE[:4]] + PROSE[4:], "ellipses"),
        ([f"{text}…" for text in PROSE[:3]] + PROSE[3:], None),
        ([f"{text} 1234 $567 8901 2.50" for text in PROSE], "words without letters"),
        ([text.replace("of", "off").replace("to", "too") for text in PROSE], "stop words"),
        ([*PROSE[:6], *PROSE[:4]], "repeated sentences"),
        ([*PROSE[:8], *PROSE[:1]], "repeated phrases"),
    ],
)
def test_each_rule_discards_what_it_is_for(document, expected):
    assert rule(document) == expected


def share_of_top(words, n):
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    counts = collections.Counter(grams)
    gram = max(counts, key=lambda g: (counts[g], sum(map(len, g))))
    if counts[gram] == 1:
        return 0
    return counts[gram] * sum(map(len, gram)) / sum(map(len, words))


def share_of_copies(words, n):
    seen, covered = set(), set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            covered.update(range(i, i + n))
        seen.add(gram)
    return sum(len(words[i]) for i in covered) / sum(map(len, words))


def is_repetitive(document):
    words = " ".join(document).split()
    tops, copies = (
        {2: 0.20, 3: 0.18, 4: 0.16},
        dict(zip(range(5, 11), range(15, 9, -1), strict=True)),
    )
    return any(share_of_top(words, n) > most for n, most in tops.items()) or any(
        share_of_copies(words, n) > most / 100 for n, most in copies.items()
    )


@pytest.mark.slow
def test_repeated_phrases_are_found_as_by_a_direct_computation():
    draw = random.Random(2)
    documents = []
    for _ in range(300):
        words = draw.choices(WORDS, k=draw.randint(60, 200))
        size, times = draw.randint(2, 15), draw.randint(1, 8)
        phrase = draw.choices(WORDS, k=size)
        for _ in range(times):
            place = draw.randrange(len(words))
            words[place:place] = phrase
        documents.append([" ".join(["the", "of", *words])])
    expected = [is_repetitive(document) for document in documents]
    assert 50 < sum(expected) < 250
    found = [reason == "Gopher: repeated phrases" for reason in broken_rules(documents)]
    assert found == expected
    assert found == [broken_rules([d])[0] is not None for d in documents]  # in any batch


def plain_rule(document):
    """Return the first broken rule as the paper words it, one document and one word at a time."""
    words = " ".join(document).split()
    text = " ".join(words)
    copies = [line for number, line in enumerate(document) if line in document[:number]]
    bullets = tuple("•‣▪●◦*-–")
    broken = {
        "number of words": not 50 <= len(words) <= 100_000,
        "length of words": words and not 3 <= sum(map(len, words)) / len(words) <= 10,
        "symbols": max(text.count("#"), text.count("...") + text.count("…")) > 0.1 * len(words),
        "bullet points": sum(line.startswith(bullets) for line in document) > 0.9 * len(document),
        "ellipses": sum(line.endswith(("...", "…")) for line in document) > 0.3 * len(document),
        "words without letters": sum(any(map(str.isalpha, word)) for word in words)
        < 0.8 * len(words),
        "stop words": len(
            {"the", "be", "to", "of", "and", "that", "have", "with"}.intersection(
                text.lower().split(" ")
            )
        )
        < 2,
        "repeated sentences": len(copies) > 0.3 * len(document)
        or sum(map(len, copies)) > 0.2 * len(text),
        "repeated phrases": len(words) > 1 and is_repetitive(document),
    }
    return next((name for name, is_broken in broken.items() if is_broken), None)


def random_document(draw):
    rare = ["#", "...", "…", "–", "12", "“Of", "é", "Да", "мир", "a\u00a0b", " ", "\t", "x..."]
    weights = [draw.choice([0, 0, 0.1, 3]) for _ in rare]
    words = [*rare, *WORDS[:300]]
    weights += [draw.choice([0, 9, 20]), draw.choice([0, 9, 20]), *[1] * 298]
    document = [
        " ".join(draw.choices(words, weights, k=draw.randint(1, 15)))
        for _ in range(draw.randint(4, 20))
    ]
    phrase = " ".join(draw.choices(words, weights, k=draw.randint(2, 14)))
    for _ in range(draw.choice([0, 1, 3, 8])):
        document[draw.randrange(len(document))] += f" {phrase}"
    document += draw.choices(document, k=draw.choice([0, 0, 1, 4]))
    form = draw.choice(["{}", "{}", "{}", "- {}", "{}..."])
    return [form.format(line) for line in document[1:]] + document[:1]


@pytest.mark.slow
def test_all_rules_give_the_result_of_a_direct_computation_on_random_documents():
    draw = random.Random(3)
    documents = [random_document(draw) for _ in range(1500)]
    expected = [plain_rule(document) for document in documents]
    assert len(set(expected)) >= 8
    for size in (1, 40, 1500):
        found = []
        for first in range(0, len(documents), size):
            found += broken_rules(documents[first : first + size])
        assert [reason and reason.removeprefix("Gopher: ") for reason in found] == expected


@pytest.mark.slow
def test_a_document_of_a_million_words_does_not_change_what_is_found_in_others():
    draw = random.Random(0)
    document = [
        "the and to be " + " ".join("".join(draw.choices("abcdef", k=9)) for _ in range(300))
    ]
    long = ["the same words again and again " * 200_000]
    assert broken_rules([document, long]) == [None, "Gopher: number of words"]


def test_documents_without_words_are_discarded():
    assert broken_rules([]) == []
    assert broken_rules([[""], []]) == ["Gopher: number of words"] * 2
