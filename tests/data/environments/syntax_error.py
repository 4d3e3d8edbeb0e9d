from tinker_atropos.environments.bundled.sort_digits import SortDigits


class SyntaxMistake(SortDigits):
    name = "syntax_error"

    def score(self, item, completion)
        return 1.0
