"""The targets as callers see them: one protocol over a cluster and over one machine, and what is asked of both."""
