"""The words that every component shares: values only, which import nothing of ours."""
