"""The commands of rlctl. Each imports what it needs when it is called."""
