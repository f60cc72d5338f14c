"""Questions put to the real model; `python3 -m checks.model_tasks` runs them."""
