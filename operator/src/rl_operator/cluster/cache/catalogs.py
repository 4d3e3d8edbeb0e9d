"""The catalog of each image: known at once for the image that this package was built with, else after reading it."""

from collections.abc import Set as AbstractSet

from rl_operator.documents.shipped import bundled_catalog
from rl_operator.render.config_maps import ImageCatalog


class Catalogs:
    """By image reference: runtimes of the same image share one."""

    def __init__(self, bundled_images: AbstractSet[str] = frozenset()) -> None:
        self._bundled = bundled_images
        self._read: dict[str, ImageCatalog] = {}

    def is_bundled(self, image: str) -> bool:
        return image in self._bundled

    def of(self, image: str) -> ImageCatalog | None:
        """None: the image has not been read yet."""
        return ImageCatalog(bundled_catalog()) if image in self._bundled else self._read.get(image)

    def hold(self, image: str, found: ImageCatalog) -> None:
        self._read[image] = found
