"""The examples of tasks: from their files or typed lines, and split into training and dev sets."""
