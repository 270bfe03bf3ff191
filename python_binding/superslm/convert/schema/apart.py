# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Whether values generated for one branch of a `oneOf` can be valid for another."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 8
_LIMITS = (  # keyword of the least, of the most, the types they measure
    ("minimum", "maximum", {"integer", "number"}),
    ("minLength", "maxLength", {"string"}),
    ("minItems", "maxItems", {"array"}),
)


def apart(a: Any, b: Any, root: Any, depth: int = 0) -> bool:
    """True when it is sure that no value generated for `a` is valid for `b`; both have compiled."""
    if depth > MAX_DEPTH:
        return False
    a, b = _target(a, root), _target(b, root)
    for keyword in ("anyOf", "oneOf"):
        if keyword in a:
            return all(apart(branch, b, root, depth + 1) for branch in a[keyword])
        if keyword in b:
            return all(apart(a, branch, root, depth + 1) for branch in b[keyword])
    values_a, values_b = _values(a), _values(b)
    if values_a is not None and values_b is not None:
        return not any(_equal(x, y) for x in values_a for y in values_b)
    shared = _types(a, values_a, generated=True) & _types(b, values_b, generated=False)
    if not shared:
        return True
    if values_a is not None or values_b is not None:
        return False
    if shared == {"object"}:
        return _objects_apart(a, b, root, depth)
    return all(_limits_apart(a, b, name) for name in shared)


def _target(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    from .json_schema import resolve

    seen = 0
    while "$ref" in schema and seen < MAX_DEPTH:
        schema, seen = resolve(root, schema["$ref"], "$"), seen + 1
    return schema


def _values(schema: dict[str, Any]) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _equal(x: Any, y: Any) -> bool:
    """Equality of JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(x, bool) or isinstance(y, bool):
        return x is y
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(map(_equal, x, y))
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_equal(x[k], y[k]) for k in x)
    return x == y


def _types(schema: dict[str, Any], values: list[Any] | None, generated: bool) -> set[str]:
    """Types of what is generated for a schema, or of what is valid for it; an integer is also a number."""
    from .json_schema import BY_TYPE, is_of_type, types_of

    if values is not None:
        return {t for t in BY_TYPE for v in values if is_of_type(v, t)}
    if "type" not in schema and not generated:
        return set(BY_TYPE)  # a lone `maximum`, say, does not restrict strings
    found = set(types_of(schema, "$"))
    return found | {"number"} if "integer" in found else found


def _objects_apart(a: dict[str, Any], b: dict[str, Any], root: Any, depth: int) -> bool:
    own, others = a.get("properties", {}), b.get("properties", {})
    must, needed = set(a.get("required", [])), set(b.get("required", []))
    if needed - own.keys():  # values of a never have it
        return True
    if b.get("additionalProperties", True) is False and must - others.keys():
        return True
    return any(apart(own[n], others[n], root, depth + 1) for n in must & others.keys())


def _limits_apart(a: dict[str, Any], b: dict[str, Any], name: str) -> bool:
    for least, most, types in _LIMITS:
        if name in types:
            low_a, high_a = a.get(least), a.get(most)
            low_b, high_b = b.get(least), b.get(most)
            return (high_a is not None and low_b is not None and high_a < low_b) or (
                high_b is not None and low_a is not None and high_b < low_a
            )
    return False
