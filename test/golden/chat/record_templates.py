#!/usr/bin/env python3
"""Chat templates drawn at random, with the text that transformers' Jinja gives.

  test/golden/chat/record_templates.py COUNT SEED > test/golden/chat/templates.jsonl

Needs transformers. Templates that Jinja refuses, and texts with the address of an object or of a kind of text that prints
otherwise (Markup), are left out. AUTOMODEL_TEMPLATES=FILE lets tokenizer_test read another file of this form: with another
seed, a search for what is rendered differently."""
import json
import random
import sys
import warnings

from transformers.utils.chat_template_utils import _compile_jinja_template

warnings.simplefilter("ignore")
COUNT, R = int(sys.argv[1]), random.Random(int(sys.argv[2]))
DEPTH = 3
TEXTS = ["hello", "Hi there", "ÉCOLE straße", "don't stop", "  pad \n", "a,b,,c", "x", "", "12", "3.7", "-5abc", "\u00a0nb\u00a0",
         "你好 世界", "A-B c_d", "tab\tq\"uote'", "TITLE case", "aaa", "</think>x</think>y", "<think>\nz\n</think>\n\nans", "ﬁ ǆ",
         "\x1cfs\x1c", "0x1f", "1e3", "inf", " 42 ", "1_000"]
FILLERS = ["", "\n", "  ", "text", "\n\n  x", "<|im_start|>", " \n\t", "\u00a0", "\u3000\n", "#", "{", "}"]
FILTERS = ["trim", "upper", "lower", "capitalize", "title", "string", "reverse", "first", "last", "length", "int", "float", "abs",
           "tojson", "tojson(indent=2)", "tojson(indent=0)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "list",
           "tojson(separators=(',', ':'))", "int(5)", "int(default=3)", "float(1.5)", "count", "trim('x')", "trim(chars=' h')",
           "replace('a', 'ZZ')", "replace('l', '', 1)", "replace('l', 'é', count=1)", "join", "join(',')", "join(d='-')",
           "join(', ', attribute='role')", "default('q')", "default('q', true)", "default('q', boolean=true)", "d(none)"]
LIST_FILTERS = ["list", "reverse", "reverse|list", "unique", "unique|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)",
                "sort(attribute='role')", "sort(attribute='role', reverse=true)|map(attribute='content')|list", "map('upper')|list",
                "map(attribute='role')|list", "map(attribute='content')", "map(attribute='name', default='zz')|list", "select|list",
                "map(attribute='content.0.text')|list", "reject|list", "select('string')|list", "select('equalto', 'a')|list",
                "selectattr('role', 'equalto', 'user')|list", "rejectattr('role', 'in', ['user', 'tool'])|list", "items", "dictsort",
                "selectattr('name', 'defined')|list", "selectattr('name')|list", "unique(case_sensitive=true)|list", "items|list",
                "unique(attribute='role')|list", "map('length')|list", "map('default', 'q')|list", "map('int')|list", "first", "last",
                "select('odd')|list", "select('in', [1, 'a'])|list"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('x')", "rstrip(' h')", "strip(none)", "upper()", "lower()", "capitalize()", "title()",
           "split()", "split(',')", "split(' ', 1)", "split(none, 1)", "split(maxsplit=1)", "split('a', maxsplit=1)", "split('</think>')[-1]",
           "replace('a', '')", "replace('l', 'ZZ', 1)", "replace('x', 'é', -1)", "find('l')", "count('a')", "startswith('h')", "endswith('')",
           "startswith(('<', 'h'))", "join(['1', 'b'])", "title", "items"]
DICT_METHODS = ["items()", "keys()", "values()", "items()|list", "keys()|list", "values()|list", "get('role')", "get('b', 'q')", "items",
                "keys", "pop", "clear"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false",
         "odd", "even", "lower", "upper", "callable", "eq 1", "divisibleby 2", "divisibleby(3)", "in [1, 2]", "ne 2", "gt 1", "lt 2", "ge(0)",
         "equalto 'a'"]
TEXT, NUMBER = ["m.content", "m.role", "m['content']", "bos_token", "m.name", "messages[0].content", "messages[-1]['role']"], [
    "0", "1", "2", "3", "-7", "2.5", "1_000", "1.0", "m.content|length", "loop.index", "loop.index0", "messages|length", "m.n"]
LISTS = ["messages", "[1, 2, 3]", "['b', 'A', 'a', 'B']", "(1, 'x')", "[]", "range(3)", "range(5, 0, -2)", "m", "m.d", "tools", "m.tool_calls"]
FLAGS = ["true", "false", "none", "loop.first", "loop.last", "m.content", "m.name", "add_generation_prompt", "tools", "m.role == 'user'",
         "m.tool_calls is defined", "m.content is string"]


def literal(text):
    return json.dumps(text, ensure_ascii=False)


def text(d=0):
    return R.choice([
        lambda: R.choice([*TEXT, literal(R.choice(TEXTS))]), lambda: f"({text(d + 1)} ~ {value(d + 1)})",
        lambda: f"({text(d + 1)} + {text(d + 1)})", lambda: f"({value(d + 1)} | {R.choice(FILTERS)})",
        lambda: f"{text(d + 1)}.{R.choice(METHODS)}",
        lambda: f"{text(d + 1)}[{R.choice(['0', '-1', '1:', '::-1', ':-1', ':3', '-2:', '::2', '5:1:-1', '0:0'])}]",
        lambda: f"({text(d + 1)} if {flag(d + 1)} else {value(d + 1)})", lambda: f"({text(d + 1)} * {R.choice(['0', '2', '-1'])})",
        lambda: f"({text(d + 1)} {R.choice(['and', 'or'])} {text(d + 1)})", lambda: "ns." + R.choice(["a", "b", "zz"]),
        lambda: "loop." + R.choice(["index", "revindex", "first", "length", "depth", "previtem", "nextitem.role", "revindex0"]),
    ])() if d < DEPTH else R.choice([*TEXT, literal(R.choice(TEXTS))])


def number(d=0):
    return R.choice([
        lambda: R.choice(NUMBER), lambda: f"({number(d + 1)} {R.choice(['+', '-', '*', '/', '//', '%'])} {number(d + 1)})",
        lambda: f"-{number(d + 1)}", lambda: f"({value(d + 1)}|{R.choice(['int', 'float', 'length', 'abs'])})",
    ])() if d < DEPTH else R.choice(NUMBER)


def items(d=0):
    return R.choice([
        lambda: R.choice(LISTS), lambda: f"{items(d + 1)}[{R.choice(['1:', ':-1', '::-1', '::2'])}]",
        lambda: f"({items(d + 1)} + {items(d + 1)})", lambda: f"({items(d + 1)} | {R.choice(LIST_FILTERS)})",
        lambda: f"{R.choice(['m', 'm.d', 'tools[0].function', 'tools[0].function.parameters.properties.x'])}.{R.choice(DICT_METHODS)}",
        lambda: f"(m.d | dictsort{R.choice(['', '(true)', '(by=@value@)', '(reverse=true)'])})".replace("@", "'"),
        lambda: f"[{value(d + 1)}, {value(d + 1)}]", lambda: f"({value(d + 1)}, {value(d + 1)})",
        lambda: f"{{'k': {value(d + 1)}, 'j': {value(d + 1)}}}",
    ])() if d < DEPTH else R.choice(LISTS)


def flag(d=0):
    return R.choice([
        lambda: R.choice(FLAGS), lambda: f"{value(d + 1)} is {R.choice(['', 'not '])}{R.choice(TESTS)}",
        lambda: f"{value(d + 1)} {R.choice(['==', '!='])} {value(d + 1)}", lambda: f"(not {flag(d + 1)})",
        lambda: f"{number(d + 1)} {R.choice(['<', '<=', '>', '>='])} {number(d + 1)}",
        lambda: f"{text(d + 1)} {R.choice(['in', 'not in'])} {R.choice([text, items])(d + 1)}",
        lambda: f"m.{R.choice([*DICT_METHODS[-4:], 'content.strip'])} is {R.choice(['defined', 'string', 'mapping', 'iterable', 'callable'])}",
    ])() if d < DEPTH else R.choice(FLAGS)


def value(d=0):
    return R.choice([text, text, number, items, flag])(d)


def tag(content):
    return "{%" + R.choice(["", "-", "", "+", "", ""]) + f" {content} " + R.choice(["", "-", "", "", "+"]) + "%}"


def output(expression):
    return "{{" + R.choice(["", "-"]) + f" {expression} " + R.choice(["", "-"]) + "}}"


def otherwise(depth):
    return tag("else") + block(depth) if R.random() < 0.4 else ""


def statement(depth):
    before = R.choice(FILLERS)
    kind = R.randint(0, 11) if depth < 2 else 0
    if kind == 1:
        return before + tag("if " + flag(1)) + block(depth + 1) + otherwise(depth + 1) + tag("endif")
    if kind == 2:
        condition = R.choice(["", "", " if x", " if x is string"])
        return before + tag(f"for x in {items(1)}{condition}") + output("x") + block(depth + 1) + otherwise(depth + 1) + tag("endfor")
    if kind == 3:
        return before + tag("for k, v in " + R.choice(["m.items()", "m.d|dictsort", "[(1, 2), ('a', 'b')]"])) + output("k ~ v") + tag("endfor")
    if kind == 4:
        return before + tag(f"set {R.choice(['ns.a', 'ns.b', 'y', 'm'])} = {value(1)}") + output("y")
    if kind == 5:
        return before + tag("set w") + block(depth + 1) + tag("endset") + output("w" + R.choice(["", "|trim", "|length"]))
    if kind == 6:
        return before + "{#" + R.choice(["", "-"]) + " c " + R.choice(["", "-"]) + "#}"
    if kind == 7:
        return before + tag("if " + flag(1)) + tag(R.choice(["break", "continue"])) + tag("endif")
    if kind == 8:
        return before + output(f"mac({text(1)})")
    return before + output(value())


def block(depth):
    return "".join(statement(depth) for _ in range(R.randint(1, 2))) + R.choice(FILLERS)


def message():
    out = {"role": R.choice(["system", "user", "assistant", "tool", "Function"]),
           "content": R.choice([*[R.choice(TEXTS)] * 4, [{"type": "text", "text": R.choice(TEXTS)}, {"type": "image"}]])}
    if R.random() < 0.3:
        arguments = R.choice([{"x": 1.5, "items": [1, 2]}, {"b": None, "a": True}, '{"s": 1}', {"z": R.choice(TEXTS)}])
        out["tool_calls"] = [{"type": "function", "function": {"name": "get_w", "arguments": arguments}}]
    if R.random() < 0.3:
        out["name"] = R.choice(TEXTS)
    if R.random() < 0.4:
        out["n"] = R.choice([0, 1, -3, 7, 2.5, 1e16, 1e-7, 123456789.125, True, False])
    if R.random() < 0.5:
        out["d"] = {R.choice("abcBA"): R.choice([1, 2, 3.5]) for _ in range(3)}
    return out


TOOLS = [{"type": "function", "function": {"name": "f", "description": "does", "parameters": {"type": "object", "properties": {
    "x": {"type": "array", "items": {"type": "string"}}}, "required": ["x"]}}}]


def main():
    left = COUNT
    while left > 0:
        body = "{% for m in messages %}" + block(0) + "{% endfor %}"
        source = ("{% macro mac(a, b='q') %}{{ a|trim }}[{{ b }}]{% endmacro %}" if "mac(" in body else "") + (
            "{% set ns = namespace(a=1, b='s') %}" if "ns." in body else "") + body
        case = {"t": source, "m": [message() for _ in range(R.randint(1, 3))], "tools": R.choice([TOOLS, None]), "g": R.random() < 0.5}
        try:
            case["text"] = _compile_jinja_template(source).render(
                messages=case["m"], tools=case["tools"], documents=None, add_generation_prompt=case["g"], bos_token="<s>", eos_token="</s>")
        except Exception:  # whatever a template can raise
            continue
        if len(source) > 400 or any(word in case["text"] for word in (" at 0x", "dict_", "Markup", "range(", "<generator")):
            continue
        print(json.dumps(case, ensure_ascii=False))
        left -= 1


main()
