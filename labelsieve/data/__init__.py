"""Where samples come from: one file per kind of source; `source.load_source` chooses."""
