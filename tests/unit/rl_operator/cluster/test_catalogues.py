from tests.unit.rl_operator import samples

from rl_operator.api.bundled import bundled_catalogue
from rl_operator.cluster.catalogues import Catalogues
from rl_operator.render.catalogue import ImageCatalogue


def test_the_image_that_came_with_the_operator_is_known_and_others_are_once_they_were_read() -> None:
    catalogues = Catalogues(frozenset({"ours:1"}))
    known = catalogues.of("ours:1")
    assert known is not None
    assert known.catalogue == bundled_catalogue()
    assert catalogues.of("theirs:1") is None
    found = ImageCatalogue(samples.catalogue_of(), "sha256:1")
    catalogues.hold("theirs:1", found)
    assert catalogues.of("theirs:1") == found
    assert (catalogues.is_bundled("ours:1"), catalogues.is_bundled("theirs:1")) == (True, False)
