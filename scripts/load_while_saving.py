"""Load a checkpoint many times while another process replaces it without a pause.

All weights and one token of each version are its number, so a load that mixes two versions is
detected. The exit code is 1 if there was one.

    python scripts/load_while_saving.py --loads 1000
"""

import argparse
import multiprocessing
import pathlib
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized

import numpy as np

FORMATS = ("native", "huggingface", "google", "book")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write(parent: pathlib.Path, format: "Synchronized[int]", count: "Synchronized[int]") -> None:
    """Save versions 1, 2, 3 and so on in the current format, whose number is `format`."""
    import keras_bert_d2l as kb

    for current, name in enumerate(FORMATS):
        preset = "d2l-torch" if name == "book" else "google"
        config = kb.BERTConfig.preset(
            preset,
            vocab_size=6,
            num_hiddens=4,
            ffn_num_hiddens=4,
            num_heads=1,
            num_blks=1,
            max_len=8,
        )
        model = kb.BERTModel.from_bert_config(config)
        while format.value == current:
            number = count.value + 1
            for weight in model.trainable_weights:
                weight.assign(np.full(weight.shape, number, "float32"))
            tokenizer = kb.Tokenizer(kb.Vocab([*SPECIALS, f"version{number}"]))
            kb.save_pretrained(model, parent / name, tokenizer=tokenizer, format=name)
            count.value = number


def versions(folder: pathlib.Path) -> set[float]:
    """Load the checkpoint and return the numbers of the versions that it consists of."""
    import keras_bert_d2l as kb

    model, tokenizer, _ = kb.load_pretrained(folder, verbose=False)
    found = {float(value) for weight in model.trainable_weights for value in np.unique(weight)}
    return found | {float(tokenizer.vocab.tokens[-1].removeprefix("version"))}


def main() -> int:
    """Run the loads and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loads", type=int, default=1000, help="Number of loads.")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    format, count = context.Value("i", 0), context.Value("i", 0)
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        parent = pathlib.Path(temporary)
        writer = context.Process(target=write, args=(parent, format, count))
        writer.start()
        try:
            for format.value, name in enumerate(FORMATS):
                while not (parent / name).exists():
                    time.sleep(0.1)
                start, first = time.monotonic(), count.value
                found = [versions(parent / name) for _ in range(arguments.loads)]
                mixed = sum(len(numbers) > 1 for numbers in found)
                print(
                    f"{name}: {len(found)} loads in {time.monotonic() - start:.0f} s, of "
                    f"{len(set.union(*found))} versions out of {count.value - first}: {mixed} mixed"
                )
                wrong += mixed
        finally:
            format.value = len(FORMATS)
            writer.join()
        left = {entry.name for entry in parent.iterdir()} - set(FORMATS)
    print(f"{wrong} mixed, {len(left)} left-over files")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    raise SystemExit(main())
