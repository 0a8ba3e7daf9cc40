"""Text files to token shards.

`sources` finds and opens files, `forms` and `sentences` handle the layout of text, `readers` cuts files into blocks,
`parsing` turns blocks into documents, `encode` and `build` write them as the token shards that `shards` opens, `checks`
finds problems in a corpus, `frequencies` counts its pieces, and `docstrings` finds English text on any machine.
Nothing here imports torch.
"""
