"""The free-form settings of a run, `config` and `tinker`: their fields, limits and sections."""
