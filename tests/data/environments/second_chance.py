"""A conversation: whoever sorts wrongly is asked once more, for half of the reward."""

from tinker_atropos.environments.bundled import digits
from tinker_atropos.environments.multi_turn import MultiTurnConfig, MultiTurnEnvironment


class SecondChance(MultiTurnEnvironment[digits.Item]):
    """Sort four digits, at the second try if need be."""

    name = "second_chance"

    @classmethod
    def config_init(cls):
        return MultiTurnConfig(tokenizer_name="bundled", group_size=8, batch_size=16, max_turns=2), []

    def training_items(self):
        return digits.split().training

    def held_out_items(self):
        return digits.split().held_out

    def prompt(self, item):
        return [{"role": "user", "content": digits.prompt(item)}]

    async def respond(self, item, messages):
        if messages[-1]["content"] == digits.answer(item):
            return None
        return {"role": "user", "content": digits.prompt(item)}

    def score(self, item, messages):
        answers = [message["content"] for message in messages if message["role"] == "assistant"]
        return 0.5 ** answers.index(digits.answer(item)) if digits.answer(item) in answers else 0.0
