"""The kind of device that trains and predicts."""

import re
from typing import NamedTuple

import keras

AMPERE = (8, 0)
"""Compute capability of the first NVIDIA generation with fast bfloat16."""


class Device(NamedTuple):
    """The kind of the devices of this process.

    Attributes:
        platform: `"cpu"`, `"gpu"` or `"tpu"`; `"unknown"` with other Keras backends than TensorFlow
            and JAX.
        capability: Compute capability of the oldest NVIDIA GPU, such as `(8, 0)`, or `()`.
    """

    platform: str
    capability: tuple[int, ...] = ()


def device() -> Device:
    """Return the kind of device on which Keras computes."""
    backend = keras.backend.backend()
    return _DEVICES[backend]() if backend in _DEVICES else Device("unknown")


def _tensorflow_device() -> Device:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    capabilities = [detail.get("compute_capability", ()) for detail in details]
    return Device("gpu", min(capabilities)) if gpus else Device("cpu")


def _jax_device() -> Device:
    import jax

    devices = jax.devices()
    if devices[0].platform != "gpu":
        return Device(devices[0].platform)
    # Such as "8.0" or "gfx90a".
    names = [str(getattr(device, "compute_capability", "")) for device in devices]
    capabilities = [re.findall(r"^\d+|(?<=\.)\d+$", name) for name in names]
    return Device("gpu", min(tuple(map(int, numbers)) for numbers in capabilities))


_DEVICES = {"tensorflow": _tensorflow_device, "jax": _jax_device}
