"""Settings of a person or project, and what arguments of commands name."""
