"""Commands for raw text: vocabulary, token store and data report."""
