"""The rules of one attempt: what it waits for, its deadlines, its environments, how it ends, what is cleaned up."""
