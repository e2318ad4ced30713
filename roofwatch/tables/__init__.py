"""What commands print as tables. Everything in them is in their JSON output too."""
