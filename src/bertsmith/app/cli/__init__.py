"""The command line: each command parses its arguments, calls the library once and prints the result.

Packages are imported when a command runs, never at the top, so that `bertsmith --help` and quick commands do not wait
for torch.
"""
