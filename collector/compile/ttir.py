"""Reads the text of a Triton function's IR (TTIR) into operations, values and blocks.

Only what a value analysis needs is kept: names, operands, result types, constants, regions and
source lines. An operation with a form that is not known keeps its operands, so the analysis can say
that it does not know the result.
"""

import re

from roofwatch.collector.compile.ir import Branch, Function, IrBlock, Operation, Value

# `%3:2 = "tt.reduce"(%1) ...`: results, name, and the rest with operands and types
_OPERATION = re.compile(
    r"(?:(?P<results>%[\w$.\-]+(?::\d+)?(?:, %[\w$.\-]+)*) = )?"
    r"\"?(?P<name>[a-z_]+[\w.]*)\"?(?P<rest>.*)"
)
_NAME = re.compile(r"%[\w$.\-]+(?:#\d+)?")
# The type of an argument may nest: `!tt.ptr<f32>`, `tensor<16x!tt.ptr<f32>>`.
_ARGUMENT = re.compile(r"(%[\w$.\-]+): ((?:[^,()<>{}]|<(?:[^<>]|<[^<>]*>)*>)+)")
_LABEL = re.compile(r"\^(\w+)(?:\((.*)\))?:")
_BRANCH = re.compile(r"\^(\w+)(?:\(([^:)]*)(?::[^)]*)?\))?")
# A line may point at the place, or at the place and its caller by other aliases.
_LOCATION_LINE = re.compile(r"(#loc\d*) = loc\((.*)\)$")
_LOCATION_AT_END = re.compile(r" loc\((#loc\d*|unknown)\)$")
_FILE_LINE = re.compile(r'"([^"]*)":(\d+):\d+')
_ITERATION = re.compile(r"(%[\w$.\-]+) = (%[\w$.\-]+(?:#\d+)?)")
_FOR = re.compile(
    r"\s+(?:unsigned )?(%[\w$.\-]+) = (%[\w$.\-#]+) to (%[\w$.\-#]+) step (%[\w$.\-#]+)(.*)"
)
# The types of their results follow `->`; other operations end with ` : types`.
_REGION_OPENERS = ("scf.for", "scf.if", "scf.while")


def parse_function(text: str) -> Function:
    """Parse the first public function of a module.

    Raises:
        ValueError: the text has no function.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._scopes: list[dict[str, Value]] = [{}]
        self._regions: list[list[IrBlock]] = []
        self._owners: list[Operation | None] = []
        self._labels: list[dict[str, IrBlock]] = []

    def parse(self) -> Function:
        start = self._find_function()
        header = self._lines[start]
        name = header.partition("@")[2].partition("(")[0]
        # The attributes of arguments have no colon after a value's name.
        arguments = _arguments(header)
        self._scopes[0] = {value.name: value for value in arguments}
        self._open(None, [])
        body = self._regions[-1]
        for line in self._lines[start + 1 :]:
            self._read(line)
            if not self._regions:
                break
        return Function(
            name=name,
            arguments=arguments,
            body=body,
            files=_source_lines(self._lines),
        )

    def _find_function(self) -> int:
        for number, line in enumerate(self._lines):
            if line.lstrip().startswith("tt.func public"):
                return number
        raise ValueError("no function in the IR")

    # --- regions

    def _open(self, owner: Operation | None, arguments: list[Value]) -> None:
        block = IrBlock(arguments, parent=owner)
        for value in arguments:
            value.block = block
        region = [block]
        if owner is not None:
            owner.regions.append(region)
        self._regions.append(region)
        self._owners.append(owner)
        self._labels.append({})
        self._scopes.append({value.name: value for value in arguments})

    def _close(self) -> Operation | None:
        self._regions.pop()
        self._labels.pop()
        self._scopes.pop()
        return self._owners.pop()

    def _block_of(self, label: str) -> IrBlock:
        # A branch may name a block before the text shows it.
        return self._labels[-1].setdefault(label, IrBlock(parent=self._owners[-1]))

    # --- lines

    def _read(self, line: str) -> None:
        line = line.strip()
        location = ""
        # locations come last, and only some lines have one
        if match := _LOCATION_AT_END.search(line):
            location = match[1]
            line = line[: match.start()]
        if not line or line.startswith("//"):
            return
        if line.startswith("^"):
            self._label(line)
            return
        if line.startswith("}"):
            self._end_of_region(line, location)
            return
        self._operation(line, location)

    def _label(self, line: str) -> None:
        match = _LABEL.match(line)
        if match is None:
            # A line that begins with `^` and ends without a colon is no label.
            return
        block = self._block_of(match[1])
        region = self._regions[-1]
        block.arguments = _arguments(match[2] or "")
        for index, value in enumerate(block.arguments):
            value.block = block
            value.index = index
            self._scopes[-1][value.name] = value
        # A region opens with an unnamed block; a label before its first operation names it.
        is_unnamed_start = len(region) == 1 and not region[0].operations
        if is_unnamed_start and not region[0].arguments:
            region[0] = block
        else:
            region.append(block)

    def _end_of_region(self, line: str, location: str) -> None:
        """Close a region; the same line may open the next one of its operation."""
        owner = self._close()
        if owner is None:
            return
        owner.location = owner.location or location
        # A condition has a second region for `else`, a loop with a condition one for its body.
        if line.startswith(("} else {", "} do {", "}, {")):
            self._open(owner, [])
        elif line.startswith("})"):
            self._set_types(owner, line)

    def _operation(self, line: str, location: str) -> None:
        """Read one operation, and open its region if the line ends with a brace."""
        match = _OPERATION.match(line)
        if match is None:
            # lines of attributes and constants are no operations
            return
        rest = match["rest"]
        opens = rest.endswith("{")
        operand_text = rest.partition(" : ")[0]
        operands = [self._value(name) for name in _NAME.findall(operand_text)]
        operation = Operation(
            name=match["name"],
            operands=operands,
            text=rest,
            location=location,
        )
        operation.block = self._regions[-1][-1]
        arguments: list[Value] = []
        if operation.name == "scf.for":
            arguments = self._of_for(operation)
        elif operation.name == "scf.while":
            arguments = self._of_while(operation)
        elif operation.name in {"cf.br", "cf.cond_br"}:
            self._branch(operation)
        operation.block.operations.append(operation)
        self._name_results(operation, match["results"] or "")
        if opens:
            self._open(operation, arguments)

    def _of_for(self, operation: Operation) -> list[Value]:
        """Set the operands to bounds, step and initial values; return the region's arguments."""
        match = _FOR.match(operation.text)
        assert match is not None, operation.text
        counter_type = "i32"
        if ": i64" in operation.text:
            counter_type = "i64"
        counter = Value(match[1], counter_type)
        iterated_text, _, type_text = match[5].partition("->")
        pairs = _ITERATION.findall(iterated_text)
        types = _types_in_parentheses(type_text)
        # the start, stop and step
        bounds = [self._value(match[number]) for number in (2, 3, 4)]
        initial_values = [self._value(initial) for _, initial in pairs]
        operation.operands = bounds + initial_values
        return _numbered([counter, *_typed(pairs, types)])

    def _of_while(self, operation: Operation) -> list[Value]:
        """Initial values of a `while` as operands; return the arguments of its region."""
        head, _, types = operation.text.partition(" : ")
        pairs = _ITERATION.findall(head)
        operation.operands = [self._value(initial) for _, initial in pairs]
        argument_types, _, _ = types.partition("->")
        kinds = _types_in_parentheses(argument_types)
        return _numbered(_typed(pairs, kinds))

    def _branch(self, operation: Operation) -> None:
        """Note the values that a branch passes to each block."""
        targets = _BRANCH.findall(operation.text)
        for position, (label, names) in enumerate(targets):
            values = [self._value(name) for name in _NAME.findall(names)]
            branch = Branch(
                operation=operation,
                position=position,
                values=values,
            )
            self._block_of(label).incoming.append(branch)

    # --- values

    def _value(self, name: str) -> Value:
        """The value that a name stands for in the innermost scope."""
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        # A form that is not understood may hide the definition; the analysis then knows nothing.
        return Value(name, "unknown")

    def _name_results(self, operation: Operation, text: str) -> None:
        """Make a value for each name before the equals sign."""
        if not text:
            return
        types = _result_types(operation)
        for index, name in enumerate(_result_names(text)):
            if index < len(types):
                kind = types[index]
            elif types:
                # One type is written for all results of an operation in short form.
                kind = types[-1]
            else:
                kind = "unknown"
            value = Value(
                name=name,
                type=kind,
                operation=operation,
                index=index,
            )
            operation.results.append(value)
            self._scopes[-1][name] = value

    def _set_types(self, operation: Operation, line: str) -> None:
        """Set result types of an operation in generic form, which stand behind its regions."""
        kinds = _types_in_parentheses(line.rpartition("->")[2])
        for value, kind in zip(operation.results, kinds, strict=False):
            value.type = kind


def _result_names(text: str) -> list[str]:
    """Split `%1, %2:2` into `%1`, `%2#0` and `%2#1`, as later lines call them."""
    names: list[str] = []
    for part in text.split(", "):
        name, _, count = part.partition(":")
        if count:
            names.extend(f"{name}#{index}" for index in range(int(count)))
        else:
            names.append(name)
    return names


def _typed(pairs: list[tuple[str, str]], types: list[str]) -> list[Value]:
    # A type that could not be read leaves its value out rather than shifting the others.
    return [Value(name, kind) for (name, _), kind in zip(pairs, types, strict=False)]


def _numbered(arguments: list[Value]) -> list[Value]:
    for index, value in enumerate(arguments):
        value.index = index
    return arguments


def _arguments(text: str) -> list[Value]:
    values: list[Value] = []
    for name, kind in _ARGUMENT.findall(text):
        values.append(Value(name, kind.removesuffix(" loc").strip()))
    return values


def _types_in_parentheses(text: str) -> list[str]:
    """Split `(i32, tensor<4x!tt.ptr<f32>>)`, or one type without parentheses."""
    text = text.strip().removesuffix("{").strip()
    if text.startswith("("):
        text = text[1 : _matching(text)]
    types: list[str] = []
    depth = 0
    start = 0
    for position, letter in enumerate(text):
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        # A comma within brackets belongs to the type of a tensor or a function.
        if letter == "," and depth == 0:
            types.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    if last:
        types.append(last)
    return types


def _matching(text: str) -> int:
    """Position of the bracket that closes the one at the start."""
    depth = 0
    for position, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if depth == 0:
            return position
    return len(text)


def _result_types(operation: Operation) -> list[str]:
    """Types of the results, which the short form of an operation often leaves out."""
    text = operation.text
    if operation.name in _REGION_OPENERS:
        after_arrow = text.partition("->")[2]
        before_counter_type = after_arrow.rpartition(" : ")[0]
        return _types_in_parentheses(before_counter_type or after_arrow)
    kinds = text.rpartition(" : ")[2]
    for separator in ("->", " to "):
        if separator in kinds:
            return _types_in_parentheses(kinds.rpartition(separator)[2])
    types = _types_in_parentheses(kinds)
    if operation.name == "arith.cmpi" and types:
        # The type is that of the operands; each comparison gives a boolean.
        return [re.sub(r"i\d+(>?)$", r"i1\1", types[0])]
    if operation.name == "arith.select" and len(types) > 1:
        # The first type is that of the condition.
        return types[-1:]
    if operation.name == "tt.load" and types:
        # The type is that of the pointers; a load gives what they point to.
        return [re.sub(r"!tt\.ptr<([^<>]*)(?:, \d+)?>", r"\1", types[0])]
    return types[:1]


def _source_lines(lines: list[str]) -> dict[str, tuple[str, int]]:
    """Map each location to the innermost file and line."""
    texts: dict[str, str] = {}
    for line in lines:
        if match := _LOCATION_LINE.match(line):
            texts[match[1]] = match[2]

    def resolve(text: str, depth: int) -> tuple[str, int] | None:
        """Follow aliases such as `#loc7` to a file and line."""
        if match := _FILE_LINE.search(text):
            return match[1], int(match[2])
        for alias in re.findall(r"#loc\d*", text):
            if not depth or alias not in texts:
                continue
            source_line = resolve(texts[alias], depth - 1)
            if source_line is not None:
                return source_line
        return None

    # Inlined functions nest locations; eight calls deep is more than Triton code has.
    resolved = {alias: resolve(text, 8) for alias, text in texts.items()}
    return {
        alias: source_line for alias, source_line in resolved.items() if source_line is not None
    }
