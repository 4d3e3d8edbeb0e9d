"""What each image holds: known at once for the image that this package was built with, else once it was read."""

from collections.abc import Set as AbstractSet

from rl_operator.api.bundled import bundled_catalogue
from rl_operator.render.catalogue import ImageCatalogue


class Catalogues:
    """By image reference: runtimes of the same image share one."""

    def __init__(self, bundled_images: AbstractSet[str] = frozenset()) -> None:
        self._bundled = bundled_images
        self._read: dict[str, ImageCatalogue] = {}

    def is_bundled(self, image: str) -> bool:
        return image in self._bundled

    def of(self, image: str) -> ImageCatalogue | None:
        """None: nobody has read the image yet."""
        return ImageCatalogue(bundled_catalogue()) if image in self._bundled else self._read.get(image)

    def hold(self, image: str, found: ImageCatalogue) -> None:
        self._read[image] = found
