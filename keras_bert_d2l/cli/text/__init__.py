"""Commands on raw text: vocabulary, token store, report."""
