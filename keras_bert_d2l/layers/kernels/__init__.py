"""Parts of the training step that XLA fuses on TensorFlow's CPU; plain `keras.ops` elsewhere."""
