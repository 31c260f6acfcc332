"""Compare a folder with its manifest: which files are missing, damaged or not listed."""

from __future__ import annotations

import zlib

from bowstring.datasets.manifest import Manifest, ManifestEntry, iter_data_files
from bowstring.errors import InvalidDataError, MissingFileError, translate_os_error
from bowstring.io.store_path import FolderPath, check_regular_file, find_relative_name

# Long enough that the calls cost nothing beside the CRC.
_READ_BYTES = 1 << 20


def check_listed_file(folder: FolderPath, entry: ManifestEntry, *, checksum: bool = True) -> None:
    """Compare a file with its entry in the manifest.

    Raises:
        MissingFileError: it does not exist.
        InvalidDataError: its size or checksum differs.
        BowstringError, also an OSError: it can't be read.
    """
    path = folder / entry.name
    check_regular_file(path)
    try:
        entry.check_size(path.stat().st_size)
        if checksum and entry.checksum is not None:
            crc32 = 0
            with path.open("rb") as file:
                while content := file.read(_READ_BYTES):
                    crc32 = zlib.crc32(content, crc32)
            if entry.checksum != f"crc32:{crc32:08x}":
                raise InvalidDataError(f"expected the checksum {entry.checksum}, found crc32:{crc32:08x}")
    except FileNotFoundError as error:
        raise MissingFileError("is missing, though the manifest lists it", error, str(path)) from None
    except OSError as error:
        raise translate_os_error(error, f"cannot be read: {error.strerror}", str(path)) from error


def list_unlisted_files(folder: FolderPath, manifest: Manifest) -> list[FolderPath]:
    """Return the files that jobs have written and the manifest does not list: superseded, or not committed."""
    names = {entry.name for entry in manifest.entries}
    paths = (path for path in iter_data_files(folder) if find_relative_name(path, folder) not in names)
    return sorted(paths, key=str)
