"""Alerts: incidents, messages and their delivery."""
