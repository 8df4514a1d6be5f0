"""The embedded world: questions, experts with habits, a tiny model, and the whole loop on it (`meml-mel demo`)."""
