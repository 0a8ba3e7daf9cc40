"""Text files to token shards.

`sources` finds and opens files, `forms` and `sentences` know how text is laid out, `readers` cuts files into blocks,
`parsing` makes documents of them, `encode` and `build` write them as the token shards that `shards` opens, `doctor`
says what is wrong with them, and `docstrings` finds English on any machine. Nothing here imports torch.
"""
