"""Grading: the reward. See docs/grading.md; importing this package imports no computer algebra."""

from .grader import grade
from .verdict import Grade, Kind

__all__ = ["Grade", "Kind", "grade"]
