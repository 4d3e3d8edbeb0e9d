from tinker_atropos.environments.bundled.sort_digits import SortDigits


class RaisesInSetup(SortDigits):
    """Cannot find what it needs."""

    name = "raises_in_setup"

    async def setup(self) -> None:
        raise FileNotFoundError("problems.jsonl is not there")
