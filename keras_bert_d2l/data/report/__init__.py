"""Data report: statistics of a text and of its pretraining examples, as text."""
