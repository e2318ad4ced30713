"""What is printed to a terminal: messages, progress and tables."""
