"""From text to typed documents: YAML as kubectl reads it, the kinds, own environments, and the shipped files."""
