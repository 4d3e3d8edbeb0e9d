"""Label selectors as kubectl reads them: `key=value`, `key!=value`, `key`, `!key`, joined by commas."""

from collections.abc import Callable, Mapping

Labels = Mapping[str, str]


def parse_selector(text: str) -> Callable[[Labels], bool]:
    """A predicate over labels; an empty text matches everything."""
    terms = [_parse_term(term.strip()) for term in text.split(",") if term.strip()]
    return lambda labels: all(term(labels) for term in terms)


def _parse_term(term: str) -> Callable[[Labels], bool]:
    if "!=" in term:
        key, value = term.split("!=", 1)
        return lambda labels: labels.get(key.strip()) != value.strip()
    if "=" in term:
        key, value = term.replace("==", "=").split("=", 1)
        return lambda labels: labels.get(key.strip()) == value.strip()
    if term.startswith("!"):
        return lambda labels: term[1:].strip() not in labels
    return lambda labels: term in labels
