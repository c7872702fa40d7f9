"""Is an ONNX file the trees that `overrun length train` writes, and nothing else? Read from its bytes, before a runtime opens it.

Any other operator can ask for memory and time without end in a few bytes: 8 GB of zeros made by ConstantOfShape, a Loop. The trees themselves are
bounded by the size of the file, and onnxruntime refuses those that refer to themselves, to absent features or to more targets than there are.

Field numbers are those of onnx.proto (https://github.com/onnx/onnx). Standard library alone, as a router has neither onnx nor protobuf.
"""

from collections.abc import Iterator
from typing import Final

from overrun.models.errors import ArtifactError

OPERATOR: Final = ("ai.onnx.ml", "TreeEnsembleRegressor")
# Of ModelProto: version, producer's name and version, domain, model version, description, graph, operator sets, notes. Functions and training graphs are refused.
_MODEL_FIELDS: Final = frozenset((1, 2, 3, 4, 5, 6, 7, 8, 14))
_GRAPH: Final = 7
# Of GraphProto: node, name, description, inputs, outputs, shapes. Tensors (initializers) are refused: they may lie in other files.
_GRAPH_FIELDS: Final = frozenset((1, 2, 10, 11, 12, 13))
_NODE: Final = 1
_OPERATOR_NAME, _ATTRIBUTE, _DOMAIN = 4, 5, 7
# Of AttributeProto: name, a number, an integer, a text, lists of them, description, type, a reference's name. Tensors and graphs are refused.
_ATTRIBUTE_FIELDS: Final = frozenset((1, 2, 3, 4, 7, 8, 9, 13, 20, 21))
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_Value = int | bytes


def check_trees(data: bytes, name: str) -> None:
    """Refuse a model that is more than one tree ensemble; `name` is for the message.

    Raises:
        ArtifactError: it is no ONNX model, or has another operator, a function, a tensor or a graph within its graph.
    """
    try:
        _check_model(data)
    except ValueError as error:
        raise ArtifactError(
            f"{name} does not open as a model ({error}; expected one {OPERATOR[1]}): train the artifact again"
        ) from error


def _check_model(data: bytes) -> None:
    model = _of_kinds(data, _MODEL_FIELDS, "model")
    graphs = [value for field, value in model if field == _GRAPH]
    if len(graphs) != 1:
        raise ValueError(f"it has {len(graphs)} graphs")
    graph = _of_kinds(_message(graphs[0]), _GRAPH_FIELDS, "graph")
    nodes = [_message(value) for field, value in graph if field == _NODE]
    if len(nodes) != 1:
        raise ValueError(f"its graph has {len(nodes)} operators")
    node = list(_fields(nodes[0]))
    texts = {field: value for field, value in node if field in (_OPERATOR_NAME, _DOMAIN)}
    found = texts.get(_DOMAIN, b""), texts.get(_OPERATOR_NAME, b"")
    if found != tuple(text.encode() for text in OPERATOR):
        raise ValueError("its operator is another one")
    for field, value in node:
        if field == _ATTRIBUTE:
            _of_kinds(_message(value), _ATTRIBUTE_FIELDS, "operator")


def _of_kinds(data: bytes, known: frozenset[int], what: str) -> list[tuple[int, _Value]]:
    found = list(_fields(data))
    if strange := {field for field, _ in found} - known:
        raise ValueError(f"its {what} has field {min(strange)}")
    return found


def _message(value: _Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where a message belongs")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """The fields of a protobuf message: their numbers, and integers or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: _Value
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32, _BYTES):
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if size is None:
                size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError("it ends within a field")
        else:
            raise ValueError("it is no protobuf message")
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("it ends within a number")
