from __future__ import annotations


def test_the_record_is_of_tier_three_and_repeats_the_epsilon(city):
    record = city.disclosure.registry
    assert record["tier"] == 3
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 3.999999999999}
    assert record["deployment"]["dp_variant"]["variant_name"] == "Pure DP"


def test_the_record_says_what_is_not_protected(city):
    words = city.disclosure.registry["deployment"]["dp_variant"]["unprotected_quantities"]
    assert all(each in words for each in city.disclosure.unit.not_protected)


def test_the_slug_has_letters_digits_and_hyphens_only(make_release, city):
    import h3

    odd = make_release([h3.latlng_to_cell(30.27, -97.74, 7)], place="São Paulo / Центр")
    assert odd.disclosure.registry["url_slug"] == "traffic-speeds-s-o-paulo-r0001"
