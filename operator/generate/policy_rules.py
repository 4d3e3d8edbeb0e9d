"""The rules of the admission policies, in CEL, generated from the tables that the operator's check uses."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from generate.cel import Cel, fault, filled, is_number, listed, literal, looks_like_a_key
from rl_contract.trainer_settings import AUTO
from rl_operator.api import hints
from rl_operator.api.names import LAST_APPLIED_ANNOTATION
from rl_operator.api.refusal import KEY_IN_TEXT
from rl_operator.api.settings.fields import LARGEST, SMALLEST, TRAINER_FIELDS, WIRED_FIELDS, Section, outer_names
from rl_operator.api.settings.size_limits import MAX_CHARACTERS, TOO_LARGE

SETTINGS: Final[dict[str, Section]] = {"config": "env", "trainer": "trainer"}
"""The free-form maps of a run's spec, and the section of the config file that each fills."""

LIMITS: Final = ("activeDeadlineSeconds", "environmentReplicas")
SANDBOX_LIMITS: Final = {"size": "maxSize", "timeoutSeconds": "maxTimeoutSeconds"}
"""A field of a run's sandbox, and the field of its runtime's that limits it."""

NOT_DELETED: Final = "!has(object.metadata.deletionTimestamp)"
_STARTED: Final = "oldObject != null && has(oldObject.status) && has(oldObject.status.startTime)"


def created_or_changed(*fields: str) -> Cel:
    """Whether a run is new, or one of these fields of its spec has changed."""
    changes = (f"object.spec.?{f}.orValue({{}}) != oldObject.spec.?{f}.orValue({{}})" for f in fields)
    return " || ".join(("oldObject == null", *changes))


_NESTED: Final = tuple(sorted(outer_names(TRAINER_FIELDS)))
"""Mappings in `spec.trainer` whose fields are settings, too."""

_SETTINGS_VARIABLES: Final = {name: f"object.spec.?{name}.orValue({{}})" for name in SETTINGS} | {
    f"trainer_{outer}": f"type({given}) == map ? {given} : {{}}"
    for outer in _NESTED
    for given in (f"object.spec.?trainer.?{outer}.orValue({{}})",)
}

_RUNTIME_VARIABLES: Final = {
    "runtime": "params.metadata.name",
    "limits": "params.spec.?limits.orValue({})",
    "selector": "params.spec.?namespaceSelector.orValue({})",
    "labels": "namespaceObject.metadata.?labels.orValue({})",
    "moved": created_or_changed("runtime"),
    "checked": f"!({_STARTED}) && ({created_or_changed(*SETTINGS, 'runtime')})",
    **{
        f"{part}_{name}": f"params.spec.?{part}.?{section}.orValue({{}})"
        for part in ("locked", "bounds")
        for name, section in SETTINGS.items()
    },
}


def variables_of_any_runtime() -> dict[str, Cel]:
    """After the start, `faults` says only that the settings are frozen; before it, what no runtime allows."""
    rules = {
        f"{rule}_{name}": make(name)
        for name in SETTINGS
        for rule, make in {
            "wired": _wired,
            "keys": _keys,
            "too_small": _too_small,
            "too_large": _too_large,
        }.items()
    }
    return {
        **_SETTINGS_VARIABLES,
        "frozen": " + ".join(map(_frozen, SETTINGS)),
        "bulky": " + ".join(map(_bulky, SETTINGS)),
        "changed": created_or_changed(*SETTINGS),
        "pasted": " + ".join(_pasted(place, names, now, before) for place, names, now, before in _TEXTS),
        **rules,
        # Nothing else looks at what is too large: it would cost more than a policy may.
        "checked": f"!variables.changed ? [] : variables.bulky.size() > 0 ? variables.bulky : {_joined(rules)}",
        "faults": f"({_STARTED} ? variables.frozen : variables.checked) + variables.pasted",
    }


_TEXTS: Final = tuple(
    (place, excluded, f"object.{path}.orValue({{}})", f"(oldObject == null ? {{}} : oldObject.{path}.orValue({{}}))")
    for place, path, excluded in (
        ("spec.wandb", "spec.?wandb", ()),
        ("metadata.annotations", "metadata.?annotations", (LAST_APPLIED_ANNOTATION,)),
        ("metadata.labels", "metadata.?labels", ()),
    )
)
"""What people write for people: its place, names that are left out, and the values now and before."""


def texts_changed() -> Cel:
    return " || ".join(f"{now} != {before}" for _, _, now, before in _TEXTS)


def _pasted(place: str, excluded: tuple[str, ...], now: Cel, before: Cel) -> Cel:
    """Mirrors `run_check.pasted_key_refusals`; what was there before stays, or nothing could be written anymore."""
    kept = f"k in {before} && {before}[k] == {now}[k]"
    holds = f"'%s'.format([{now}[k]]).matches({literal(KEY_IN_TEXT)})"
    condition = f"!(k in {literal(list(excluded))}) && !({kept}) && {holds}"
    return f"{now}.map(k, {condition}, {fault(place, 'k', 'null', filled(hints.KEY_IN_RUN))})"


def variables_of_its_runtime() -> dict[str, Cel]:
    settings = {
        f"{rule}_{name}": make(name)
        for name in SETTINGS
        for rule, make in {"violated": _locked, "outside": _out_of_bounds}.items()
    }
    limits = " + ".join((*map(_limit, LIMITS), _priority()))
    others = {"not_selected": _namespace(), "exceeded": limits, "sandboxes": _sandboxes(), "budget": _budget()}
    return {
        **_SETTINGS_VARIABLES,
        **_RUNTIME_VARIABLES,
        **settings,
        **others,
        "faults": f"(variables.checked ? {_joined(settings)} : []) + {_joined(others)}",
    }


def _joined(variables: Iterable[str]) -> Cel:
    return " + ".join(f"variables.{name}" for name in variables)


def _frozen(settings: str) -> Cel:
    found = fault("spec", literal(settings), "null", filled(hints.FROZEN))
    return f"({created_or_changed(settings)} ? [{found}] : [])"


def _text(settings: str) -> Cel:
    return f"'%s'.format([variables.{settings}])"


def _bulky(settings: str) -> Cel:
    """Mirrors the last part of `size_limits.section_problem`: the schema holds most of it."""
    found = fault("spec", literal(settings), "null", filled(TOO_LARGE))
    return f"({_text(settings)}.size() > {MAX_CHARACTERS} ? [{found}] : [])"


def _each(settings: str, names: Cel, condition: Cel, hint: Cel) -> Cel:
    """The faults of the fields `k` among the names for which the condition holds."""
    found = fault(f"spec.{settings}", "k", _given(settings), hint)
    return f"{names}.map(k, {condition}, {found})"


def _variable(settings: str) -> Cel:
    return f"variables.{settings.replace('.', '_')}"


def _given(settings: str) -> Cel:
    return f"{_variable(settings)}[k]"


def _is_wired(settings: str) -> Cel:
    return f"k in {literal(sorted(name for section, name in WIRED_FIELDS if section == SETTINGS[settings]))}"


def _wired(settings: str) -> Cel:
    table = {name: instead for (of, name), instead in sorted(WIRED_FIELDS.items()) if of == SETTINGS[settings]}
    hint = listed(f"{literal(table)}[k]")
    return _each(settings, literal(sorted(table)), f"k in variables.{settings}", hint)


def _keys(settings: str) -> Cel:
    """The value is not repeated."""
    condition = f"!({_is_wired(settings)}) && {looks_like_a_key(_given(settings))}"
    found = fault(f"spec.{settings}", "k", "null", filled(hints.KEY_IN_RUN))
    return f"variables.{settings}.map(k, {condition}, {found})"


def _too_small(settings: str) -> Cel:
    """Two tables: inclusive and exclusive minimums."""
    return " + ".join([*_below(settings, "<", hints.AT_LEAST, exclusive=False), *_below(settings, "<=", hints.ABOVE)])


def _below(settings: str, comparison: str, template: str, *, exclusive: bool = True) -> Iterator[Cel]:
    least = {
        name: smallest.value
        for (section, name), smallest in SMALLEST.items()
        if (section, smallest.exclusive) == (SETTINGS[settings], exclusive)
    }
    return _past(settings, least, comparison, template)


def _too_large(settings: str) -> Cel:
    most = {name: largest for (section, name), largest in LARGEST.items() if section == SETTINGS[settings]}
    return " + ".join(_past(settings, most, ">", hints.AT_MOST))


def _past(settings: str, limits: Mapping[str, float], comparison: str, template: str) -> Iterator[Cel]:
    """The faults of numbers that are past their limit: of a section's own fields, then of each mapping in it."""
    for outer in sorted({name.rpartition(".")[0] for name in limits}):
        table = {name.rpartition(".")[2]: limits[name] for name in sorted(limits) if name.rpartition(".")[0] == outer}
        place = f"{settings}.{outer}" if outer else settings
        given, limit = _given(place), f"{literal(table)}[k]"
        condition = f"k in {_variable(place)} && {is_number(given)} && {given} {comparison} {limit}"
        yield _each(place, literal(list(table)), condition, filled(hints.MUST_BE % template, f"[{limit}]"))


def _locked(settings: str) -> Cel:
    """Wired fields are left to the policy for runs. Of two mappings, entries of the same name: only the catalog tells
    whether each is a field, and whether one that is not locked may be set beside them.
    """
    locked, given = f"variables.locked_{settings}", _given(settings)
    entry = f"{given}.exists(n, n in {locked}[k] && {locked}[k][n] != {given}[n])"
    differs = f"(type({locked}[k]) == map && type({given}) == map ? {entry} : {locked}[k] != {given})"
    condition = f"k in {locked} && {differs} && !({_is_wired(settings)})"
    hint = filled(hints.LOCKED, "variables.runtime", f"[{locked}[k]]")
    return _each(settings, f"variables.{settings}", condition, hint)


def _out_of_bounds(settings: str) -> Cel:
    bounds, given = f"variables.bounds_{settings}", _given(settings)
    bound = f"{bounds}[k]"
    outside = f"(has({bound}.min) && {given} < {bound}.min || has({bound}.max) && {given} > {bound}.max)"
    automatic = f"{given} == {literal(AUTO)}"
    may_be = f"({automatic} ? has({bound}.min) || has({bound}.max) : {is_number(given)} && {outside})"
    inherited = f"k in {bounds} && !(k in variables.locked_{settings})"
    condition = f"{inherited} && !({_is_wired(settings)}) && {may_be}"
    hint = f"{_allows(_range(bound))} + ({automatic} ? {filled(hints.UNKNOWN_NUMBER)} : [])"
    return _each(settings, f"variables.{settings}", condition, hint)


def _allows(range_: Cel) -> Cel:
    """The parts of `runtime 'lab' allows at least 1`."""
    return f"{filled(hints.ALLOWS.removesuffix('%s'), 'variables.runtime')} + {range_}"


def _range(bound: Cel) -> Cel:
    low, high = f"has({bound}.min)", f"has({bound}.max)"
    at_least, at_most = filled(hints.AT_LEAST, f"[{bound}.min]"), filled(hints.AT_MOST, f"[{bound}.max]")
    both = filled(hints.AND)
    return f"({low} ? {at_least} : []) + ({low} && {high} ? {both} : []) + ({high} ? {at_most} : [])"


def _limit(field: str) -> Cel:
    moved, above = created_or_changed("runtime", field), _above("spec", field, f"variables.limits.{field}")
    return f"({moved} ? {above} : [])"


def _priority() -> Cel:
    """Also after the start: a run that was stopped waits in the queue again. The limit has a default."""
    given, most = "object.spec.priority", "variables.limits.?maxPriority.orValue(0)"
    found = fault("spec", literal("priority"), given, _allows(filled(hints.AT_MOST, f"[{most}]")))
    above = f"has({given}) && {given} > {most}"
    return f"(({created_or_changed('runtime', 'priority')}) && {above} ? [{found}] : [])"


def _sandboxes() -> Cel:
    """What `check.sandbox_rules` says of images, resources and other fields is left to the operator."""
    asked, bounds = "object.spec.sandbox", "params.spec.sandbox"
    none = fault("spec", literal("sandbox"), "null", filled(hints.NO_SANDBOXES, "variables.runtime"))
    limits = (_above("spec.sandbox", field, f"{bounds}.{limit}") for field, limit in SANDBOX_LIMITS.items())
    matters = f"has({asked}) && ({created_or_changed('runtime', 'sandbox')})"
    return f"(!({matters}) ? [] : !has({bounds}) ? [{none}] : {' + '.join(limits)})"


def _budget() -> Cel:
    """Also after the start, when the operator does not look anymore. Which models have prices is left to it."""
    given, priced = "object.spec.budget.currency", "params.spec.backend.prices.currency"
    none = fault("spec", literal("budget"), "null", filled(hints.NO_PRICES, "variables.runtime"))
    other = fault("spec.budget", literal("currency"), given, filled(hints.OTHER_CURRENCY, "variables.runtime", priced))
    matters = f"has(object.spec.budget) && ({created_or_changed('runtime', 'budget')})"
    unpriced = "!params.spec.?backend.?prices.hasValue()"
    return f"(!({matters}) ? [] : {unpriced} ? [{none}] : {given} != {priced} ? [{other}] : [])"


def _above(at: str, field: str, limit: Cel) -> Cel:
    given = f"object.{at}.{field}"
    found = fault(at, literal(field), given, _allows(filled(hints.AT_MOST, f"[{limit}]")))
    return f"(has({given}) && has({limit}) && {given} > {limit} ? [{found}] : [])"


def _namespace() -> Cel:
    found = fault("spec", literal("runtime"), "object.spec.runtime", filled(hints.NAMESPACE_NOT_ALLOWED))
    return f"(variables.moved && !({_selected()}) ? [{found}] : [])"


def _selected() -> Cel:
    """A Kubernetes label selector, as `check.run_check.selects` reads it; an empty one matches everything."""
    labels, values = "variables.labels", "(r.key in variables.labels && variables.labels[r.key] in r.values)"
    matched = "variables.selector.?matchLabels.orValue({})"
    operators = (
        f"r.operator == 'In' ? {values} : r.operator == 'NotIn' ? !{values} : "
        f"r.operator == 'Exists' ? r.key in {labels} : !(r.key in {labels})"
    )
    return (
        f"{matched}.all(k, k in {labels} && {labels}[k] == variables.selector.matchLabels[k]) && "
        f"variables.selector.?matchExpressions.orValue([]).all(r, {operators})"
    )
