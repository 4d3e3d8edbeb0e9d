"""One module per page: read the request, ask the target, fill a template."""
