"""Data report: statistics of a text and its pretraining examples, rendered as an HTML page."""
