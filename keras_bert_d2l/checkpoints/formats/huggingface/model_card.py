"""Write the model card of a checkpoint: `README.md` with the metadata that the Hub shows.

Source: huggingface.co/docs/hub/model-cards.
"""

import json
import pathlib

from keras_bert_d2l.checkpoints.formats.huggingface.model_types import MODEL_TYPES
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import MODULES_FILE
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.contract.registry import tasks
from keras_bert_d2l.files import CARD_FILE
from keras_bert_d2l.printing import one_line
from keras_bert_d2l.types import ConfigDict

_PIPELINES = {"ForMaskedLM": "fill-mask", "ForPreTraining": "fill-mask"}  # by the end of a class
_CARD = """\
---
library_name: {library}
{pipeline}tags:
- {model_type}
- keras
---

# {title}

<!-- Add the license and the language to the metadata above, and describe the training data and the
results here. -->

A `{architecture}`, saved by [keras_bert_d2l](https://github.com/keras-bert-d2l/keras-bert-d2l).

| part | size |
|---|---|
| blocks | {config.num_blks} |
| width | {config.num_hiddens} |
| attention heads | {config.num_heads} |
| vocabulary | {config.vocab_size:,} |
| tokens per text | {config.max_len} |
{labels}
## Use in Keras

```python
import keras_bert_d2l as kb

{in_keras}
```
"""
_IN_KERAS = "model, tokenizer, config = kb.load_pretrained({name})"
_EMBED_IN_KERAS = """\
model = kb.TextEmbedder.from_pretrained({name})
vectors = kb.embed(model, ["a text"])"""


def write_card(folder: pathlib.Path, config: BERTConfig, fields: ConfigDict) -> None:
    """Write the model card of a folder. The Hub itself shows how to use a model in PyTorch.

    Args:
        folder: The folder, whose name becomes the title. If it defines the embedding of a text,
            the card is for sentence-transformers.
        config: The architecture.
        fields: The fields of `config.json`.
    """
    embeds_texts = (folder / MODULES_FILE).is_file()
    [architecture] = fields["architectures"]
    named = filter(None, (task.huggingface for task in tasks().values()))
    pipelines = _PIPELINES | {one.architecture.removeprefix("Bert"): one.pipeline for one in named}
    ending = architecture.removeprefix(MODEL_TYPES[fields["model_type"]].title)
    pipeline = "sentence-similarity" if embeds_texts else pipelines.get(ending)
    in_keras = _EMBED_IN_KERAS if embeds_texts else _IN_KERAS
    names = (one_line(label).replace("`", r"\u0060") for label in fields.get("label2id", ()))
    labels = ", ".join(f"`{name}`" for name in names)
    text = _CARD.format(
        config=config,
        model_type=fields["model_type"],
        title=one_line(folder.name),
        architecture=architecture,
        pipeline=f"pipeline_tag: {pipeline}\n" if pipeline else "",
        labels=f"\nLabels: {labels}.\n" if labels else "",
        library="sentence-transformers" if embeds_texts else "transformers",
        in_keras=in_keras.format(name=json.dumps(f"OWNER/{folder.name}")),
    )
    (folder / CARD_FILE).write_text(text, encoding="utf-8")
