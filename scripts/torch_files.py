"""Write the PyTorch files in `tests/checkpoints/torch_files`, by PyTorch and transformers.

Run `.venv-peers/bin/python scripts/torch_files.py` from the root of the repository.
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parents[1] / "tests/checkpoints/torch_files"
# Names of files without their ending, the protocol of the pickle, and whether it is an archive.
FORMATS = {"zip-2": (2, True), "zip-5": (5, True), "old-3": (3, False), "old-4": (4, False)}
FOLDERS = ("bert-safetensors", "bert-zip", "bert-old", "bert-shards")
TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split()


def bert() -> dict[str, torch.Tensor]:
    """Return the state dict of a small random model, with the buffer that old versions stored."""
    config = transformers.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
        architectures=["BertForPreTraining"],
    )
    for folder in FOLDERS:
        config.save_pretrained(FOLDER / folder)
        (FOLDER / folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    state = transformers.BertForPreTraining(config).state_dict()
    state = {name: value + 0.1 * torch.randn_like(value) for name, value in state.items()}
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]
    state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"]
    return state | {"bert.embeddings.position_ids": torch.arange(16).expand((1, -1))}


def kinds() -> dict[str, torch.Tensor]:
    """Return tensors of every dtype and layout that a state dict may have."""
    table = torch.randn(3, 4)
    kinds = {
        "float32": table,
        "tied": table,
        "transposed": table.T,
        "every second": table[:, 1::2],
        "one row": table[2],
        "float16": torch.randn(2, 3, 2).half(),
        "bfloat16": torch.randn(5).bfloat16(),
        "bfloat16, transposed": torch.randn(2, 3).bfloat16().T,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "one column": torch.randn(2, 6)[:, 3:4],
    }
    integers = {"int64": torch.arange(4), "bool": torch.tensor([True, False])}
    return kinds | integers | {"int32": torch.arange(3).int(), "float64": torch.ones(2).double()}


def main() -> None:
    """Write all files."""
    torch.manual_seed(0)
    state = bert()
    tied = {name: value.clone() for name, value in state.items()}
    save_file(tied, FOLDER / "bert-safetensors/model.safetensors", metadata={"format": "pt"})
    torch.save(state, FOLDER / "bert-zip/pytorch_model.bin")
    old = {"_use_new_zipfile_serialization": False}
    torch.save(state, FOLDER / "bert-old/pytorch_model.bin", **old)
    names = sorted(state)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save({name: tied[name] for name in part}, FOLDER / "bert-shards" / file, **old)
        weight_map |= dict.fromkeys(part, file)
    index = FOLDER / "bert-shards/pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))

    tensors = kinds()
    values = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    save_file(values, FOLDER / "kinds.safetensors")
    for name, (protocol, is_zip) in FORMATS.items():
        options = {"pickle_protocol": protocol, "_use_new_zipfile_serialization": is_zip}
        torch.save(tensors, FOLDER / f"{name}.pt", **options)
    module = torch.nn.Linear(2, 2)  # its state dict has the versions of its modules
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(2)).sum().backward()
    optimizer.step()
    training = {
        "epoch": 3,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": module.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [],
        "loops": {"fit_loop": {"done": True, "loss": 0.25, "best": None, "steps": 2**40}},
    }
    torch.save(training, FOLDER / "lightning.ckpt")
    save_file(module.state_dict(), FOLDER / "lightning.safetensors")
    torch.serialization.set_crc32_options(False)
    torch.save(module.state_dict(), FOLDER / "no-checksums.pt")


if __name__ == "__main__":
    main()
