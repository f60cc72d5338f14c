"""Checks of packages/pi_coding_agent."""
