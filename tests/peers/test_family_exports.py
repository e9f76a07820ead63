"""Exports of BERT's relatives answer strings as transformers does, with TensorFlow alone."""

import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.nightly import nightly_except

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

family = pytest.importorskip("scripts.originals.family")
byte_pairs = pytest.importorskip("tests.peers.test_byte_pairs")  # needs tokenizers

pytestmark = pytest.mark.filterwarnings("ignore:Truncated to 30 tokens")
ASK = pathlib.Path(__file__).parents[1] / "serving" / "loaders" / "ask.py"
LIMIT = 30  # tokens of a row, and of the longest answer
TEXTS = [
    "Ada lives in London, the big city.",
    "",
    "a MASK cat sat  on the MASK",
    "Café naïve 猫🙂\tparis\u00a0SEP \u0301x ½ ﬁn",
    "The film is good about sport and bad on a mat. " * 6,
]
OTHERS = [TEXTS[4], TEXTS[0], "", "in Paris MASK", TEXTS[4][3:]]
QUESTIONS = ["a cat", "Ada", "is", "in London", "on the mat"]
WORDS = "the a cat sat on mat good bad film big paris london ada lives in is city . , é".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIALS = {  # the first tokens of the vocabulary
    "BertTokenizer": "[PAD] [UNK] [CLS] [SEP] [MASK]",
    "MPNetTokenizer": "<s> <pad> </s> [UNK] <mask>",
    "AlbertTokenizer": "<pad> <unk> [CLS] [SEP] [MASK]",
    "CamembertTokenizer": "<s>NOTUSED <pad> </s>NOTUSED <unk> <s> </s> <mask>",
    "XLMRobertaTokenizer": "<s> <pad> </s> <unk> <mask>",
}
BYTE_PAIRS = {
    "roberta": "<pad> <unk> <s> </s> <mask>",
    "modernbert": "[PAD] [UNK] [CLS] [SEP] [MASK]",
    "deberta": "[PAD] [UNK] [CLS] [SEP] [MASK]",
}
COUNTED = ("roberta", "camembert", "xlm-roberta", "mpnet")  # positions start at 2


def their_tokenizer(name):
    """Return a small tokenizer of transformers for a model type."""
    if name in BYTE_PAIRS:
        roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        theirs = byte_pairs.trained(name.replace("deberta", "modernbert"), [" ".join(WORDS)] * 9)
        specials = dict(zip(roles, BYTE_PAIRS[name].split(), strict=True))
        return transformers.PreTrainedTokenizerFast(tokenizer_object=theirs, **specials)
    title = type(family.original(name, "Model")).__name__.removesuffix("Model")
    same = {"DistilBert": "Bert", "Electra": "Bert", "DebertaV2": "Albert"}
    title = f"{same.get(title, title)}Tokenizer"
    specials = SPECIALS[title].split()
    if title in ("BertTokenizer", "MPNetTokenizer"):
        tokens = dict.fromkeys([*specials, *WORDS, *LETTERS, *(f"##{x}" for x in LETTERS)])
        vocab = {token: number for number, token in enumerate(tokens)}
    else:
        pieces = [*(f"▁{word}" for word in WORDS), "▁", *LETTERS, *LETTERS.upper(), ",", "é", "fi"]
        vocab = [*((x, 0.0) for x in specials), *((x, len(x) - 9.0) for x in pieces)]
    return getattr(transformers, title)(vocab=vocab)


class Exported:
    """A random model of transformers with its tokenizer, and its export in another process."""

    def __init__(self, name, folder, ending, **options):
        self.folder, self.tokenizer = folder, their_tokenizer(name)
        options |= {"pad_token_id": self.tokenizer.pad_token_id}
        options |= {"max_position_embeddings": LIMIT + 2 * (name in COUNTED)}
        self.theirs = family.original(name, ending, vocab_size=len(self.tokenizer), **options)
        self.theirs.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.ours = kb.load_pretrained(folder, verbose=False).model
        self.has_segments = name in ("electra", "albert")

    def texts(self, texts):
        mask, sep = self.tokenizer.mask_token, self.tokenizer.sep_token
        return [text.replace("MASK", mask).replace("SEP", sep) for text in texts]

    def ask(self, *signatures, options=None, **texts):
        """Return the answers of signatures of the export."""
        path = kb.export_saved_model(self.ours, self.folder / "export", **options or {})
        assert kb.audit_saved_model(path) == []
        inputs = {
            name: ("string", (len(some),), [text.encode().decode("latin-1") for text in some])
            for name, some in texts.items()
        }
        requests = [[signature, inputs] for signature in signatures]
        model = {"folder": str(path), "loaders": ["eager"], "requests": requests}
        (self.folder / "questions.json").write_text(json.dumps({"model": model}))
        command = [sys.executable, ASK, "questions.json", "answers.npz"]
        subprocess.run(command, cwd=self.folder, check=True, timeout=300)
        found = [{} for _ in requests]
        for key, array in np.load(self.folder / "answers.npz").items():
            found[int(key.split("/")[2])][key.split("/")[3]] = array
        return found

    def rows(self, *texts, truncation=True, **options):
        """Return the tokens of strings, and what the model of transformers computes for them."""
        options |= {"truncation": truncation, "max_length": LIMIT, "return_tensors": "pt"}
        options |= {"padding": True, "return_offsets_mapping": True}
        rows = self.tokenizer(*texts, return_token_type_ids=self.has_segments, **options)
        names = rows.keys() & {"input_ids", "attention_mask", "token_type_ids"}
        with torch.no_grad():
            outputs = self.theirs(**{name: rows[name] for name in names}, output_hidden_states=True)
        return rows, outputs


each_night = pytest.mark.parametrize("name", nightly_except([], family.MODEL_TYPES))


def assert_close(found, expected):
    np.testing.assert_allclose(found, np.asarray(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", nightly_except(["albert"], family.MODEL_TYPES))
def test_masks_and_vectors_of_texts(name, tmp_path):
    one = Exported(name, tmp_path, "ForMaskedLM")
    texts = one.texts(TEXTS)
    masks, vectors = one.ask("fill_mask", "embed", text=texts)
    rows, outputs = one.rows(texts)
    weights = rows["attention_mask"][..., None]
    means = (outputs.hidden_states[-1] * weights).sum(1) / weights.sum(1)
    expected = torch.nn.functional.normalize(means)
    assert_close(vectors["embedding"], expected)
    assert_close(kb.embed(one.ours, texts), expected)
    best = outputs.logits[rows["input_ids"] == one.tokenizer.mask_token_id].softmax(-1).topk(5)
    assert_close(masks["scores"][2], best.values)
    assert masks["ids"][2].tolist() == best.indices.tolist()
    found = kb.fill_mask(one.ours, texts[2])
    assert [[token.id for token in some] for some in found] == best.indices.tolist()


@pytest.mark.parametrize("name", nightly_except(["electra"], family.MODEL_TYPES))
def test_scores_of_pairs(name, tmp_path):
    one = Exported(name, tmp_path, "ForSequenceClassification", problem_type="regression")
    a, b = one.texts(TEXTS), one.texts(OTHERS)
    (found,) = one.ask("serving_default", text=a, text_b=b, options={"pairs": True})
    expected = one.rows(a, b)[1].logits
    assert_close(found["scores"], expected)
    assert_close([list(x.scores.values()) for x in kb.regress(one.ours, a, b)], expected)


@each_night
def test_tags_of_words(name, tmp_path):
    one = Exported(name, tmp_path, "ForTokenClassification")
    texts = one.texts(TEXTS)
    (found,) = one.ask("serving_default", text=texts)
    rows, outputs = one.rows(texts)
    ends, scores = rows["offset_mapping"][..., 1].numpy(), outputs.logits.softmax(-1).numpy()
    for row, text in enumerate(texts):
        words = [word.decode() for word in found["words"][row] if word]
        if not found["truncated"][row]:
            assert [tag.word for tag in kb.tag(one.ours, text)] == words
        for place, word in enumerate(words):
            start = found["starts"][row, place]
            assert text[start : start + len(word)] == word
            token = np.argmax(ends[row] > start)
            # In byte-level BPE, a space may be a token of its own, the first one of a word.
            while name in BYTE_PAIRS and token > 1 and rows.tokens(row)[token][0] not in "Ġĉ <[":
                token -= 1
            assert_close(found["scores"][row, place], scores[row, token].max())
            assert found["ids"][row, place] == scores[row, token].argmax()


@each_night
def test_answers_in_windows_of_contexts(name, tmp_path):
    one = Exported(name, tmp_path, "ForQuestionAnswering")
    contexts = [text or "a cat" for text in one.texts(TEXTS)]
    (found,) = one.ask("serving_default", question=QUESTIONS, context=contexts)
    options = {"stride": LIMIT // 3, "return_overflowing_tokens": True}
    for row, (question, context) in enumerate(zip(QUESTIONS, contexts, strict=True)):
        rows, outputs = one.rows([question], [context], truncation="only_second", **options)
        best, nulls = (-np.inf, 0, 0), []
        for window, offsets in enumerate(rows["offset_mapping"].tolist()):
            starts, ends = (outputs[f"{side}_logits"][window].numpy() for side in ("start", "end"))
            nulls.append(starts[0] + ends[0])
            places = [n for n, kind in enumerate(rows.sequence_ids(window)) if kind == 1]
            spans = itertools.combinations_with_replacement(places, 2)
            scored = ((starts[i] + ends[j], offsets[i][0], offsets[j][1]) for i, j in spans)
            best = max(best, *scored)
        assert_close(found["null_score"][row], min(nulls) - best[0])
        text = found["answer"][row].decode()
        assert text == context[best[1] : best[2]].strip()
        (ours,) = kb.answer(one.ours, question, context)
        assert (ours.text, ours.start) == (text, found["start"][row])
