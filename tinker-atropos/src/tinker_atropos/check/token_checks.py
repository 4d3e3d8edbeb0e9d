"""Checks of the sequences: are the trained tokens those that were sampled, and all of them? Pure."""

from collections import Counter
from collections.abc import Sequence

from tinker_atropos.check.findings import Check, Judgment, counted
from tinker_atropos.check.observations import Observations, SequenceSeen

NEARLY_FULL = 0.9
"""Share of a limit of tokens, past which longer answers are likely to be lost or cut."""


def _masks(seen: Observations) -> Judgment | None:
    known = [each for each in seen.sequences if each.sampled or seen.model is not None]
    if not seen.sequences:
        return None
    if not any(each.trained for each in seen.sequences):
        return "failed", "no token would be trained, all masks are -100: set the token's id where the policy sampled it"
    if seen.model is not None:
        return "ok", f"{_share(seen.sequences)} of the tokens would be trained"
    beyond = sum(each.trained - each.trained_sampled for each in known)
    left_out = sum(each.left_out for each in known)
    if beyond:
        return (
            "warning",
            f"masks mark {counted(beyond, 'token')} that the policy did not sample, such as a prompt's: set -100 there",
        )
    if left_out:
        said = (
            f"masks leave out {counted(left_out, 'token')} of answers that are trained otherwise: set the token's "
            f"id wherever the policy sampled it, at the end of a turn, too"
        )
        return "warning", said
    return "ok", f"{_share(seen.sequences)} of the tokens would be trained, and all of these were sampled"


def _share(sequences: Sequence[SequenceSeen]) -> str:
    return f"{sum(each.trained for each in sequences) / sum(each.tokens for each in sequences):.0%}"


def _tokens(seen: Observations) -> Judgment | None:
    if seen.model is not None:
        return "unknown", "a provider does not tell which tokens it sampled; leave --model out to check them"
    trained = [each for each in seen.sequences if each.trained]
    if not trained:
        return None
    strange = sum(not each.sampled for each in trained)
    if not strange:
        return "ok", f"all {counted(len(trained), 'sequence')} have the tokens that were sampled"
    said = (
        f"{strange} of {counted(len(trained), 'sequence')} have other tokens than those sampled: they were made "
        f"from text again; return those of the server's answer (managed_server's nodes, tokens_and_logprobs_completion)"
    )
    return "failed" if strange == len(trained) else "warning", said


def _logprobs(seen: Observations) -> Judgment | None:
    if seen.model is not None:
        return "unknown", "a provider's are not those of the trained model; leave --model out to check them"
    found = [each for each in seen.sequences if each.trained_sampled]
    if not found:
        return None
    kinds = Counter(each.logprobs for each in found)
    if kinds["different"]:
        said = (
            f"inference_logprobs of {kinds['different']} of {counted(len(found), 'sequence')} are not those sampled, "
            f"and the trainer takes its own: they may be shifted by a position"
        )
        return "warning", said
    if kinds["not given"]:
        return "ok", f"not given for {counted(kinds['not given'], 'sequence')}: the trainer has recorded them"
    return "ok", "given as sampled"


def _length(seen: Observations) -> Judgment | None:
    lengths = [each.tokens for each in seen.sequences]
    if not lengths:
        return None
    said = f"{sum(lengths) / len(lengths):.0f} tokens a sequence, {max(lengths):,} at most"
    if max(lengths) > NEARLY_FULL * seen.longest_trained:
        limit = f"tinker.max_token_trainer_length ({seen.longest_trained:,})"
        return "warning", f"{said}: longer ones than {limit} are lost; shorten them, or raise it"
    prompt = max(each.tokens - (each.sampled or each.trained) for each in seen.sequences)
    if prompt > NEARLY_FULL * seen.max_token_length:
        return "warning", f"{said}: prompts leave little of max_token_length ({seen.max_token_length:,}): raise it"
    return "ok", f"{said}, of max_token_length {seen.max_token_length:,}"


MASKS = Check("masks", _masks)
TOKENS = Check("tokens", _tokens)
LOGPROBS = Check("logprobs", _logprobs)
LENGTH = Check("length", _length)
