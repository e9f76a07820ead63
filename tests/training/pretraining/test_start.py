"""What a pretraining run from scratch starts from."""

from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.start import from_scratch


def test_the_size_of_a_learned_vocabulary_is_reported(text):
    corpus = Corpus.open(text, layout="lines")
    said = []
    for size in (40, 1000):
        options = PretrainingOptions(corpus=text, vocab_size=size, max_len=24)
        start = from_scratch(options, corpus, say=said.append)
        learned = len(start.tokenizer.vocab)
        reason = "" if size == 40 else ", because the text has no more repeated pieces"
        assert said[-2:] == [
            f"Vocabulary: learning {size:,} tokens from the text",
            f"Vocabulary: {learned:,} tokens{reason}",
        ]
