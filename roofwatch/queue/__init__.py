"""The queue of jobs: what a client sends, and how a runner carries it out."""
