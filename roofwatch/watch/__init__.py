"""Measure a branch by its agenda."""
