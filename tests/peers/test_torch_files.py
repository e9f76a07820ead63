"""PyTorch files give the tensors that `torch.load(weights_only=True)` gives."""

import collections

import numpy as np
import pytest

from keras_bert_d2l.checkpoints.array_files import open_safetensors
from keras_bert_d2l.checkpoints.torch_files import open_torch

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def random_state(rng):
    """Return tensors with random dtypes, layouts and shared storages."""
    state = collections.OrderedDict()
    for number in range(8):
        base = torch.from_numpy(rng.normal(size=rng.integers(1, 7, 3))).to(rng.choice(DTYPES))
        state[f"{number}.base"] = base
        state[f"{number}.permuted"] = base.permute(*rng.permutation(3))
        state[f"{number}.part"] = base[rng.integers(len(base)) :, :: rng.integers(1, 4)]
        state[f"{number}.parameter"] = torch.nn.Parameter(base[0].clone())
    return state


def assert_as_pytorch(file, expected):
    arrays = open_torch([file])
    assert arrays.shapes == {name: tuple(x.shape) for name, x in expected.items()}
    for name, tensor in expected.items():
        if tensor.dtype in DTYPES:
            value = tensor.detach().float().numpy()
            np.testing.assert_array_equal(arrays.read(name), value, strict=True)


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_random_state_dicts_equal_those_of_pytorch(protocol, is_zip, tmp_path):
    rng = np.random.default_rng(protocol)
    for _ in range(5):
        options = {"pickle_protocol": protocol, "_use_new_zipfile_serialization": is_zip}
        torch.save(random_state(rng), tmp_path / "a.pt", **options)
        expected = torch.load(tmp_path / "a.pt", weights_only=protocol == 2)  # its reader knows 2
        assert_as_pytorch(tmp_path / "a.pt", expected)


def test_the_remedy_for_a_whole_model_writes_its_weights(tmp_path):
    model = torch.nn.Linear(3, 2)
    torch.save(model, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="'torch.nn.modules.linear Linear'.*save_model"):
        open_torch([tmp_path / "a.pt"])
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_model(model, tmp_path / "model.safetensors")
    weight = open_safetensors([tmp_path / "model.safetensors"]).read("weight")
    np.testing.assert_array_equal(weight, model.weight.detach().numpy())
