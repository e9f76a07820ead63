"""One `keras.Model` per fine-tuning task."""
