"""What people touch: the library, the command line, the server, the demo."""
