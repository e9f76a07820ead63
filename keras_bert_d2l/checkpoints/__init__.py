"""Save and load models with their tokenizers, in several checkpoint formats.

Start with `loading` and `saving`. `location` finds a checkpoint, and `detection` its format.
`formats` contains a module or a package for each format, `array_files` reads files of arrays, and
`weights` copies them into models. `surgery` changes the vocabulary, the positions or the blocks of
a model, and `adapters` stores LoRA.
"""
