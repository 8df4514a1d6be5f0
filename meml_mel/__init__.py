"""RLVR with MEML-GRPO and MEL."""

__version__ = "0.1.0"
