"""What commands show: a run that is followed, its summary, a template, the changes in a file."""
