"""Names and parameters of types in metadata agree with the flatbuffer tables."""

from __future__ import annotations

import pytest

from bowstring.datatypes.type_forms import FORMS_BY_CLASS, TYPE_FORMS, Enumeration, TypeForm
from bowstring.datatypes.types import Dictionary
from bowstring.flatbuf.tables import SPECS, TYPES
from tests.cases import CASES


def test_every_member_of_the_union_type_has_a_form() -> None:
    assert {form.name for form in TYPE_FORMS} == set(TYPES[1:])
    assert {type(case.type) for case in CASES} - FORMS_BY_CLASS.keys() == {Dictionary}


@pytest.mark.parametrize("form", TYPE_FORMS, ids=lambda form: form.name)
def test_parameters_have_the_names_of_slots_and_create_the_example_again(form: TypeForm) -> None:
    assert [parameter.name for parameter in form.parameters] == list(SPECS[form.name].slots)
    values = [getattr(form.example, parameter.attribute) for parameter in form.parameters]
    assert form.create(form.example.fields, values) == form.example
    for parameter, value in zip(form.parameters, values, strict=True):
        if isinstance(parameter.kind, Enumeration):
            assert value in parameter.kind.values.values()
