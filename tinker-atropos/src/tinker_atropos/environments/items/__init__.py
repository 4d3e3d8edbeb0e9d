"""Which items are trained and which are held out, and what evaluations of them say."""
