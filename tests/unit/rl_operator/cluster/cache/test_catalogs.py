from tests.unit.rl_operator import samples

from rl_operator.cluster.cache.catalogs import Catalogs
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.render.config_maps import ImageCatalog


def test_the_operators_own_image_is_known_and_others_once_they_are_read() -> None:
    catalogs = Catalogs(frozenset({"ours:1"}))
    known = catalogs.of("ours:1")
    assert known is not None
    assert known.catalog == bundled_catalog()
    assert catalogs.of("theirs:1") is None
    found = ImageCatalog(samples.catalog_of(), "sha256:1")
    catalogs.hold("theirs:1", found)
    assert catalogs.of("theirs:1") == found
    assert (catalogs.is_bundled("ours:1"), catalogs.is_bundled("theirs:1")) == (True, False)
