"""Writes the generated files: CRDs, admission policies, reference pages. Runs at development time; not shipped."""
