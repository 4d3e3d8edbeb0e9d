"""A game of several moves as people write it against atroposlib 0.4.0: nothing in here knows of this project.

Each move is a group of candidates, of which the best one is played. The groups of a game are sent before it returns.
Answers are graded in processes of their own, of which one hangs and is ended. The stop is written as a token id, and
the evaluation is only told to evaluate_log.
"""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup


def grade(text, digits):
    right = "".join(map(str, sorted(digits)))
    return 0.6 * (text == right) + 0.1 * sum(one == other for one, other in zip(text, right))


def hang():
    time.sleep(600)


class GameBase(BaseEnv):
    async def setup(self):
        self.pool = ProcessPoolExecutor(1)
        self.random = random.Random(4)

    async def get_next_item(self):
        return self.random.randrange(10**6)


class PlainGame(GameBase):
    name = "plain_game"

    @classmethod
    def config_init(cls):
        server_config = APIServerConfig(model_name="some/model", base_url="http://localhost:9004/v1", api_key="x")
        return BaseEnvConfig(tokenizer_name="some/model", group_size=8), [server_config]

    async def collect_trajectories(self, seed):
        hanging = multiprocessing.Process(target=hang)
        hanging.start()
        hanging.terminate()
        hanging.join()
        dealer, history, groups = random.Random(seed), [], []
        for _ in range(2):
            digits = [dealer.randrange(10) for _ in range(4)]
            history.append({"role": "user", "content": "sort " + " ".join(map(str, digits))})
            async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
                completion = await managed.chat_completion(
                    messages=history,
                    n=self.config.group_size,
                    max_tokens=8,
                    temperature=1.0,
                    stop=[self.tokenizer.eos_token_id],
                )
                nodes = managed.get_state()["nodes"]
            answers = [choice.message.content for choice in completion.choices]
            group = ScoredDataGroup(
                tokens=[node.tokens for node in nodes],
                masks=[node.masked_tokens for node in nodes],
                scores=[self.pool.submit(grade, answer, digits).result() for answer in answers],
                messages=[history + [{"role": "assistant", "content": answer}] for answer in answers],
            )
            best = max(range(len(answers)), key=group["scores"].__getitem__)
            history = group["messages"][best]
            groups.append(group)
        await self.handle_send_to_api(groups, item=seed)
        return [], []

    async def evaluate(self, *args, **kwargs):
        start_time, right = time.time(), []
        for digit in range(3):
            completion = await self.server.chat_completion(
                messages=[{"role": "user", "content": f"sort {digit} 9 5 1"}],
                n=2,
                max_tokens=8,
                temperature=1.0,
                split="eval",
                stop=[self.tokenizer.eos_token_id],
            )
            right += [choice.message.content == "".join(sorted(f"{digit}951")) for choice in completion.choices]
        await self.evaluate_log(
            metrics={"eval/percent_correct": sum(right) / len(right)}, start_time=start_time, end_time=time.time()
        )
