"""Names and parameters of types in metadata agree with the flatbuffer tables."""

from __future__ import annotations

import pytest

from bowstring.datatypes.type_specs import TYPE_SPECS, TYPE_SPECS_BY_CLASS, Enumeration, TypeSpec
from bowstring.datatypes.types import Dictionary
from bowstring.flatbuf.tables import DEFINITIONS, TYPES
from tests.cases import CASES


def test_every_member_of_the_union_type_has_a_form() -> None:
    assert {type_spec.name for type_spec in TYPE_SPECS} == set(TYPES[1:])
    assert {type(case.type) for case in CASES} - TYPE_SPECS_BY_CLASS.keys() == {Dictionary}


@pytest.mark.parametrize("type_spec", TYPE_SPECS, ids=lambda type_spec: type_spec.name)
def test_parameters_have_the_names_of_slots_and_create_the_example_again(type_spec: TypeSpec) -> None:
    assert [parameter.name for parameter in type_spec.parameters] == list(DEFINITIONS[type_spec.name].slots)
    values = [getattr(type_spec.example, parameter.attribute) for parameter in type_spec.parameters]
    assert type_spec.create_type(type_spec.example.fields, values) == type_spec.example
    for parameter, value in zip(type_spec.parameters, values, strict=True):
        if isinstance(parameter.value_type, Enumeration):
            assert value in parameter.value_type.values.values()
