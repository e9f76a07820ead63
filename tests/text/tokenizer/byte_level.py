"""Small tokenizers of byte-level BPE, with the fields of a `tokenizer.json`."""

from keras_bert_d2l.text.definition import BYTES

MERGES = "Ġ t|h e|Ġt he|i n|Ġ c|a t|Ġc at|s at|a a|Ġ Ġ|à ¤".split("|")
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def roberta_fields(**changes):
    """Return the fields of a tokenizer like that of RoBERTa. `changes` replace parts."""
    words = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*SPECIALS, *BYTES, *words, "<mask>"]
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    spaces = {"add_prefix_space": False, "trim_offsets": True}
    fields = {
        "added_tokens": [
            {"id": tokens.index(token), "content": token, "lstrip": token == "<mask>", **flags}
            for token in (*SPECIALS, "<mask>")
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **spaces},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            **spaces,
        },
        "decoder": {"type": "ByteLevel", **spaces},
        "model": {"type": "BPE", "vocab": {t: n for n, t in enumerate(tokens)}, "merges": MERGES},
    }
    return fields | changes
