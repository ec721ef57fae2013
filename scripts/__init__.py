"""The commands that people operate the queue with, one a file."""
