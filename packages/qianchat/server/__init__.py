"""The local Qwen: install, verify, start and stop it."""
