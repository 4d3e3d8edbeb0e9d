"""A program that asks its model as any client of OpenAI's API does, here without a library: it is started per question.

It asks once more if the answer has other digits than the question. Nothing in it knows that it is trained.
"""

import json
import os
import sys
import urllib.request


def ask(question: str) -> str:
    """The model's answer to one message."""
    messages = [{"role": "user", "content": question}]
    request = urllib.request.Request(  # noqa: S310 -- the run's own endpoint
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode(),
        headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:  # noqa: S310 -- the run's own endpoint
        return json.load(response)["choices"][0]["message"]["content"] or ""


def main() -> None:
    question = sys.argv[1]
    answer = ask(question)
    if sorted(answer) != sorted(filter(str.isdigit, question)):
        print(f"{answer!r} cannot be right: asking again")
        answer = ask(question)
    print(answer)


if __name__ == "__main__":
    main()
