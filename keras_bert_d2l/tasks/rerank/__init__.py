"""The task `rerank`: how well texts answer a query."""
