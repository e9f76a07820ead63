"""Learning rate range test: which learning rates a model can train with."""
