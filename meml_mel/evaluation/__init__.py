"""Evaluation of saved models: docs/metrics.md has the numbers, run.py the one entry point. Imports nothing heavy."""
