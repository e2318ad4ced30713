"""Record files, and the reports written from them."""
