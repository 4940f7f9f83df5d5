"""Images: which client has which files, with which labels. They become numbers by a function that is given.

Nothing here opens an image: `ImageFederation.with_features(embed)` hands paths to `embed`, which may be a network, and
gives an ordinary federation, with which everything else works as with a table.
"""

from polyfed.data.images.celeba import celeba
from polyfed.data.images.dogcat import dogcat
from polyfed.data.images.federation import CORRUPTIONS, Embed, ImageFederation, own_images
from polyfed.data.images.files import ImageFiles
from polyfed.data.images.generated import LAYOUTS, make_images

__all__ = [
    "CORRUPTIONS",
    "LAYOUTS",
    "Embed",
    "ImageFederation",
    "ImageFiles",
    "celeba",
    "dogcat",
    "make_images",
    "own_images",
]
