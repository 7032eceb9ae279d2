"""SGLang's page hashes: the vectors of its formula."""

import hashlib

import pytest

from simworker.hashing import Identity
from simworker.sglang.hashing import PageHasher, namespace_seed, page_digest, salt_seed

PLAIN = Identity()
SALTED = Identity(salt="tenant-a")
TWO_64 = 2**64


@pytest.mark.parametrize(
    ("identity", "bigrams", "pages", "values"),
    [
        (
            PLAIN, False, [range(1, 17), range(17, 33)],
            [8635429971592222890, 1256577331724852459],
        ),
        (
            PLAIN, False, [[1, 2, 3, 4], [5, 6, 7, 8]],
            [-3488128144981237669, 5674439469042975057],
        ),
        (SALTED, False, [range(1, 17)], [3451139630862032982]),
        (PLAIN, True, [[1, 2, 3, 4, 5]], [-638950109823820341]),
    ],
)  # fmt: skip
def test_golden_vectors(
    identity: Identity, bigrams: bool, pages: list[list[int]], values: list[int]
) -> None:
    """Chained pages, salted ones and pairs, as the signed integers of events."""
    hasher = PageHasher(bigrams=bigrams)
    digest = None
    for number, (page, value) in enumerate(zip(pages, values, strict=True)):
        digest = hasher.link(digest, list(page), identity, number)
        assert hasher.event_value(digest) == value % TWO_64


def test_what_enters_names_and_what_does_not() -> None:
    """An adapter, as it was loaded and with its key, does; a key alone does not, but
    its pages are other pages."""
    hasher = PageHasher()

    def link(identity: Identity) -> tuple[bytes, int]:
        digest = hasher.link(None, list(range(1, 17)), identity, 0)
        value = hasher.event_value(digest)
        assert isinstance(value, int)
        return digest, value

    plain, keyed = link(PLAIN), link(Identity(extra_key="x"))
    assert plain[0] != keyed[0]
    assert plain[1] == keyed[1] == 8635429971592222890
    adapted = [
        link(Identity(adapter="a", adapter_path=path, extra_key=key))
        for path, key in (("/a", None), ("/b", None), ("/a", "x"))
    ]
    assert len({value for _, value in [plain, *adapted]}) == 4
    assert hasher.link(adapted[0][0], [1], Identity(adapter="a"), 1) != keyed[0]


def test_the_seed_of_a_namespace() -> None:
    """The vector is of the format that names a salted page so, too."""
    page = hashlib.sha256(b"x").digest()
    salted = page_digest(salt_seed("tenant-a"), list(range(1, 17)))[:8]
    name = hashlib.sha256(namespace_seed(None, "tenant-a") + salted).digest()[:8]
    assert int.from_bytes(name, signed=True) == -6866860737164470112
    assert PageHasher().event_value(page) == int.from_bytes(page[:8])


def test_seeds_and_wide_ids() -> None:
    """A salt's seed, and a page with the id of an image."""
    assert salt_seed("tenant-a").hex().startswith("f5d0f785efe6042a4e4b0297a4d71291")
    wide = page_digest(b"", [1, 2, 3, 1 << 32])
    assert wide.hex().startswith("78d75f49fa8980773b1f1c416945b61a")
