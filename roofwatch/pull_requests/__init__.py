"""Results on pull requests: comments, checks and commands in comments."""
