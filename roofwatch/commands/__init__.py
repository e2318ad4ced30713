"""The commands, one module per group; they read arguments, print and exit."""
