"""The task `regress`: scores of texts and pairs of texts."""
