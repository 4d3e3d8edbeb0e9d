"""Print the size of images in a registry, where layers are compressed (gzip -6).

usage: sizes.py ARCHIVE[=LIMIT_MB]...    archives from `docker save`; exits 1 if an image is above its limit
"""

import json
import sys
import tarfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"


def compressed_bytes(archive: Path, layer: str) -> int:
    with tarfile.open(archive) as opened:
        member = opened.extractfile(layer)
        assert member is not None, layer
        chunks = iter(lambda: member.read(CHUNK_BYTES), b"")
        first = next(chunks, b"")
        if first.startswith(GZIP_MAGIC):  # some engines save layers compressed
            return len(first) + sum(map(len, chunks))
        deflate = zlib.compressobj(6)
        return len(deflate.compress(first)) + sum(len(deflate.compress(each)) for each in chunks) + len(deflate.flush())


def layers(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        manifest = opened.extractfile("manifest.json")
        assert manifest is not None, archive
        return list(json.load(manifest)[0]["Layers"])


def within_limit(argument: str, pool: ThreadPoolExecutor) -> bool:
    path, _, limit = argument.partition("=")
    archive = Path(path)
    sizes = list(pool.map(lambda layer: compressed_bytes(archive, layer) / 1e6, layers(archive)))
    fits = not limit or sum(sizes) <= float(limit)
    goal = f"  (at most {limit}: {'ok' if fits else 'TOO LARGE'})" if limit else ""
    print(f"{archive.stem:16} {sum(sizes):6.1f} MB = {' + '.join(f'{each:.1f}' for each in sizes)}{goal}")  # noqa: T201 -- printing is its purpose
    return fits


if __name__ == "__main__":
    with ThreadPoolExecutor() as threads:  # zlib releases the GIL
        sys.exit(not all(within_limit(argument, threads) for argument in sys.argv[1:]))
