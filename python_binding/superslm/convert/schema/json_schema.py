# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""JSON Schema to an automaton over the bytes of compact JSON, properties in declared order.

Everything that is generated is valid; not everything that is valid is generated. What this compiler does not
enforce it refuses, naming the keyword and its path.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from . import apart, numbers
from .automaton import Dfa, Graph, SchemaError
from .patterns import search, whole
from .strings import escaped, json_text, of_length, plain

RECURSION = 3  # times that a $ref may lie inside itself
MAX_COUNT = 4096  # of minLength and its companions
ANNOTATIONS = {
    "title", "description", "default", "examples", "$schema", "$id", "$comment", "$anchor", "deprecated",
    "readOnly", "writeOnly", "$defs", "definitions",
}  # fmt: skip
BY_TYPE = {
    "string": {"minLength", "maxLength", "pattern"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "boolean": set(),
    "null": set(),
}
KEYWORDS = {"type", "enum", "const", "anyOf", "oneOf", "$ref"}.union(*BY_TYPE.values())


def compile_json_schema(schema: Any, lacking: Collection[int] = (), recursion: int = RECURSION) -> Dfa:
    """The automaton of a schema.

    Args:
        schema: parsed JSON: an object.
        lacking: bytes the vocabulary has no token for; names and constants with one are escaped.
        recursion: how many times a `$ref` may lie inside itself.

    Raises:
        SchemaError: an unsupported or contradictory part, by keyword and path.
    """
    builder = _Builder(schema, frozenset(lacking), recursion)
    start = builder.graph.node()
    end = builder.lay(schema, "$", start)
    automaton = builder.graph.deterministic(start, end)
    if automaton.empty:
        raise SchemaError(
            "every value is nested without end",
            "$",
            "Make the recursive part optional, or allow fewer items.",
        )
    return automaton


def resolve(root: Any, reference: Any, path: str) -> Any:
    """What a local `$ref` points to. Raises SchemaError."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise SchemaError(f"$ref {reference!r} leads out of the file", path, "Copy its target into $defs.")
    value = root
    for part in reference[1:].split("/")[1:] if reference != "#" else []:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise SchemaError(f"$ref {reference!r} has no target", path, "Correct the reference.")
    if reference != "#" and not reference.startswith("#/"):
        raise SchemaError(f"$ref {reference!r} is no path", path, "Write it as #/$defs/name.")
    return value


class _Builder:
    """Lays one schema into one graph."""

    def __init__(self, root: Any, lacking: frozenset[int], recursion: int) -> None:
        self.graph = Graph()
        self._root, self._lacking, self._recursion = root, lacking, recursion
        self._inside: dict[str, int] = {}  # $ref -> times it is being laid

    def lay(self, schema: Any, path: str, start: int) -> int:
        """Lays the texts of a schema behind a node; returns their end."""
        if isinstance(schema, bool):
            what = "true allows any value" if schema else "false allows no value"
            raise SchemaError(what, path, "Say which type is wanted." if schema else "Leave it out.")
        if not isinstance(schema, dict):
            raise SchemaError("a schema is a JSON object", path, 'Write {"type": ...}.')
        if "$id" in schema and schema is not self._root:
            raise SchemaError("$ref means another file below an inner $id", f"{path}.$id", "Remove it.")
        used = set(schema) - ANNOTATIONS
        for keyword in sorted(used - KEYWORDS):
            raise SchemaError(
                f"the keyword {keyword!r} is not supported",
                f"{path}.{keyword}",
                "Remove it or express it otherwise.",
            )
        for keyword in ("$ref", "const", "enum", "anyOf", "oneOf"):
            if keyword in used:
                beside = used - {keyword} - ({"type"} if keyword in ("const", "enum") else set())
                if beside:
                    raise SchemaError(
                        f"{sorted(beside)[0]!r} beside {keyword!r} is not supported",
                        f"{path}.{sorted(beside)[0]}",
                        "Move it into the parts, or remove it.",
                    )
                return getattr(self, "_" + keyword.strip("$").lower())(schema, path, start)
        return self._typed(schema, path, start, used)

    def _typed(self, schema: dict[str, Any], path: str, start: int, used: set[str]) -> int:
        types = types_of(schema, path)
        for keyword in sorted(used - {"type"}):
            if not any(keyword in BY_TYPE[t] for t in types):
                raise SchemaError(
                    f"{keyword!r} does not apply to {' or '.join(types)}", f"{path}.{keyword}", "Remove it."
                )
        if len(types) == 1:
            return getattr(self, "_" + types[0])(schema, path, start)
        end = self.graph.node()
        for name in types:
            self.graph.join(getattr(self, "_" + name)(schema, path, start), end)
        return end

    # ---- composition ----

    def _ref(self, schema: dict[str, Any], path: str, start: int) -> int:
        reference = schema["$ref"]
        target = resolve(self._root, reference, f"{path}.$ref")
        depth = self._inside.get(reference, 0)
        if depth > self._recursion:
            return self.graph.node()  # out of reach: nothing of this depth is generated
        self._inside[reference] = depth + 1
        end = self.lay(target, f"{path}->{reference}", start)
        self._inside[reference] = depth
        return end

    def _anyof(self, schema: dict[str, Any], path: str, start: int) -> int:
        return self._one_of_branches(schema["anyOf"], f"{path}.anyOf", start)

    def _oneof(self, schema: dict[str, Any], path: str, start: int) -> int:
        branches = schema["oneOf"]
        end = self._one_of_branches(branches, f"{path}.oneOf", start)
        for i, a in enumerate(branches):
            for j, b in enumerate(branches):
                if i != j and not apart.apart(a, b, self._root):
                    raise SchemaError(
                        f"a value of branch {i} may also match branch {j}",
                        f"{path}.oneOf",
                        "Use anyOf, or tell them apart by type or by a required property with its own const.",
                    )
        return end

    def _one_of_branches(self, branches: Any, path: str, start: int) -> int:
        if not isinstance(branches, list) or not branches:
            raise SchemaError("it must be a list of schemas", path, "Write at least one.")
        end = self.graph.node()
        for i, branch in enumerate(branches):
            self.graph.join(self.lay(branch, f"{path}[{i}]", start), end)
        return end

    def _const(self, schema: dict[str, Any], path: str, start: int) -> int:
        return self._values([schema["const"]], schema, f"{path}.const", start)

    def _enum(self, schema: dict[str, Any], path: str, start: int) -> int:
        values = schema["enum"]
        if not isinstance(values, list) or not values:
            raise SchemaError("it must be a list of values", f"{path}.enum", "Write at least one.")
        return self._values(values, schema, f"{path}.enum", start)

    def _values(self, values: list[Any], schema: dict[str, Any], path: str, start: int) -> int:
        end = self.graph.node()
        allowed = types_of(schema, path) if "type" in schema else None
        for value in values:
            if allowed is not None and not any(is_of_type(value, t) for t in allowed):
                raise SchemaError(
                    f"the value {value!r} is not of type {' or '.join(allowed)}",
                    path,
                    "Correct the one or the other.",
                )
            try:
                text = json_text(value, self._lacking)
            except ValueError:
                raise SchemaError(f"JSON has no number {value!r}", path, "Choose another value.") from None
            self.graph.join(self.graph.literal(start, text), end)
        return end

    # ---- types ----

    def _null(self, schema: dict[str, Any], path: str, start: int) -> int:
        return self.graph.literal(start, b"null")

    def _boolean(self, schema: dict[str, Any], path: str, start: int) -> int:
        return self.graph.copy(start, whole("true|false", path))

    def _integer(self, schema: dict[str, Any], path: str, start: int) -> int:
        return self._number_text(numbers.integer(bounds_of(schema, path)), path, start)

    def _number(self, schema: dict[str, Any], path: str, start: int) -> int:
        return self._number_text(numbers.decimal(bounds_of(schema, path)), path, start)

    def _number_text(self, expression: str | None, path: str, start: int) -> int:
        if expression is None:
            raise SchemaError(
                "no number of up to 15 digits lies between the bounds", f"{path}.minimum", "Widen the bounds."
            )
        return self.graph.copy(start, whole(expression, path))

    def _string(self, schema: dict[str, Any], path: str, start: int) -> int:
        least, most = counts_of(schema, "minLength", "maxLength", path)
        strings = plain(least, most)
        if "pattern" in schema:
            pattern = schema["pattern"]
            if not isinstance(pattern, str):
                raise SchemaError("a pattern is a string", f"{path}.pattern", "Quote it.")
            matching = search(pattern, f"{path}.pattern")
            strings = matching & plain(least, most)
            if strings.empty:  # only control characters can satisfy it
                strings = matching & of_length(least, most)
            if strings.empty:
                raise SchemaError(
                    f"no string of {least}..{'any' if most is None else most} characters matches the pattern",
                    f"{path}.pattern",
                    "Change minLength, maxLength or the pattern.",
                )
        inside = self.graph.copy(self.graph.literal(start, b'"'), escaped(strings))
        return self.graph.literal(inside, b'"')

    def _array(self, schema: dict[str, Any], path: str, start: int) -> int:
        least, most = counts_of(schema, "minItems", "maxItems", path)
        graph, end = self.graph, self.graph.node()
        at = graph.literal(start, b"[")
        if least == 0:
            graph.join(at, end)
        if most != 0:
            if "items" not in schema:
                raise SchemaError("an array needs 'items'", path, "Say what it holds, or set maxItems to 0.")
            for count in range(1, max(least, 1 if most is None else most) + 1):
                if count > 1:
                    at = graph.literal(at, b",")
                at = self.lay(schema["items"], f"{path}.items", at)
                if count >= least:
                    graph.join(at, end)
            if most is None:  # one item more, any number of times
                more = self.lay(schema["items"], f"{path}.items", graph.literal(at, b","))
                graph.join(more, at)
        return graph.literal(end, b"]")

    def _object(self, schema: dict[str, Any], path: str, start: int) -> int:
        properties, required = properties_of(schema, path)
        graph = self.graph
        empty = graph.literal(start, b"{")  # nothing written yet
        filled: int | None = None  # behind a property
        for name, value in properties.items():
            begin, after = graph.node(), graph.node()
            graph.join(empty, begin)
            if filled is not None:
                graph.join(graph.literal(filled, b","), begin)
            inside = graph.literal(begin, json_text(name, self._lacking) + b":")
            graph.join(self.lay(value, f"{path}.properties.{name}", inside), after)
            if name in required:
                empty = graph.node()  # out of reach from here on
            elif filled is not None:
                graph.join(filled, after)
            filled = after
        end = graph.node()
        graph.join(empty, end)
        if filled is not None:
            graph.join(filled, end)
        return graph.literal(end, b"}")


# ---- reading keywords ----


def types_of(schema: dict[str, Any], path: str) -> list[str]:
    """The types of a schema: its `type`, or the one type its other keywords belong to."""
    given = schema.get("type")
    types = given if isinstance(given, list) else [given]
    if "type" not in schema:
        types = ["number" if t == "integer" else t for t, words in BY_TYPE.items() if words & set(schema)]
        types = sorted(set(types))
        if len(types) != 1:
            raise SchemaError("the schema names no type", path, 'Add "type".')
    for name in types:
        if not isinstance(name, str) or name not in BY_TYPE:
            raise SchemaError(
                f"the type {name!r} is unknown", f"{path}.type", "Use one of " + ", ".join(BY_TYPE) + "."
            )
    if not types:
        raise SchemaError("the list of types is empty", f"{path}.type", "Name a type.")
    return types


def is_of_type(value: Any, name: str) -> bool:
    """Whether a JSON value is of a type of JSON Schema."""
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, (int, float)):
        return name == "number" or (name == "integer" and (isinstance(value, int) or value.is_integer()))
    return name == {str: "string", dict: "object", list: "array", type(None): "null"}[type(value)]


def bounds_of(schema: dict[str, Any], path: str) -> numbers.Bounds:
    """The interval of minimum, maximum and their exclusive forms."""

    def bound(keyword: str) -> Decimal | None:
        value = schema.get(keyword)
        if value is None and keyword not in schema:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SchemaError(f"{value!r} is no number", f"{path}.{keyword}", "Write a number.")
        number = Decimal(repr(value))
        if not number.is_finite() or abs(number.adjusted()) > numbers.MAX_BOUND_DIGITS:
            raise SchemaError(
                f"the bound {value!r} is out of range", f"{path}.{keyword}", "Choose a smaller one."
            )
        return number

    low, high = bound("minimum"), bound("maximum")
    above, below = bound("exclusiveMinimum"), bound("exclusiveMaximum")
    low_excluded = above is not None and (low is None or above >= low)
    high_excluded = below is not None and (high is None or below <= high)
    return numbers.Bounds(
        above if low_excluded else low, below if high_excluded else high, low_excluded, high_excluded
    )


def counts_of(schema: dict[str, Any], least: str, most: str, path: str) -> tuple[int, int | None]:
    """A pair of counts such as minItems and maxItems; None: without end."""
    values = []
    for keyword, default in ((least, 0), (most, None)):
        value = schema.get(keyword, default)
        if keyword in schema:
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
                raise SchemaError(
                    f"{value!r} is no count in 0..{MAX_COUNT}", f"{path}.{keyword}", "Correct it."
                )
        values.append(value)
    low, high = values
    if high is not None and low > high:
        raise SchemaError(f"{least} {low} is above {most} {high}", f"{path}.{least}", "Lower it.")
    return low, high


def properties_of(schema: dict[str, Any], path: str) -> tuple[dict[str, Any], set[str]]:
    """Properties in declared order, and the required names."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict):
        raise SchemaError("it must be an object", f"{path}.properties", "Map names to schemas.")
    if not isinstance(required, list):
        raise SchemaError("it must be a list of names", f"{path}.required", "List them.")
    for name in required:
        if not isinstance(name, str) or name not in properties:
            raise SchemaError(f"the property {name!r} is not declared", f"{path}.required", "Declare it.")
    if not isinstance(schema.get("additionalProperties", False), bool):
        raise SchemaError(
            "a schema for additional properties is not supported",
            f"{path}.additionalProperties",
            "Declare the properties; none but these are generated.",
        )
    return properties, set(required)
