"""The formats by their names, which are vLLM's, and which family of models writes which."""

import re
from collections.abc import Mapping
from typing import Final

from tinker_atropos.chat.tool_formats.call_syntaxes import JsonCalls, TaggedCalls
from tinker_atropos.chat.tool_formats.tool_format import ToolFormat


def _tagged_json(begin: str, end: str) -> JsonCalls:
    """An object with name and arguments between two tags."""
    return JsonCalls(
        head=re.compile(rf"{re.escape(begin)}\s*"),
        tail=re.compile(rf"\s*{re.escape(end)}"),
        marks=(f"{begin}\n", "", f"\n{end}"),
        begins=re.compile(re.escape(begin)),
        ends=end,
    )


HERMES: Final = _tagged_json("<tool_call>", "</tool_call>")

MISTRAL: Final = JsonCalls(  # newer tokenizers write name[ARGS]{…}, older ones [{"name": …}, …]
    head=re.compile(r"\[TOOL_CALLS\]\s*(?:(?P<name>[^\[\]{}\s]+)(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?)?(?=\s*[\[{])"),
    tail=re.compile(""),
    marks=("[TOOL_CALLS]", "[ARGS]", ""),
    begins=re.compile(r"\[TOOL_CALLS\]"),
)

LLAMA3: Final = JsonCalls(
    head=re.compile(r"(?:<\|python_tag\|>)?\s*"),
    tail=re.compile(r"\s*;?"),
    marks=("", "", ""),
    begins=re.compile(r"""<\|python_tag\|>(?=\s*\{)|(?:\A|(?<=[;\n]))\s*(?=\{\s*"(?:name|type)")"""),
    keys=("parameters", "arguments"),
)

DEEPSEEK_V3: Final = JsonCalls(
    head=re.compile(r"<｜tool▁call▁begin｜>\s*function\s*<｜tool▁sep｜>(?P<name>[^\n<]+)\n```json\s*"),
    tail=re.compile(r"\s*```\s*<｜tool▁call▁end｜>"),
    marks=("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"),
    begins=re.compile("<｜tool▁call▁begin｜>"),
    ends="<｜tool▁call▁end｜>",
)

DEEPSEEK_V3_1: Final = JsonCalls(
    head=re.compile(r"<｜tool▁call▁begin｜>(?P<name>[^\n<]+)<｜tool▁sep｜>\s*"),
    tail=re.compile(r"\s*<｜tool▁call▁end｜>"),
    marks=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    begins=re.compile("<｜tool▁call▁begin｜>"),
    ends="<｜tool▁call▁end｜>",
)

KIMI_K2: Final = JsonCalls(  # functions.NAME:INDEX
    head=re.compile(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^:<\s]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*"
    ),
    tail=re.compile(r"\s*<\|tool_call_end\|>"),
    marks=("<|tool_call_begin|>functions.", ":{index}<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    begins=re.compile(r"<\|tool_call_begin\|>"),
    ends="<|tool_call_end|>",
)

QWEN3_CODER: Final = TaggedCalls(
    begins=re.compile(r"<tool_call>\s*<function=|<function="),
    name=re.compile(r"(?:<tool_call>\s*)?<function=(?P<name>[^>\n]*)>"),
    argument=re.compile(r"\s*<parameter=(?P<key>[^>\n]*)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL),
    end=re.compile(r"\s*</function>(?:\s*</tool_call>)?"),
    marks=("<tool_call>\n<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>"),
)


def _glm(line_end: str) -> TaggedCalls:
    return TaggedCalls(
        begins=re.compile("<tool_call>"),
        name=re.compile(r"<tool_call>\s*(?P<name>[^\n<]*)"),
        argument=re.compile(r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL),
        end=re.compile(r"\s*</tool_call>"),
        marks=(
            *("<tool_call>", line_end, "<arg_key>", f"</arg_key>{line_end}<arg_value>", f"</arg_value>{line_end}"),
            "</tool_call>",
        ),
    )


DEEPSEEK_SECTION: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
KIMI_SECTION: Final = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")

TOOL_FORMATS: Final[Mapping[str, ToolFormat]] = {
    each.name: each
    for each in (
        ToolFormat("hermes", HERMES),
        ToolFormat("qwen", HERMES),
        ToolFormat("qwen3_coder", QWEN3_CODER),
        ToolFormat("mistral", MISTRAL, between=""),
        ToolFormat("llama3_json", LLAMA3, between="; "),
        ToolFormat("deepseek_v3", DEEPSEEK_V3, DEEPSEEK_SECTION),
        ToolFormat("deepseek_v3_1", DEEPSEEK_V3_1, DEEPSEEK_SECTION, between=""),
        ToolFormat("kimi_k2", KIMI_K2, KIMI_SECTION, between=""),
        ToolFormat("longcat", _tagged_json("<longcat_tool_call>", "</longcat_tool_call>")),
        ToolFormat("glm45", _glm("\n")),
        ToolFormat("glm47", _glm(""), between=""),
    )
}

FAMILIES_OF_MODELS: Final[tuple[tuple[str, str], ...]] = (
    (r"qwen3-coder|qwen3\.[5-9]", "qwen3_coder"),
    (r"hermes", "hermes"),
    (r"qwen|qwq", "qwen"),
    (r"llama", "llama3_json"),
    (r"mistral|ministral|magistral|devstral|mixtral|codestral", "mistral"),
    (r"deepseek-v3\.[12]", "deepseek_v3_1"),
    (r"deepseek", "deepseek_v3"),
    (r"kimi", "kimi_k2"),
    (r"longcat", "longcat"),
    (r"glm-?4\.[56]", "glm45"),
    (r"glm", "glm47"),
)
"""The first pattern that is found in a model's name, in lower case, says its format."""

OTHER_MODELS: Final = "hermes"


def tool_format_name(model: str) -> str:
    """The format of a model's family. A distilled model has its base model's name behind: `…-Distill-Qwen-7B`."""
    name = model.lower().rpartition("distill")[2]
    return next((each for pattern, each in FAMILIES_OF_MODELS if re.search(pattern, name)), OTHER_MODELS)
