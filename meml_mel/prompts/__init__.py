"""Prompts as versioned jinja templates (`library.py`) and how they become tokens (`format.py`)."""

from .library import PromptError, Prompts, PromptsConfig, Template

__all__ = ["PromptError", "Prompts", "PromptsConfig", "Template"]
