"""Files of the data folder that others published, some of them compressed with xz."""

import json
import lzma
import shutil

import keras_bert_d2l as kb


def read(file):
    """Return the value of a compressed JSON file, named without its ending `.xz`."""
    return json.loads(lzma.decompress(file.with_name(f"{file.name}.xz").read_bytes()))


def load(data_dir, name, to):
    """Load the tokenizer of a folder whose files may be compressed."""
    for file in (data_dir / "real" / name).iterdir():
        if file.suffix == ".xz":
            (to / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
        else:
            shutil.copyfile(file, to / file.name)
    return kb.load_tokenizer(to)
