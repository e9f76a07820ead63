"""Attention, dense layers in int8, and what XLA fuses on TensorFlow's CPU: one way per device."""
