"""Checks of packages/pi_agent."""
