"""The OpenAPI description of a service, and the page that shows it, from the types of the items."""

import dataclasses
import html
import json
import types
import typing
from typing import Any, Literal

from bert.core import cli
from serve.heads import Head, routes

ERRORS = {
    "400": "The request cannot be answered as it is; the reason says what to send",
    "404": "No model of that name, or none for this use",
    "408": "The request was not received in time",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "500": "The model failed",
    "503": "Too much waits, there are too many connections, or the service stops; Retry-After says when to try again",
    "504": "The answer was not computed in time",
}


def openapi(version: str) -> dict[str, Any]:
    """Return the description of all addresses in the format OpenAPI 3.1."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for head in routes():
        name = head.item.__name__
        schemas[name] = schema(head.item)
        paths[f"/v1/{head.route}"] = {"post": _operation(head, name)}
    schemas["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "object", "properties": {"status": {"type": "integer"}, "reason": STRING}}},
    }
    for path, summary in (
        ("/v1/models", "The models and what each can be asked"),
        ("/healthz", "200 while the service works"),
        ("/readyz", "200 while it takes requests"),
        ("/metrics", "Figures for Prometheus"),
    ):
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": summary}}}}
    title = {"title": "BERT service", "version": version}
    return {"openapi": "3.1.0", "info": title, "paths": paths, "components": {"schemas": schemas}}


STRING = {"type": "string"}


def _operation(head: type[Head], name: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{name}"}
    named = {"type": "object", "properties": {"model": STRING}}
    several = {
        "type": "object",
        "required": ["inputs"],
        "properties": {"model": STRING, "inputs": {"type": "array", "items": reference}},
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "summary": head.title,
        "description": f"Send one input, or several as `inputs`; several are answered as `outputs`, in which an input "
        f"that cannot be answered has an `error`. An answer has {head.answer}.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"anyOf": [{"allOf": [reference, named]}, several]}}},
        },
        "responses": {
            "200": {
                "description": head.answer,
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **{status: {"description": text, "content": error} for status, text in ERRORS.items()},
        },
    }


def schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a dataclass."""
    hints, docs = typing.get_type_hints(kind), cli.field_docs(kind)
    fields = dataclasses.fields(kind)
    properties = {field.name: _type(hints[field.name]) | {"description": docs[field.name]} for field in fields}
    for field in fields:
        if field.default not in (dataclasses.MISSING, None):
            properties[field.name]["default"] = field.default
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    described: dict[str, Any] = {"type": "object", "description": kind.__doc__, "properties": properties}
    return described | ({"required": required} if required else {})


def _type(hint: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type(argument) for argument in arguments]}
    if origin is list:
        return {"type": "array", "items": _type(arguments[0])}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    return {"type": {str: "string", int: "integer", bool: "boolean", type(None): "null"}[hint]}


def page(described: dict[str, Any]) -> str:
    """Return the description as a web page."""
    parts = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><p>{html.escape(operation['summary'])}.</p>")
            if "description" in operation:
                parts.append(f"<p>{_code(operation['description'])}</p>")
                parts.append(_fields(described, operation))
    errors = "".join(f"<tr><td>{status}<td>{html.escape(text)}" for status, text in ERRORS.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<title>BERT service: addresses</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/page.css"><main class="docs">'
        '<p><a href="/">Back to the page</a> &middot; <a href="/openapi.json">openapi.json</a></p>'
        f"<h1>BERT service: addresses</h1>{''.join(parts)}<h2>Errors</h2>"
        '<p>An error is <code>{"error": {"status": ..., "reason": ...}}</code>.</p>'
        f"<table><tr><th>Status<th>Meaning{errors}</table></main></html>"
    )


def _fields(described: dict[str, Any], operation: dict[str, Any]) -> str:
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]["allOf"][0]["$ref"]
    body = described["components"]["schemas"][reference.rsplit("/", 1)[1]]
    rows = [
        f"<tr><td><code>{name}</code><td>{html.escape(_kind(field))}"
        f"<td>{'yes' if name in body.get('required', ()) else 'no'}<td>{html.escape(field['description'])}"
        for name, field in body["properties"].items()
    ]
    return f"<table><tr><th>Field<th>Type<th>Required<th>Meaning{''.join(rows)}</table>"


def _kind(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "enum" in field:
        return " or ".join(map(json.dumps, field["enum"]))
    if "anyOf" in field:
        return " or ".join(map(_kind, field["anyOf"]))
    return f"array of {_kind(field['items'])}s" if field["type"] == "array" else str(field["type"])


def _code(text: str) -> str:
    """Return text as HTML, with what is between backquotes as code."""
    parts = html.escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
