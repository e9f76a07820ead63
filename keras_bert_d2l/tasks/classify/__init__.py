"""The task `classify`: classification of texts and pairs of texts."""
