"""Meta-Experience Learning (MEL, arXiv 2602.10224): pairs, analyses, replays, internalisation. docs/mel.md."""
