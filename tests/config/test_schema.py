#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The JSON Schema of configurations accepts what `weir check` accepts, and refuses what it refuses:
over the whole corpus, and field by field.

    test_schema.py SCHEMA WEIR EXCEPTIONS DIRECTORY...

EXCEPTIONS lists wrong configurations that no schema can refuse, with reasons.
"""
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import unittest

import jsonschema
import yaml

SCHEMA, COMMAND, EXCEPTIONS = sys.argv[1:4]
DIRECTORIES = sys.argv[4:]


class Loader(yaml.SafeLoader):
    """Reads YAML 1.2 as editors do: its core schema, and no name twice."""

    yaml_implicit_resolvers = {}

    def construct_mapping(self, node, deep=False):
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a name twice, or one that is no "
                                                    "text", node.start_mark)
        return {str(key.value): self.construct_object(value, deep=True) for key, value in node.value}

    def compose_node(self, parent, index):
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias", self.peek_event().start_mark)
        return super().compose_node(parent, index)


def construct_map(loader, node):
    return loader.construct_mapping(node)


Loader.add_constructor("tag:yaml.org,2002:map", construct_map)
Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value, 10))
for tag, expression, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+", list("-+0123456789")),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789"))):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{expression})$"), first)


def read(text):
    """The value of a text, or None if it is not one document of YAML."""
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, UnicodeError, RecursionError, ValueError):
        return None


def check(text):
    """The complaints of `weir check`."""
    done = subprocess.run([COMMAND, "check", "--json", "-"], input=text, capture_output=True,
                          timeout=60, check=False)
    return [one["message"] for one in json.loads(done.stdout)["complaints"]]


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(pathlib.Path(SCHEMA).read_text(encoding="utf-8"))
        jsonschema.Draft7Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft7Validator(cls.schema)

    def accepts(self, text):
        value = read(text)
        return value is not None and self.validator.is_valid(value)

    def test_the_corpus(self):
        with open(EXCEPTIONS, "rb") as file:
            excused = {name for one in tomllib.load(file)["exception"] for name in one["files"]}
        files = [path for directory in DIRECTORIES
                 for path in sorted(pathlib.Path(directory).glob("*.yaml"))]
        self.assertGreater(len(files), 150)
        wrongly_accepted = set()
        for path in files:
            text = path.read_bytes()
            if path.parent.name == "right":
                self.assertTrue(self.accepts(text), f"{path.name} is right, and refused: " + "; ".join(
                    one.message for one in self.validator.iter_errors(read(text))))
            elif self.accepts(text):
                wrongly_accepted.add(path.name)
        self.assertEqual(wrongly_accepted - excused, set(), "wrong, and accepted without a reason")
        self.assertEqual(excused - wrongly_accepted, set(), "excused, and not accepted or not there")

    def fields(self, text, listed=r"there are: (.*)"):
        """The fields that a complaint about the unknown one in a text lists."""
        found = [re.search(listed, message) for message in check(text.encode())]
        lists = [match.group(1).split(", ") for match in found if match]
        self.assertEqual(len(lists), 1, (text, found))
        return set(lists[0])

    def test_fields_of_the_reader(self):
        definitions = self.schema["definitions"]
        head = "version: 1\nsets:\n  a: "
        for text, schema in (("version: 1\nqqqqqqqqqqqq: 1\n", self.schema),
                             (head + "{ qqqqqqqqqqqq: 1 }\n", definitions["set"]),
                             (head + "{ subjects: { max: 1, qqqqqqqqqqqq: 1 }, limits: [ { type: "
                              "resource, key: r, capacity: 1 } ] }\n", definitions["subjects"])):
            self.assertEqual(self.fields(text), set(schema["properties"]))

    def test_parameters_of_the_plugins(self):
        done = subprocess.run([COMMAND, "plugins", "--json"], capture_output=True, check=True)
        plugins = [one for one in json.loads(done.stdout)["plugins"] if "name" in one]
        definitions, limit = self.schema["definitions"], self.schema["definitions"]["limit"]
        algorithms = {one["name"]: one for one in plugins if one["kind"] == "algorithm"}
        named = set(limit["properties"]["algorithm"]["anyOf"][0]["enum"])
        self.assertEqual(named, set(algorithms))
        balancers = {one["name"] for one in plugins if one["kind"] == "balancer"}
        self.assertEqual(set(definitions["pool"]["properties"]["balancer"]["anyOf"][0]["enum"]),
                         balancers)
        for name, plugin in algorithms.items():
            schema = definitions[name]
            parameters = {one["name"]: one for one in plugin["parameters"]}
            self.assertEqual(set(schema["properties"]), {"type", *parameters}, name)
            self.assertEqual(set(schema["propertyNames"]["enum"]),
                             set(limit["properties"]) | set(parameters), name)
            self.assertEqual(set(schema["required"]),
                             {one["name"] for one in parameters.values() if one["required"]})
            self.assertEqual(set(schema["properties"]["type"]["enum"]), set(plugin["types"]))
            for one in parameters.values():
                self.compare_parameter(one, schema["properties"][one["name"]])

    def compare_parameter(self, parameter, schema):
        """Compares what is accepted at the bounds of a parameter."""
        whole = {**schema, "definitions": self.schema["definitions"]}
        accepts = jsonschema.Draft7Validator(whole).is_valid
        if parameter["type"] == "choice":
            self.assertEqual(set(schema["enum"]), set(parameter["choices"]))
            return
        if parameter["type"] == "zone":
            self.assertTrue(accepts("Etc/GMT+12"))
            self.assertFalse(any(accepts(wrong) for wrong in ("", "../x", "/x", "a b", 1, None, [])))
            return
        unit = "ns" if parameter["type"] == "duration" else ""
        for value in (0, 1, 1000):
            right = parameter["min"] <= value <= parameter["max"]
            self.assertEqual(accepts(f"{value}{unit}"), right, (parameter["name"], value))
            self.assertEqual(accepts(value), right and not unit, (parameter["name"], value))
        for wrong in ("", "-1" + unit, "01" + unit, "1x", "1 s", None, [], {}):
            self.assertFalse(accepts(wrong), (parameter["name"], wrong))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
