"""Checks of packages/qianchat."""
