"""The names of *Dive into Deep Learning* (d2l.ai), chapters 15.8, 15.9, 15.10 and 16.7.

    from keras_bert_d2l import book as d2l

runs the code of these chapters on the package's own layers, losses and models. Names, argument
orders and shapes are the book's. Where the book has a bug, our function fixes it, and its docstring
describes the difference.
"""

from keras_bert_d2l.book.blocks import (
    AddNorm,
    MultiHeadAttention,
    TransformerEncoderBlock,
    masked_softmax,
)
from keras_bert_d2l.book.finetuning import (
    DATA_HUB,
    BERTClassifier,
    SNLIBERTDataset,
    load_pretrained_model,
    read_snli,
)
from keras_bert_d2l.book.pretraining_data import (
    _get_mlm_data_from_tokens,
    _get_next_sentence,
    _get_nsp_data_from_paragraph,
    _pad_bert_inputs,
    _read_wiki,
    _replace_mlm_tokens,
    _WikiTextDataset,
    load_data_wiki,
)
from keras_bert_d2l.book.training import (
    _get_batch_loss_bert,
    get_bert_encoding,
    to_keras_batch,
    train_bert,
    try_all_gpus,
)
from keras_bert_d2l.book.vocabulary import Vocab, tokenize
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NextSentencePred
from keras_bert_d2l.layers.sublayers import PositionWiseFFN
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.framing import get_tokens_and_segments

__all__ = [
    "DATA_HUB",
    "AddNorm",
    "BERTClassifier",
    "BERTEncoder",
    "BERTModel",
    "MaskLM",
    "MultiHeadAttention",
    "NextSentencePred",
    "PositionWiseFFN",
    "SNLIBERTDataset",
    "TransformerEncoderBlock",
    "Vocab",
    "_WikiTextDataset",
    "_get_batch_loss_bert",
    "_get_mlm_data_from_tokens",
    "_get_next_sentence",
    "_get_nsp_data_from_paragraph",
    "_pad_bert_inputs",
    "_read_wiki",
    "_replace_mlm_tokens",
    "get_bert_encoding",
    "get_tokens_and_segments",
    "load_data_wiki",
    "load_pretrained_model",
    "masked_softmax",
    "read_snli",
    "to_keras_batch",
    "tokenize",
    "train_bert",
    "try_all_gpus",
]
