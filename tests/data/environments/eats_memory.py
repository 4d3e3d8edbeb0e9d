"""An environment that takes all the memory there is."""

from tinker_atropos.environments.bundled.sort_digits import SortDigits


class EatsMemory(SortDigits):
    """Never gets to sort anything."""

    name = "eats_memory"

    async def setup(self):
        await super().setup()
        eaten = []
        while True:
            eaten.append(bytearray(16 * 1024 * 1024))
