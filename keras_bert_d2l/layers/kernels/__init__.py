"""Attention, int8 dense layers and operations fused for TensorFlow's CPU, for each device."""
