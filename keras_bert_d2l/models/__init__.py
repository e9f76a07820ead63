"""Models: layers assembled into `keras.Model`s, with the losses and metrics they train by."""
