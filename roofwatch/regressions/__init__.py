"""Alerts of stored regressions, and decisions about them."""
