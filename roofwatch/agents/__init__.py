"""What AI agents are served: tools, answers and instructions."""
