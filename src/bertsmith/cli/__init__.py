"""The command line: arguments in, one library call, text out, an exit code.

Rooms are imported when their command runs, never at the top, so that `bertsmith --help` and the quick commands
do not wait for torch.
"""
