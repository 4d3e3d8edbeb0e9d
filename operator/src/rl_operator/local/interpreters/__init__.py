"""Virtual environments in the state folder, for environments that need other packages than we do."""
