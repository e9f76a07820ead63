"""The data report: what a model will see of a text, measured and shown as a page."""
