"""What the checks share: the harness, the scripted server, the runner for the real model."""
