"""The free-form settings of a run, `config` and `trainer`: their fields, limits and sections."""
