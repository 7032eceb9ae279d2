"""Names of models, aliases and adapters."""

from router.models import ListedModel, ModelName, name_models

QWEN = ListedModel(id="qwen", root="/models/qwen3-8b")
ALIAS = ListedModel(id="qwen-latest", root="/models/qwen3-8b")
SQL = ListedModel(id="sql", root="/loras/sql", parent="qwen")


def test_aliases_share_the_first_name() -> None:
    """Two ids with one root are one model: its blocks have one name."""
    names = name_models([QWEN, ALIAS], {})
    assert names == {
        "qwen": ModelName(base="qwen"),
        "qwen-latest": ModelName(base="qwen"),
    }


def test_an_adapter_names_its_base() -> None:
    """The adapter is part of the name, also when listed before its base."""
    names = name_models([SQL, QWEN], {})
    assert names["sql"] == ModelName(base="qwen", adapter="sql")
    assert next(iter(names)) == "qwen"


def test_an_adapter_of_an_alias_or_of_an_unlisted_base() -> None:
    """The parent is resolved through the listing, then the fleet, else taken as is."""
    of_alias = ListedModel(id="a", parent="qwen-latest")
    assert name_models([QWEN, ALIAS, of_alias], {})["a"].base == "qwen"
    assert name_models([of_alias], {"qwen-latest": "qwen"})["a"].base == "qwen"
    assert name_models([of_alias], {})["a"].base == "qwen-latest"


def test_a_name_the_fleet_knows_is_kept() -> None:
    """Blocks are indexed under the first name given, whatever a later worker says."""
    names = name_models([ALIAS, QWEN], {"qwen": "qwen"})
    assert {name.base for name in names.values()} == {"qwen"}


def test_models_without_a_root_are_each_their_own() -> None:
    """Nothing says that they are one model."""
    names = name_models([ListedModel(id="a"), ListedModel(id="b")], {})
    assert [name.base for name in names.values()] == ["a", "b"]
