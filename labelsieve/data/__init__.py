"""Where samples come from: one file a source, `source.load_source` names them."""
