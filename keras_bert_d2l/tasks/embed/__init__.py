"""The task `embed`: vectors of texts that can be compared."""
