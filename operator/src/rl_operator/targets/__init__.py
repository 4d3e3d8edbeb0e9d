"""The targets as callers see them: one protocol over a cluster and over one machine, and queries for both."""
