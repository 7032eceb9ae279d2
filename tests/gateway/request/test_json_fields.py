"""The scan for top-level fields, against a real JSON reader."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.request import json_fields
from gateway.request.json_fields import top_level

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[],:\n é😀'),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "{", '"']), inner, max_size=4)
    ),
    max_leaves=15,
)
NAMES = frozenset({"a", "b", "c"})


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES),
    st.sampled_from([None, 1, 4]),
    st.booleans(),
)
async def test_spans_are_the_values(
    fields: dict[str, object], indent: int | None, ascii_only: bool
) -> None:
    """Each span, decoded, is the field's value; all of them are found."""
    body = json.dumps(fields, indent=indent, ensure_ascii=ascii_only).encode()
    found = await top_level(body, names=NAMES)
    assert isinstance(found, dict)
    values = {name: json.loads(body[a:b]) for name, (a, b) in found.items()}
    assert values == {k: v for k, v in fields.items() if k in NAMES}


@given(st.binary(max_size=100))
async def test_any_bytes(body: bytes) -> None:
    """Never an exception, never a hang."""
    await top_level(b"{" + body, names=NAMES)


async def test_the_loop_turns_meanwhile() -> None:
    """A hundred megabytes of text hold it for milliseconds only."""
    body = b'{"a":"' + b"x" * 100_000_000 + b'","b":1}'
    scan = json_fields._Scan(body, NAMES)
    runs = 0
    while not scan.run(0.0):  # no time at all: each run is one step
        scan._steps()
        runs += 1
    assert runs > 20
    assert set(scan.found) == {"a", "b"}
